"""The installed wheel: its contents, and that nothing in the user's folders shadows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True)
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which pip has installed the wheel, with the command in `bin/`."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--no-compile", "--target", folder, wheel], check=True)
    return folder


@pytest.fixture
def users_folder(tmp_path: Path) -> Path:
    """A folder whose subfolders are called as those of this project."""
    for name in ("jobs", "conf"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "__init__.py").write_text("raise AssertionError('a module of the user was imported')\n")
    (tmp_path / "conf" / "config.yaml").write_text("wrong: true\n")
    (tmp_path / "jobs" / "evaluate.py").write_text("raise AssertionError('a script of the user was run')\n")
    return tmp_path


def test_the_wheel_installs_two_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.partition("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"pipeline", "hydra_plugins"}
    packaged = {name.removeprefix("pipeline/conf/") for name in names if name.startswith("pipeline/conf/")}
    assert packaged == {str(file.relative_to(ROOT / "conf")) for file in (ROOT / "conf").rglob("*.yaml")}


@pytest.mark.exhaustive
def test_the_installed_command_runs_between_folders_of_the_same_names(installed: Path, users_folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{installed}{os.pathsep}{users_folder}"}

    def run(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=users_folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    kgqa = installed / "bin" / "kgqa"
    small = ("dataset.triples=2000", "run.limit=4", "evaluation.bootstrap_resamples=100")
    ran = run(kgqa, "evaluate", "method=arg", "llm=embedded", *small, "run.dir=run", "json=true")
    assert json.loads(ran)["points"][0]["questions"] == 4
    assert run(kgqa, "report", "run").startswith("run/report.html\n")
    assert (users_folder / "run" / "report.html").stat().st_size > 10_000
    swept = run(kgqa, "sweep", "method=cot", "method.depth=1,2", "llm=oracle", *small, "run.dir=sweep", "json=true")
    assert len(json.loads(swept)["runs"][0]["points"]) == 2, "Hydra finds our launcher"
    where = run(sys.executable, "-P", "-c", "import pipeline; print(pipeline.__file__)")
    assert Path(where.strip()).is_relative_to(installed)
