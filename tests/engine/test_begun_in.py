"""The relative paths of a `run.yaml` name files of the folder in which its run was begun, and no others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from pipeline.cli.main import main
from pipeline.engine.begun_in import begun_in
from pipeline.traces.folder import RunFolder
from tests.engine.user_project import Project

FILES = (("triples", "facts.tsv"), ("questions", "questions.jsonl"))
QUICK = ("llm=oracle", "method=cot", "evaluation.bootstrap_resamples=100")


@pytest.fixture
def elsewhere(project: Project, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another folder, which is the current one after a run of the project."""
    project.run(*QUICK)
    folder = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("same_names", [True, False])
@pytest.mark.parametrize(
    "words", [("evaluate", "{}/run.yaml"), ("doctor", "{}/run.yaml"), ("compare", "{}", "noise.questions=2")]
)
def test_the_files_of_another_folder_are_not_read(
    words: tuple[str, ...],
    same_names: bool,
    project: Project,
    elsewhere: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if words[0] == "compare":
        shutil.copytree(project.folder / "runs" / "r", project.folder / "runs" / "s")
        words = (*words, str(project.folder / "runs" / "s"))
    if same_names:
        for name in ("facts.tsv", "questions.jsonl"):
            (elsewhere / name).write_text("")
    assert main([word.format(project.folder / "runs" / "r") for word in words]) == 2
    said = capsys.readouterr().err
    assert "(dataset.triples=facts.tsv)" in said or "(kg.dataset.triples=facts.tsv)" in said
    assert f"go there (cd {project.folder}), where the file is runs/r/run.yaml, and give the command again" in said


def test_the_advice_can_be_followed(
    project: Project, elsewhere: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.folder)
    assert main(["evaluate", str(project.folder / "runs" / "r" / "run.yaml")]) == 0
    assert "nothing to run" in capsys.readouterr().err


def test_a_relative_path_is_said_as_it_is_there(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project.run(*QUICK)
    monkeypatch.chdir(project.folder / "runs")
    assert main(["evaluate", "r/run.yaml"]) == 2
    assert f"go there (cd {project.folder}), where the file is runs/r/run.yaml, and" in capsys.readouterr().err


def test_a_project_may_be_copied_with_its_runs(
    project: Project, elsewhere: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(project.folder, elsewhere / "copy")
    monkeypatch.chdir(elsewhere / "copy")
    assert main(["evaluate", "runs/r/run.yaml"]) == 0
    assert "nothing to run" in capsys.readouterr().err


def test_a_folder_with_the_name_of_an_option_is_no_file_of_the_run(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.chdir(project.folder)
    for name in ("test", "full", "cot", "auto", "local"):
        Path(name).mkdir()
    files = [f"dataset.{key}={Path(name).absolute()}" for key, name in FILES]
    assert main(["evaluate", "dataset=custom", *files, "run.dir=runs/absolute", *QUICK]) == 0
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert main(["evaluate", str(project.folder / "runs/absolute/run.yaml")]) == 0


def test_absolute_paths_and_runs_of_older_versions_are_run_from_anywhere(project: Project, elsewhere: Path) -> None:
    file = project.folder / "runs" / "r" / "run.yaml"
    saved = yaml.safe_load(file.read_text())
    assert saved.pop("begun_in") == "../.."
    file.write_text(yaml.safe_dump(saved))
    for name in ("facts.tsv", "questions.jsonl"):
        shutil.copy(project.folder / name, elsewhere)
    assert main(["evaluate", str(file)]) == 0
    files = [f"dataset.{key}={project.folder / name}" for key, name in FILES]
    assert main(["evaluate", "dataset=custom", *files, "run.dir=runs/absolute", *QUICK]) == 0
    (elsewhere / "deeper").mkdir()
    with pytest.MonkeyPatch.context() as inside:
        inside.chdir("deeper")
        assert main(["evaluate", "../runs/absolute/run.yaml"]) == 0


def test_a_folder_that_is_removed_during_a_run_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ray removes the folder of a job."""
    removed = tmp_path / "removed"
    removed.mkdir()
    monkeypatch.chdir(removed)
    assert begun_in(RunFolder(tmp_path / "run")) == "../removed"
    removed.rmdir()
    assert begun_in(RunFolder(tmp_path / "run")) is None
