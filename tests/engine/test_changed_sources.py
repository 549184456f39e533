"""No result outlives its code: a run notices an edit of a method, of a simulator and of the files that they use."""

from __future__ import annotations

import html
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.cli.main import main
from pipeline.engine import sources
from pipeline.engine.retry_advice import retry_refusals
from tests.engine.user_project import Project
from tests.support import sampled


@pytest.mark.parametrize("file", ["capital.py", "helper.py"])
def test_a_changed_source_of_the_users_is_refused(project: Project, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code, words = project.write_method(monkeypatch)
    (code / "unrelated.py").write_text("")
    project.run(*words)
    assert project.summary()["points"][0]["hits_at_1"] == 1
    (code / "unrelated.py").write_text("x = 1\n")
    assert "nothing to run" in project.run(*words)
    with (code / file).open("a") as source:
        source.write("\n# another way\n")
    assert "the source of capital.Capital has changed" in project.run(*words, code=2)
    project.run(*words, "run.restart=true")


def test_a_new_key_of_an_edited_class_is_not_asked_for_with_a_saved_configuration(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, words = project.write_method(monkeypatch)
    project.run(*words)
    project.run("llm=similarity", folder="runs/other")
    source = (code / "capital.py").read_text()
    (code / "capital.py").write_text(source.replace("    name: str\n", "    name: str\n    width: int\n"))
    sys.modules.pop("capital", None)
    capsys.readouterr()
    assert main(["evaluate", "runs/r/run.yaml", "run.trust=true"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "method.width must be given" in said
    assert said.endswith(
        "The source of capital.Capital has changed since the run was begun: give the command of the run in place of "
        "this file"
    )
    assert main(["doctor", "runs/r/run.yaml", "run.trust=true"]) == 2
    assert "The source of capital.Capital has changed" in " ".join(capsys.readouterr().err.split())
    assert main(["compare", "runs/r", "runs/other", "noise.questions=3", "run.trust=true"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "noise.questions runs the base again, but the source of capital.Capital has changed" in said


@pytest.mark.parametrize("broken", ["", "class Capital:", "import nowhere"], ids=["renamed", "half", "import"])
def test_a_class_that_cannot_be_imported_is_named_with_a_saved_configuration(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broken: str
) -> None:
    code, words = project.write_method(monkeypatch)
    project.run(*words)
    project.run("llm=similarity", folder="runs/other")
    (code / "capital.py").write_text(broken)
    for command in (
        ("evaluate", "runs/r/run.yaml", "run.trust=true"),
        ("compare", "runs/r", "runs/other", "noise.questions=3", "run.trust=true"),
    ):
        sys.modules.pop("capital", None)
        capsys.readouterr()
        assert main([*command]) == 2
        assert "method._target_=capital.Capital cannot be imported" in capsys.readouterr().err


def test_the_files_of_a_method_are_found_without_running_what_it_never_imports(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _ = project.write_method(monkeypatch)
    (code / "capital.py").write_text("def later():\n    import kernels.fast\n    import unreadable\n")
    (code / "kernels").mkdir()
    (code / "kernels" / "__init__.py").write_text("raise RuntimeError('no device')\n")
    (code / "kernels" / "fast.py").write_text("")
    (code / "unreadable.py").write_text("print 'of Python 2'\n")
    assert sources._user_files(["capital"]) == {
        "capital": code / "capital.py",
        "kernels.fast": code / "kernels" / "fast.py",
        "kernels": code / "kernels" / "__init__.py",
        "unreadable": code / "unreadable.py",
    }


@pytest.mark.parametrize("file", ["own/__init__.py", "shared/__init__.py", "shared/rules.py"])
def test_a_changed_source_in_another_package_of_the_users_is_refused(
    project: Project, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, words = project.write_method(monkeypatch)
    for module in ("own", "own.capital", "shared", "shared.rules"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    for package in ("own", "shared"):
        (code / package).mkdir()
        (code / package / "__init__.py").write_text("")
    (code / "helper.py").rename(code / "shared" / "rules.py")
    (code / "own" / "capital.py").write_text((code / "capital.py").read_text().replace("helper", "shared.rules"))
    words = (*words, "method._target_=own.capital.Capital")
    project.run(*words)
    assert "nothing to run" in project.run(*words)
    with (code / file).open("a") as source:
        source.write("\n# another way\n")
    assert "the source of own.capital.Capital has changed" in project.run(*words, code=2)


def said_by(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    capsys.readouterr()
    assert main([*command]) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.exhaustive
@pytest.mark.parametrize("failing", ["topics[0] == 'Borland'", "True"])
def test_the_way_on_after_an_edit_of_a_failing_method_is_said_and_works(
    project: Project, failing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, words = project.write_method(monkeypatch)
    file = code / "capital.py"
    right = file.read_text()
    file.write_text(right.replace("        found", f"        assert not ({failing})\n        found"))
    words = (*words, "run.max_failed=1", "run.max_equal_failures=null")
    said = project.run(*words)
    file.write_text(right)
    afterwards = [said_by(capsys, *command) for command in (["ls"], ["report", "runs/r"])]
    page = html.unescape((project.folder / "runs/r/report.html").read_text())
    if failing == "True":
        assert "after an edit of capital.Capital, the same command is enough" in said
        (project.folder / "runs/r/drafts/shard-00007.a.jsonl").write_text("{}\n")
        assert "after an edit of capital.Capital, run.restart=true" in said_by(capsys, "score", "runs/r")
        (project.folder / "runs/r/drafts/shard-00007.a.jsonl").unlink()
        assert not any("run.retry_failed=true is refused" in text for text in (*afterwards, page))
    else:
        way = f"another run.dir with 'run.reuse=[{project.folder}/runs/r]' takes over the calls of its finished shards"
        refused = project.run(*words, "run.retry_failed=true", code=2)
        assert "so run.retry_failed=true would mix the answers of both" in refused
        assert way in refused
        assert way in said
        refusal = "after an edit of capital.Capital, run.retry_failed=true is refused"
        for text in (*afterwards, page):
            assert refusal in text
            assert "takes over the calls of its finished shards" in text
        words = (*words, "run.dir=runs/new", "run.reuse=[runs/r]")
    monkeypatch.delitem(sys.modules, "capital")
    project.run(*words)


def configs(method: str, early_stopping: int | None = None) -> list[dict[str, Any]]:
    return [{"method": {"_target_": method}, "run": {"early_stopping": early_stopping}}]


@pytest.mark.parametrize("counts", [[(1, 3)], [(3, 3)]])
def test_a_sweep_with_early_stopping_is_not_told_to_retry_its_failed_questions(counts: list[tuple[int, int]]) -> None:
    (refusal,) = retry_refusals("runs/r", configs("pipeline.methods.srp.SRP", 32), {}, counts, None)
    assert refusal.startswith("run.retry_failed=true is refused for runs/r, whose run.early_stopping has decided")
    assert retry_refusals("runs/r", configs("pipeline.methods.srp.SRP", 32), {}, [(0, 3)], None) == []


def test_a_run_of_another_version_is_not_told_to_retry_its_failed_questions() -> None:
    saved = {"id": "1", "versions": {"kgqa-pipeline": "0.0.1"}}
    (refusal,) = retry_refusals("runs/r", configs("pipeline.methods.srp.SRP"), saved, [(1, 3)], None)
    assert refusal.startswith("kgqa-pipeline 0.0.1 began runs/r, so run.retry_failed=true is refused: run.restart=true")
    assert (
        retry_refusals("runs/r", configs("pipeline.methods.srp.SRP"), {"versions": saved["versions"]}, [(1, 3)], None)
        == []
    )


def test_an_unfinished_run_of_another_version_is_not_told_to_go_on(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.run()
    file = project.folder / "runs/r/run.yaml"
    file.write_text(file.read_text().replace(f"kgqa-pipeline: {version('kgqa-pipeline')}", "kgqa-pipeline: 0.0.1"))
    (project.folder / "runs/r/traces/shard-00001.parquet").unlink()
    capsys.readouterr()
    assert main(["score", "runs/r"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "kgqa-pipeline 0.0.1 began it, and this version does not continue it: run.restart=true deletes" in said
    assert "run.yaml continues it" not in said


@pytest.mark.parametrize("counts", [[(0, 3), (0, 3)], [(3, 3), (3, 3)]])
def test_nothing_is_refused_if_no_question_or_every_one_failed(counts: list[tuple[int, int]]) -> None:
    assert retry_refusals("runs/r", configs("capital.Capital"), {}, counts, None) == []
    assert retry_refusals("runs/r", configs("capital.Capital"), {}, [*counts, (1, 3)], None) != []


def test_compare_and_report_say_that_the_source_of_a_method_differs(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, words = project.write_method(monkeypatch)
    project.run(*words, folder="runs/old")
    with (code / "helper.py").open("a") as source:
        source.write("\n# another way\n")
    project.run(*words, folder="runs/new")
    capsys.readouterr()
    assert main(["compare", "runs/old", "runs/new"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "runs/old and runs/new ran with different sources of capital.Capital" in said
    assert main(["report", "runs/old", "runs/new", "output=report.html"]) == 0
    assert "used different sources of capital.Capital, which" in Path("report.html").read_text()


def test_another_version_of_the_project_is_refused(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.run()
    monkeypatch.setattr("pipeline.engine.run_description._version", lambda package: "99.0")
    assert "and this is 99.0" in project.run(code=2)


def test_a_changed_simulator_of_the_users_is_refused(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replies of a simulated model decide every answer."""
    file, words = project.write_simulator(monkeypatch, "my_simulator")
    project.run(*words)
    assert "every shard is finished already" in project.run(*words)
    file.write_text("# writes other replies\n")
    assert "the source of my_simulator has changed" in project.run(*words, code=2)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("method=srp", "llm=similarity"), "pipeline.methods.srp.SRP, or one of its prompts,"),
        (("method=cot", "llm=oracle"), "pipeline.simulation.oracle.Oracle"),
    ],
)
@pytest.mark.parametrize("finished", sampled([True, False], every=2))
def test_an_edited_method_or_simulator_of_the_project_is_refused(
    project: Project, words: tuple[str, ...], named: str, finished: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.run(*words)
    if not finished:
        (project.folder / "runs/r/summary.json").unlink()
        (project.folder / "runs/r/traces/shard-00002.parquet").unlink()
    part = "simulation" if "Oracle" in named else "methods"
    before = sources._own_digest
    monkeypatch.setattr(sources, "_own_digest", lambda module: before(module) + "x" * (part in module))
    said = project.run(*words, code=2)
    assert f"the source of {named}" in said
    assert "has changed since" in said
    assert "run.restart=true" in said
    project.run(*words, "run.restart=true")


def test_a_run_of_an_older_version_without_these_digests_is_resumed(project: Project) -> None:
    project.run("method=srp", "llm=similarity")
    file = project.folder / "runs/r/run.yaml"
    saved = yaml.safe_load(file.read_text())
    saved["points"][0]["sources"] = {}
    file.write_text(yaml.safe_dump(saved))
    assert "nothing to run" in project.run("method=srp", "llm=similarity")


@pytest.mark.exhaustive
def test_the_digest_of_a_method_is_of_its_files_and_its_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edit of a prompt or of a module of the method changes it, and an edit of another method does not."""
    package = tmp_path / "pipeline"
    shutil.copytree(Path(sources.__file__).parents[1], package, ignore=shutil.ignore_patterns("bundled_model"))

    def digest(target: str) -> str:
        code = f"from pipeline.engine.sources import _own_digest; print(_own_digest({target!r}))"
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout

    def edit(file: str) -> None:
        with (package / file).open("a") as source:
            source.write("\n# edited\n")

    srp, before = "pipeline.methods.srp.method", digest("pipeline.methods.srp.method")
    edit("methods/arg/prompts.yaml")
    edit("report/render_page.py")
    assert digest(srp) == before
    for file in ("methods/srp/prompts.yaml", "methods/srp/judge.py", "methods/parsing.py"):
        edit(file)
        assert digest(srp) != before, file
        before = digest(srp)
