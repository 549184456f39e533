"""What is installed from the wheel: the code with the files that it reads beside itself."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The contents of the wheel, away from the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


def test_an_installed_package_runs_and_reports(installed: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(installed)}

    def kgqa(*words: str) -> str:
        command = [sys.executable, "-P", "-m", "jobs.cli", *words]
        return subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout

    kgqa("evaluate", "method=arg", "llm=embedded", "dataset.triples=2000", "run.limit=4", "run.dir=run")
    assert kgqa("report", "run") == "run/report.html\n"
    assert (tmp_path / "run" / "report.html").stat().st_size > 10_000
    where = [sys.executable, "-P", "-c", "import pipeline; print(pipeline.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout
    assert Path(found.strip()).is_relative_to(installed)
