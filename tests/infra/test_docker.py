"""The container images and the compose file: linted, parsed, and compared with the project."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose
from dockerfile_parse import DockerfileParser
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.infra.support import INFRA

ROOT = INFRA.parent
DOCKERFILES = sorted((INFRA / "docker").glob("Dockerfile.*"))
VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


def instructions(file: Path) -> list[tuple[str, str]]:
    with file.open("rb") as stream:
        parsed = DockerfileParser(fileobj=stream).structure
    return [(each["instruction"], each["value"]) for each in parsed]


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_hadolint_finds_nothing(file: Path) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, "--no-color", file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_there_is_an_image_for_each_part() -> None:
    assert [file.suffix for file in DOCKERFILES] == [".cpu", ".gpu", ".virtuoso"]


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.name)
def test_images_are_pinned_run_as_a_user_and_copy_existing_files(file: Path) -> None:
    lines = instructions(file)
    bases = [value.split(" AS ")[0] for name, value in lines if name == "FROM"]
    assert all(re.fullmatch(r"[\w./-]+:\d+\.\d+[\w.-]*", base) for base in bases), "an exact version, not latest"
    users = [value for name, value in lines if name == "USER"]
    assert users == ["1000:1000"]
    copied = [value.split()[:-1] for name, value in lines if name == "COPY" and not value.startswith("--from")]
    for source in (source for sources in copied for source in sources):
        assert (ROOT / source).exists(), source
        assert sent_to_the_engine(source), f".dockerignore leaves out {source}"


def sent_to_the_engine(source: str) -> bool:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    return any(source == each or source.startswith(f"{each}/") for each in kept)


def test_packages_are_installed_before_the_sources_are_copied() -> None:
    """A change of the sources must not install all packages again."""
    for file in DOCKERFILES[:2]:
        steps = [value for name, value in instructions(file) if name in ("COPY", "RUN")]
        packages, sources = (next(n for n, each in enumerate(steps) if word in each) for word in ("--req", "pipeline"))
        assert packages < sources
        assert steps[packages - 1] == f"infra/docker/requirements{file.suffix}.txt ./"


def pins(image: str) -> dict[str, str]:
    lines = (INFRA / "docker" / f"requirements.{image}.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_nodes_of_one_cluster_have_the_same_versions() -> None:
    bases = {value.split(" AS ")[0] for file in DOCKERFILES[:2] for name, value in instructions(file) if name == "FROM"}
    assert len(bases) == 1
    cpu, gpu = pins("cpu"), pins("gpu")
    differing = {name for name, version in cpu.items() if gpu.get(name) != version}
    assert differing == {"torch", "faiss-cpu"}, "the builds for CPUs"
    assert cpu["torch"].removesuffix("+cpu") == gpu["torch"]
    (cluster,) = (
        each
        for each in yaml.safe_load_all((INFRA / "k8s" / "base" / "raycluster.yaml").read_text())
        if each["kind"] == "RayCluster"
    )
    assert cluster["spec"]["rayVersion"] == gpu["ray"]


@pytest.mark.parametrize(
    ("image", "extras"),
    [("cpu", ("dense", "hf", "s3")), ("gpu", ("gpu", "gpu-search", "hf", "s3", "train"))],
)
def test_an_image_has_what_jobs_need_on_its_nodes(image: str, extras: tuple[str, ...]) -> None:
    """Object stores everywhere; encoders where questions are answered; vLLM and training where the GPUs are."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = (each for extra in extras for each in project["optional-dependencies"][extra])
    for requirement in map(Requirement, [*project["dependencies"], *optional]):
        version = pins(image)[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), requirement
    script = (INFRA / "docker" / "lock.sh").read_text()
    assert re.search(rf"lock requirements.{image}.txt \S+ '{' '.join(extras)}'", script)


