"""`kgqa ls`: the runs in folders, their tags and notes, and what happens to folders that cannot be read."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from upath import UPath

from pipeline.traces.folder import RunFolder
from tests.cli.conftest import WORLD
from tests.cli.support import Kgqa
from tests.llm.misbehaving_server import body, serving

FIRST_EDITION = Path(__file__).resolve().parents[1] / "first_edition_run"


def listed(kgqa: Kgqa, *words: str) -> list[dict[str, Any]]:
    shown = kgqa("ls", *words, "json=true")
    assert shown.code == 0, shown.err
    runs: list[dict[str, Any]] = json.loads(shown.out)["runs"]
    return runs


def copy(finished: Path, name: str, **head: object) -> Path:
    """Copy the files that `kgqa ls` may read, with changes to `run.yaml`, and the names of the shards."""
    folder = Path("runs") / name
    (folder / "traces").mkdir(parents=True)
    for shard in (finished / "traces").iterdir():
        (folder / "traces" / shard.name).touch()
    shutil.copy(finished / "summary.json", folder)
    run = yaml.safe_load((finished / "run.yaml").read_text())
    (folder / "run.yaml").write_text(yaml.safe_dump({**run, **head}, sort_keys=False))
    return folder


def test_one_line_a_run_the_newest_first(finished: Path, kgqa: Kgqa) -> None:
    copy(finished, "old", started="2025-03-01T10:00:00+0000", tags=["a", "b"], note="first\ntry")
    copy(finished, "new", started="2025-03-01T11:30:00+0200")
    copy(finished, "newest", started="2025-03-01T10:00:01+0000")
    summary = json.loads((finished / "summary.json").read_text())
    (point,) = summary["points"]
    low, high = point["intervals"]["hits_at_1"]
    headings, newest, *rest, meaning = kgqa("ls").out.splitlines()
    assert [line.split()[2] for line in (newest, *rest)] == ["runs/newest", "runs/old", "runs/new"]
    assert headings.split()[1:9] == ["run", "method", "data", "questions", "Hits@1", "failed", "calls", "tokens"]
    assert headings.split()[9:] == ["state", "tags", "note"]
    assert f"  {100 * point['hits_at_1']:.1f} ({100 * low:.1f}–{100 * high:.1f})  " in newest
    assert "srp (oracle)" in newest
    assert f"  {summary['logical_llm_calls']:,} " in newest
    assert f"  {point['tokens']:,} " in newest
    assert datetime.fromisoformat(listed(kgqa)[1]["started"]) == datetime(2025, 3, 1, 10, tzinfo=UTC)
    assert rest[0].endswith("  complete  a,b   first try")
    assert meaning.startswith("Hits@1 in percent (95 % interval)")


def test_the_figures_are_those_of_the_summary(finished: Path, kgqa: Kgqa) -> None:
    copy(finished, "one")
    (run,) = listed(kgqa)
    summary = json.loads((finished / "summary.json").read_text())
    (point,) = summary["points"]
    assert run == {
        "run": "runs/one",
        "started": run["started"],
        "methods": ["srp"],
        "datasets": ["synthetic"],
        "labels": ["oracle"],
        "models": [],
        "retrievers": ["lexical"],
        "departures": [],
        "configurations": 1,
        "complete": True,
        "state": "complete",
        "finished_shards": None,
        "stopped": None,
        "questions": 20,
        "failed": 0,
        "retry_refusals": [],
        "hits_at_1": point["hits_at_1"],
        "interval": point["intervals"]["hits_at_1"],
        "confidence": 0.95,
        "best_configuration": 0,
        "rivals": 1,
        "rivals_are_seeds": False,
        "older_replies": 0,
        "logical_llm_calls": summary["logical_llm_calls"],
        "physical_llm_calls": summary["physical_llm_calls"],
        "tokens": point["tokens"],
        "tags": [],
        "note": None,
    }


@pytest.mark.parametrize("is_complete", [True, False])
def test_the_language_models_of_a_run_are_named(finished: Path, kgqa: Kgqa, is_complete: bool) -> None:
    models = ["llama-8b", "llama-70b"]
    served = {**yaml.safe_load((finished / "run.yaml").read_text())["served"][0], "label": None, "model": models[0]}
    folder = copy(finished, "one", served=[{**served, "roles": {"srp.judge": models[1]}}])
    summary = json.loads((folder / "summary.json").read_text())
    (point,) = summary["points"]
    written = {**summary, "points": [{**point, "label": None}], "models": models}
    del written["digest"]
    RunFolder(UPath(folder)).write_summary(written)
    if not is_complete:
        (folder / "summary.json").unlink()
        shutil.copytree(finished / "traces", folder / "traces", dirs_exist_ok=True)
    assert listed(kgqa)[0]["models"] == models
    assert "srp (llama-8b, llama-70b)" in kgqa("ls").out.splitlines()[1]


def test_only_two_files_of_a_run_are_read(finished: Path, kgqa: Kgqa) -> None:
    folder = copy(finished, "one")
    (folder / "traces" / "shard-00000.parquet").write_bytes(b"not a table")
    assert [run["run"] for run in listed(kgqa)] == ["runs/one"]


def test_a_sweep_has_the_number_of_its_configurations_and_its_best_score(kgqa: Kgqa) -> None:
    kgqa("sweep", *WORLD, "llm=oracle", "llm.error_rate=0.5", "method=cot", "method.depth=1,2", "run.seed=1,2")
    summary = json.loads(next(Path("runs").glob("*/summary.json")).read_text())
    best = max(point["hits_at_1"] for point in summary["points"])
    (run,) = listed(kgqa)
    assert (run["configurations"], run["hits_at_1"]) == (4, best)
    assert summary["points"][run["best_configuration"]]["hits_at_1"] == best
    line = kgqa("ls").out.splitlines()[1]
    assert "cot × 4 (oracle)" in line
    assert f"best of 4: {100 * best:.1f} (" in line


def test_the_best_of_several_seeds_is_called_so(kgqa: Kgqa) -> None:
    kgqa("sweep", *WORLD, "llm=oracle", "llm.error_rate=0.5", "method=cot", "run.seed=1,2,3")
    (run,) = listed(kgqa)
    assert (run["rivals"], run["rivals_are_seeds"]) == (3, True)
    assert "best of 3 seeds: " in kgqa("ls").out.splitlines()[1]


@pytest.mark.parametrize("words", [["method.depth=1,1"], ["run.seed=1,2", "method.depth=1,1"]])
def test_equal_configurations_are_no_seeds(words: Sequence[str], kgqa: Kgqa) -> None:
    kgqa("sweep", *WORLD, "llm=oracle", *words)
    assert listed(kgqa)[0]["rivals_are_seeds"] is False


def test_runs_that_are_not_complete_and_runs_of_an_older_version(finished: Path, kgqa: Kgqa) -> None:
    broken_off = copy(finished, "broken-off")
    (broken_off / "summary.json").unlink()
    shutil.copytree(finished / "traces", broken_off / "traces", dirs_exist_ok=True)
    shutil.copytree(FIRST_EDITION, "runs/group/first")
    first, second = sorted(listed(kgqa), key=lambda run: str(run["run"]))
    assert (first["run"], first["complete"], first["hits_at_1"]) == ("runs/broken-off", False, None)
    assert (first["methods"], first["datasets"], first["labels"]) == (["srp"], ["synthetic"], ["oracle"])
    assert (second["run"], second["complete"], second["questions"]) == ("runs/group/first", True, 6)
    assert first["finished_shards"] == len(list((broken_off / "traces").iterdir()))
    line = kgqa("ls", "runs/broken-off").out.splitlines()[1]
    assert "  –  " in line
    assert f"not complete, {first['finished_shards']} shard" in line
    assert first["questions"] == 20, "those in its finished shards"
    with RunFolder(broken_off).held():
        assert f"still running, {first['finished_shards']} shard" in kgqa("ls", "runs/broken-off").out
        assert "runs/broken-off is still running: only the 20 questions" in kgqa("score", "runs/broken-off").out
    assert "runs/broken-off is not complete: only the 20 questions" in kgqa("score", "runs/broken-off").out
    assert "  20  " in line


def test_a_run_that_an_error_has_stopped_says_which(kgqa: Kgqa) -> None:
    with serving(body('{"error": "who are you?"}', status=401)) as url:
        words = ("method=cot", "llm=endpoint", f"llm.base_urls=[{url}]", "llm.model=llama", "run.max_equal_failures=2")
        assert kgqa("evaluate", *words, *WORLD, "run.dir=runs/stopped").code == 2
    (run,) = listed(kgqa)
    assert run["stopped"].startswith("the first 2 questions to finish all failed with the same kind of error")
    assert "answered 401: who are you?" in run["stopped"]
    assert f"runs/stopped has stopped, because {run['stopped']}" in kgqa("ls").out.splitlines()


def test_a_run_has_the_same_names_before_and_after_it_is_complete(kgqa: Kgqa) -> None:
    words = ("method=cot", "llm=oracle", "run.limit=2", "method.name=mine", "dataset.name=ours", "run.dir=runs/named")
    assert kgqa("evaluate", *words).code == 0
    (complete,) = listed(kgqa)
    Path("runs/named/summary.json").unlink()
    (broken_off,) = listed(kgqa)
    assert (complete["state"], broken_off["state"]) == ("complete", "not complete")
    for run in (complete, broken_off):
        assert (run["methods"], run["datasets"]) == (["mine"], ["ours"])


def test_damaged_folders_are_named_and_the_others_listed(finished: Path, kgqa: Kgqa) -> None:
    copy(finished, "good")
    for name, file, text in (
        ("a", "run.yaml", "points: ["),
        ("b", "run.yaml", "- 3"),
        ("c", "summary.json", '{"points": ['),
        ("d", "summary.json", '{"points": [{}]}'),
        ("e", "run.yaml", "started: never"),
    ):
        (copy(finished, name) / file).write_text(text)
    copy(finished, "d/batch-001")
    Path("runs/f/traces").mkdir(parents=True)
    (copy(finished, "g") / "run.yaml").unlink()
    shown = kgqa("ls")
    assert shown.code == 0
    found = {line.split()[2] for line in shown.out.splitlines() if line.startswith("20")}
    assert found == {"runs/d/batch-001", "runs/good"}
    said = [line for line in shown.out.splitlines() if line.startswith("runs/")]
    assert [line.partition(" (")[0] for line in said] == [
        "runs/a/run.yaml is not the run.yaml of a run",
        "runs/b/run.yaml is not the run.yaml of a run",
        "runs/c/summary.json is damaged",
        "runs/d/summary.json is damaged",
        "runs/e cannot be listed: its run.yaml or its summary.json is not that of a run. Restore run.yaml from a copy, "
        "or remove summary.json, and kgqa evaluate runs/e/run.yaml writes it again",
        "runs/f has no run.yaml: its run has not begun, or the file is lost",
        "runs/g has no run.yaml: its run has not begun, or the file is lost",
    ]


def test_folders_without_runs(kgqa: Kgqa) -> None:
    assert kgqa("ls").out == "no run in runs\n"
    assert kgqa("ls", "nowhere").sentence == "there is no folder nowhere"
    Path("empty").mkdir()
    assert kgqa("ls", "empty", "tag=x").out == "no run with the tag x in empty\n"
    assert listed(kgqa, "empty") == []


def test_a_link_to_a_folder_above_is_not_followed(finished: Path, kgqa: Kgqa) -> None:
    copy(finished, "group/one")
    Path("runs/group/loop").symlink_to(Path("runs").absolute())
    assert [run["run"] for run in listed(kgqa)] == ["runs/group/one"]


@pytest.fixture
def bucket(finished: Path) -> Iterator[UPath]:
    """An object store with a run, a damaged one and a run in a group."""
    bucket = UPath("memory://kgqa-ls")
    for name in ("one", "damaged", "group/two"):
        for file in ("run.yaml", "summary.json"):
            (bucket / name / file).write_bytes((finished / file).read_bytes())
    (bucket / "damaged" / "summary.json").write_bytes(b"{")
    yield bucket
    bucket.fs.rm("/kgqa-ls", recursive=True)


def test_runs_in_an_object_store(bucket: UPath, kgqa: Kgqa) -> None:
    runs = listed(kgqa, str(bucket))
    assert sorted(run["run"] for run in runs) == [f"{bucket}/group/two", f"{bucket}/one"]
    assert "damaged/summary.json is damaged" in kgqa("ls", str(bucket)).out
    assert kgqa("ls", "memory://kgqa-nowhere").sentence == "there is no folder memory://kgqa-nowhere"


def test_tags_and_the_note_may_change_when_a_run_is_resumed(evaluate: Kgqa, kgqa: Kgqa) -> None:
    def labels() -> tuple[list[str], str | None]:
        (run,) = listed(kgqa, "run")
        return run["tags"], run["note"]

    assert evaluate("run.tags=[a,b]", "run.note=first try").code == 0
    traces = {file.name: file.read_bytes() for file in Path("run/traces").iterdir()}
    assert labels() == (["a", "b"], "first try")
    assert evaluate("run.tags=[c]").code == 0
    assert labels() == (["c"], "first try")
    assert evaluate().code == 0
    assert labels() == (["c"], "first try")
    assert kgqa("evaluate", "run/run.yaml", "run.tags=[]", "run.note=second try").code == 0
    assert labels() == ([], "second try")
    assert kgqa("evaluate", "run/run.yaml").code == 0
    assert labels() == ([], "second try")
    assert {file.name: file.read_bytes() for file in Path("run/traces").iterdir()} == traces


def test_tags_and_notes_do_not_change_the_default_run_folder(kgqa: Kgqa) -> None:
    for words in ((), ("run.tags=[a]",), ("run.tags=[a,b]", "run.note=x")):
        assert kgqa("evaluate", *WORLD, *words).code == 0
    (run,) = listed(kgqa)
    assert (run["tags"], run["note"]) == (["a", "b"], "x")


def test_a_tag_selects_runs(finished: Path, kgqa: Kgqa) -> None:
    copy(finished, "one", tags=["a", "b"])
    copy(finished, "two", tags=["b"])
    copy(finished, "three", tags=["3"])
    assert [run["run"] for run in listed(kgqa, "tag=a")] == ["runs/one"]
    assert {run["run"] for run in listed(kgqa, "runs", "tag=b")} == {"runs/one", "runs/two"}
    assert [run["run"] for run in listed(kgqa, "tag=3")] == ["runs/three"]
    assert kgqa("ls", "tag=").sentence == "tag= is empty: name a tag, or leave out the key"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("run.tags=a", "run.tags='a' is wrong: input should be a list, written run.tags=[a,b]"),
        ("run.note=3", "run.note=3 is wrong: input should be a text"),
        (
            "run.tags=['a,b',c]",
            "run.tags=['a,b', 'c'] is wrong: a tag has no comma, which separates the tags in the list of kgqa ls",
        ),
    ],
)
def test_wrong_tags(words: str, sentence: str, evaluate: Kgqa) -> None:
    assert evaluate(words).sentence == sentence


def test_the_time_of_listing_does_not_grow_with_the_configurations_of_a_run(
    finished: Path, kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`points` of a finished run are not parsed: they are most of run.yaml."""
    folder = copy(finished, "one")
    before, found, _ = (folder / "run.yaml").read_text().partition("\npoints:")
    assert found
    (folder / "run.yaml").write_text(f"{before}{found} [ not read")
    assert [run["run"] for run in listed(kgqa)] == ["runs/one"]


def test_a_run_without_one_score_leaves_the_columns_of_the_others(kgqa: Kgqa) -> None:
    words = ("llm=oracle", "method=cot", "run.limit=4")
    kgqa("evaluate", *WORLD, *words, "run.dir=runs/one")
    kgqa("sweep", "dataset.seed=1,2", "dataset.triples=2000", *words, "run.dir=runs/two")
    assert kgqa("ls", "table=t.csv").code == 0
    rows = list(csv.DictReader(Path("t.csv").read_text("utf-8").splitlines()))
    scores = {row["run"]: (row["Hits@1"], row["Hits@1 low"], row["Hits@1 high"]) for row in rows}
    assert scores == {"runs/one": ("100", "51.0", "100"), "runs/two": ("", "", "")}
