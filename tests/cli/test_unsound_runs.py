"""Replies that no parser can read, and failed questions, are named wherever the figures of a run are."""

from __future__ import annotations

import csv
import html
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import WORLD, FixedReply, serving
from tests.cli.support import Kgqa

Server = Callable[..., tuple[FixedReply, list[str]]]


@pytest.fixture
def unreadable(kgqa: Kgqa, model_server: Server) -> Kgqa:
    """A run whose model answers every prompt of SRP with a text that it did not ask for, in the folder `run`."""
    _, words = model_server()
    assert kgqa("evaluate", *WORLD, *words, "method=srp", "run.dir=run", "run.limit=4").code == 0
    return kgqa


def test_the_table_names_the_share_the_roles_and_the_next_command(unreadable: Kgqa) -> None:
    out = unreadable("score", "run").out
    assert "% unreadable" in out
    line = next(each for each in out.splitlines() if "could not be read, which may decide the score" in each)
    assert float(line.partition(" %")[0]) > 50
    role = next(each for each in out.splitlines() if "replies to srp." in each)
    assert role.startswith("  100.0 % of ")
    command = role.partition("(kgqa ")[2].rstrip(")")
    assert "error: " in unreadable(*command.split()).out


def test_json_has_the_share_and_the_roles(unreadable: Kgqa) -> None:
    found = json.loads(unreadable("score", "run", "json=true").out)
    (point,) = found["points"]
    assert point["unreadable_share"] == point["parse_failures"] / point["llm_calls"] > 0.5
    totals = {each["role"]: (each["calls"], each["unreadable"]) for each in found["unreadable_roles"]}
    assert sum(unreadable for _, unreadable in totals.values()) == point["parse_failures"]
    assert all(calls >= unreadable > 0 for calls, unreadable in totals.values())


def test_the_report_warns_and_names_the_roles(unreadable: Kgqa) -> None:
    said = unreadable("report", "run").out
    assert "could not be read, which may decide the score" in said
    page = Path("run/report.html").read_text()
    assert "of the model calls had a reply that could not be read, which may decide the score:" in page
    assert "replies to srp." in page
    assert "% unreadable</span>" in page


def test_a_sweep_names_the_configurations(kgqa: Kgqa, model_server: Server) -> None:
    _, words = model_server()
    sweep = ("sweep", *WORLD, *words, "method=srp", "method.depth=1,2", "run.dir=run", "run.limit=4")
    out = kgqa(*sweep).out
    assert "model calls with a reply that could not be read, which may decide the score of the configuration: " in out
    assert "configuration=" in out
    kgqa("report", "run")
    page = html.unescape(Path("run/report.html").read_text())
    lines = [line.strip().partition(" (kgqa show")[0] for line in out.splitlines() if "replies to srp." in line]
    assert lines, "of both configurations together"
    assert all(line in page for line in lines), "the page and the terminal count alike"


def test_readable_replies_are_said_in_one_line(evaluate: Kgqa) -> None:
    out = evaluate("llm=oracle", "method=cot").out
    assert "every reply of the model could be read" in out
    assert "unreadable" not in out


@pytest.fixture
def failed(kgqa: Kgqa, model_server: Server) -> Kgqa:
    """A run in which the server refuses one in ten calls, in the folder `run`."""
    _, words = model_server(refuses_every=10)
    limits = ("run.max_failed=1", "engine.concurrency=1")
    assert kgqa("evaluate", *WORLD, *words, *limits, "method=cot", "run.dir=run").code == 0
    return kgqa


def test_failed_questions_are_listed(failed: Kgqa) -> None:
    (run,) = json.loads(failed("ls", ".", "json=true").out)["runs"]
    assert run["failed"] > 0
    headings, row, *notes = failed("ls", ".").out.splitlines()
    assert row[headings.index("failed") :].split()[0] == str(run["failed"])
    assert "run.retry_failed=true" in notes[-1]
    assert "run.retry_failed=true asks again." in failed("report", "run").out
    page = html.unescape(Path("run/report.html").read_text())
    assert "run.retry_failed=true asks failed questions again." in page