def compose(**environment: str) -> dict[str, Any]:
    """The compose file with environment variables filled in, as the command does."""

    def fill(found: re.Match[str]) -> str:
        name, rule, default = found.groups()
        if name in environment:
            return environment[name]
        assert rule == "-", f"{name} must be set: {default}"
        return default

    return yaml.safe_load(VARIABLE.sub(fill, (INFRA / "docker" / "compose.yaml").read_text()))


@pytest.fixture
def composed() -> dict[str, Any]:
    return compose(RAY_AUTH_TOKEN="token", DATABASE="/graphs/freebase")


def test_the_compose_file_follows_the_compose_specification(composed: dict[str, Any]) -> None:
    services = {"ray-head", "ray-worker", "vllm", "virtuoso-1", "virtuoso-2", "prometheus", "grafana"}
    assert set(PyCompose.from_yaml(yaml.safe_dump(composed)).service_names()) == services
    composed["services"]["vllm"]["prots"] = []
    with pytest.raises(ValueError, match="prots"):
        PyCompose.from_yaml(yaml.safe_dump(composed))


def test_ports_are_published_to_this_machine_only(composed: dict[str, Any]) -> None:
    ports = [port for service in composed["services"].values() for port in service.get("ports", [])]
    assert len(ports) == len(set(ports)) == 6
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_no_secret_has_a_default() -> None:
    text = (INFRA / "docker" / "compose.yaml").read_text()
    for name in ("RAY_AUTH_TOKEN", "DATABASE"):
        assert {rule for variable, rule, _ in VARIABLE.findall(text) if variable == name} == {"?"}
    assert not re.search(r"(?i)password: *[\"']?\w", text)


def test_everything_that_services_mount_build_and_wait_for_exists(composed: dict[str, Any]) -> None:
    folder = INFRA / "docker"
    for service in composed["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (folder / source).resolve().exists(), source
            elif not source.startswith("/"):
                assert source in composed["volumes"]
        if build := service.get("build"):
            assert ((folder / build["context"]).resolve() / build["dockerfile"]).is_file()
            assert (folder / build["context"]).resolve() == ROOT
        assert set(service.get("depends_on", [])) <= composed["services"].keys()
        assert ":" in service["image"]
        assert not service["image"].endswith(":latest")


def test_prometheus_finds_the_services_by_their_names(composed: dict[str, Any]) -> None:
    scraped = yaml.safe_load((INFRA / "monitoring" / "prometheus.yml").read_text())["scrape_configs"]
    targets = {target for job in scraped for each in job.get("static_configs", []) for target in each["targets"]}
    assert {target.split(":")[0] for target in targets} <= composed["services"].keys()
    (listed,) = (file for job in scraped for each in job.get("file_sd_configs", []) for file in each["files"])
    shared = [
        volume.split(":")[:2]
        for name in ("ray-head", "prometheus")
        for volume in composed["services"][name]["volumes"]
        if volume.split(":")[1] == str(Path(listed).parent)
    ]
    assert shared == [["ray", "/tmp/ray"]] * 2


def test_the_files_that_the_cpu_image_copies_make_a_package(tmp_path: Path) -> None:
    """The steps of its first stage without downloads: a file that is not copied would be missing here."""
    for sources in (value.split() for name, value in instructions(DOCKERFILES[0]) if name == "COPY"):
        *copied, to = sources
        if "--from=build" in copied:
            continue
        for source in copied:
            target = tmp_path / to if len(copied) > 1 or to.endswith("/") else (tmp_path / to).parent
            target.mkdir(parents=True, exist_ok=True)
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, tmp_path / to, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, target)
    built = subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=tmp_path, check=False)
    assert built.returncode == 0
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    listed = subprocess.run(
        [sys.executable, "-m", "zipfile", "--list", str(wheel)], check=True, capture_output=True, text=True
    ).stdout
    assert {"pipeline/cli/evaluate.py", "pipeline/conf/config.yaml", "hydra_plugins/"} <= {
        part for line in listed.splitlines() for part in (line.split()[0], line.split()[0].partition("/")[0] + "/")
    }
