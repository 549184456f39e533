"""Scripts for Slurm and images for Apptainer: linted, and compared with the Dockerfiles."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.infra.support import INFRA

ROOT = INFRA.parent
DEFINITIONS = {
    "kgqa-cpu.def": "Dockerfile.cpu",
    "kgqa-gpu.def": "Dockerfile.gpu",
    "virtuoso.def": "Dockerfile.virtuoso",
}
SCRIPTS = sorted([*INFRA.rglob("*.sh"), *INFRA.rglob("*.sbatch")])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda file: file.name)
def test_shellcheck_finds_nothing(script: Path) -> None:
    shellcheck = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([shellcheck, "--color=never", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def section(name: str, text: str) -> list[str]:
    """The lines of a section of a definition, without comments."""
    found = re.search(rf"^%{name}\n(.*?)(?=^%|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found
    lines = (line.strip() for line in found[1].splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def test_there_is_a_definition_for_each_image() -> None:
    assert {file.name for file in (INFRA / "apptainer").iterdir()} == DEFINITIONS.keys()
    assert {file.name for file in (INFRA / "docker").glob("Dockerfile.*")} == set(DEFINITIONS.values())


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_definition_installs_what_the_image_for_docker_installs(name: str) -> None:
    definition = (INFRA / "apptainer" / name).read_text()
    dockerfile = (INFRA / "docker" / DEFINITIONS[name]).read_text()
    bases = re.findall(r"^From: (\S+)$", definition, re.MULTILINE)
    assert set(bases) == set(re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE))
    copied = {source for source, _ in map(str.split, section("files", definition))}
    of_docker = re.findall(r"^COPY (?!--from)(.+?) \S+$", dockerfile.replace("\\\n", " "), re.MULTILINE)
    assert copied == {source for sources in of_docker for source in sources.split()}
    assert all((ROOT / source).exists() for source in copied)
    steps = "\n".join(section("post", definition))
    packages = re.findall(r"apt-get install --yes --no-install-recommends (.+?)(?: \\)?\n", dockerfile)
    # wget is for KubeRay.
    assert all(package in steps for each in packages for package in each.split() if package != "wget")
    done = subprocess.run(["bash", "-n"], input=steps, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