def test_a_sweep_with_early_stopping_is_not_told_to_ask_its_failed_questions_again(
    kgqa: Kgqa, model_server: Server
) -> None:
    _, words = model_server(refuses_every=10)
    keys = ("run.early_stopping=8", "run.max_failed=1", "engine.shard_size=8", "engine.concurrency=1")
    said = kgqa("sweep", *WORLD, *words, *keys, "method=cot", "run.seed=1,2", "run.dir=run").out
    for text in (said, kgqa("ls", ".").out, kgqa("report", "run").out):
        assert "run.retry_failed=true is refused for" in " ".join(text.split())
    assert "run.retry_failed=true runs them again" not in said
    page = html.unescape(Path("run/report.html").read_text())
    assert "run.retry_failed=true asks failed questions again" not in page


class ShortContext(FixedReply):
    """A model server whose context is too short for any prompt of SRP, but not for those of CoT."""

    def reply(self, key: str, asked: bytes) -> tuple[int, object]:
        """Refuse prompts that name relations."""
        if b"relation" in asked.lower():
            return 400, {"error": {"message": "This model's maximum context length is 9 tokens"}}
        return super().reply(key, asked)


def test_a_sweep_names_the_configuration_whose_questions_failed(kgqa: Kgqa) -> None:
    with serving(ShortContext()) as url:
        sweep = ("method=cot,srp", "llm=endpoint", url, "run.max_failed=1", "run.max_equal_failures=null")
        shown = kgqa("sweep", *WORLD, *sweep, "run.dir=run")
    assert shown.code == 0, shown.err
    assert "20 questions failed, of 40 in 2 configurations (each counts its own):" in shown.out
    assert "run.retry_failed=true runs them again" not in shown.out
    assert "(ContextOverflow) is as long with run.retry_failed=true" in shown.out
    assert "every reply of the model could be read" not in shown.out, "failed calls had none"
    reported = kgqa("report", "run").out
    assert "asks again" not in reported
    assert "(ContextOverflow) is as long with run.retry_failed=true" in reported
    page = html.unescape(Path("run/report.html").read_text())
    assert "run.retry_failed=true asks failed questions again" not in page
    assert "(ContextOverflow) is as long with run.retry_failed=true" in page
    assert "(a prompt that is too long for it) fails again" in kgqa("ls", ".").out
    line = next(each for each in shown.out.splitlines() if "20 × ContextOverflow" in each)
    command = line.partition("(kgqa ")[2].rstrip(")").split()
    assert command[-1] == "configuration=1"
    assert "ContextOverflow" in kgqa(*command).out
    for words in (("score", "run"), ("compare", "run")):
        assert kgqa(*words, "table=table.csv").code == 0
        with Path("table.csv").open(newline="") as file:
            assert [row["failed"] for row in csv.DictReader(file)] == ["0", "20"]
    assert "20 questions each, 20 failed altogether," in kgqa("compare", "run").out


def test_failed_questions_are_in_the_sentences_of_the_report(failed: Kgqa) -> None:
    count = json.loads(Path("run/summary.json").read_text())["points"][0]["failed"]
    said = failed("report", "run").out
    assert count == 2
    assert "2 questions failed and count as wrong: kgqa evaluate run/run.yaml" in said


def test_failed_questions_are_in_a_comparison(failed: Kgqa) -> None:
    assert failed("evaluate", *WORLD, "method=cot", "llm=oracle", "run.dir=good").code == 0
    found = json.loads(failed("compare", "run", "good", "json=true").out)
    count = json.loads(Path("run/summary.json").read_text())["points"][0]["failed"]
    assert found["base"]["failed"] == count > 0
    assert [each["failed"] for each in found["points"]] == [0]
    assert f"20 questions, {count} failed, " in failed("compare", "run", "good").out
