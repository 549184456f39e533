"""`kgqa losses` and `kgqa show`: from a score to the cause of one wrong answer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pipeline import open_run
from tests.cli.support import Kgqa


def test_two_commands_lead_to_the_cause_of_a_wrong_answer(
    finished: Path, kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    losses = kgqa("losses", finished)
    assert (losses.code, losses.err) == (0, "")
    said = " ".join(losses.out.split())  # a title, and a heading, take as many lines as their columns leave them
    assert "questions by what became of their answers, in percent" in said
    assert "relation" in said.partition("right")[0]
    command = re.search(r"kgqa (show \S+ \S+) shows a question of the largest group", losses.out)
    assert command is not None
    shown = kgqa(*command[1].split())
    assert shown.code == 0
    assert re.search(r"^lost +\w+", shown.out, re.MULTILINE)
    assert shown.out.count("✗ the answer was lost here") == 1


def test_the_figures_are_those_of_the_tables(finished: Path, kgqa: Kgqa) -> None:
    figures = json.loads(kgqa("losses", finished, "by=[type,hops]", "groups=3", "json=true").out)
    assert len(figures["groups"]) == 3
    assert {"configuration", "type", "hops", "stage", "lost", "questions", "share"} == set(figures["shares"][0])
    question = figures["groups"][0]["example"]
    loss = json.loads(kgqa("show", finished, question, "json=true").out)["loss"]
    assert loss["stage"] == figures["groups"][0]["stage"]


def test_each_group_of_the_breakdown_has_its_losses(finished: Path, kgqa: Kgqa) -> None:
    (summary,) = json.loads((finished / "summary.json").read_text())["points"]
    for name, groups in summary["breakdown"].items():
        shares = json.loads(kgqa("losses", finished, f"by={name}", "json=true").out)["shares"]
        sizes = {str(share[name]): share["questions"] for share in shares}
        assert sizes.items() <= {group["value"]: group["questions"] for group in groups}.items()
    assert "mediators" in summary["breakdown"]
    assert "Did you mean 'mediators'?" in kgqa("losses", finished, "by=mediator").sentence


def test_prompts_are_printed_on_demand(finished: Path, kgqa: Kgqa) -> None:
    question = json.loads(kgqa("losses", finished, "json=true").out)["groups"][0]["example"]
    steps = json.loads(kgqa("show", finished, question, "json=true").out)["steps"]
    call = next(step for step in steps if step["kind"] == "llm")
    line = max(call["prompt"][0]["content"].split(), key=len)[:40]
    short, full = kgqa("show", finished, question).out, kgqa("show", finished, question, "calls=true").out
    one = kgqa("show", finished, question, f"step={call['number']}").out
    assert line not in short
    assert line in "".join(full.split()) or line in full
    assert len(short) < len(full)
    assert len(one) < len(full)


def test_a_question_of_a_sweep_is_shown_with_its_configuration(
    kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    run = tmp_path / "run"
    words = ["method.beam_width=1,2", "llm=oracle", "dataset.triples=1000", "run.limit=1", f"run.dir={run}"]
    assert kgqa("sweep", *words).code == 0
    question = open_run(run).questions.collect()["question_id"][0]
    assert "in configuration 0 of 0 to 1: configuration=N shows another" in kgqa("show", run, question).out
    assert "in configuration 1 of 0 to 1" in kgqa("show", run, question, "configuration=1").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["losses", "RUN", "by=typ"], "there is no group 'typ'"),
        (["losses", "RUN", "configuration=[]"], "configuration=[] names no configuration"),
        (["losses", "RUN", "RUN"], "name one run folder"),
        (["show", "RUN", "QUESTION", "step=999"], "the question has no step 999"),
    ],
)
def test_mistakes(words: list[str], message: str, finished: Path, kgqa: Kgqa) -> None:
    question = json.loads(kgqa("losses", finished, "json=true").out)["groups"][0]["example"]
    shown = kgqa(*({"RUN": str(finished), "QUESTION": question}.get(word, word) for word in words))
    assert shown.code == 2
    assert message in shown.err


def test_a_run_of_an_older_version_is_read(kgqa: Kgqa) -> None:
    run = Path(__file__).resolve().parents[1] / "first_edition_run"
    folder = run if (run / "run.yaml").exists() else next(run.rglob("run.yaml")).parent
    figures = json.loads(kgqa("losses", folder, "json=true").out)
    assert {group["stage"] for group in figures["groups"]} <= {"unknown"}


def test_the_losses_of_some_configurations_of_a_sweep(kgqa: Kgqa, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["method.depth=1,2,3", "llm=oracle", "llm.error_rate=0.4", "dataset.triples=2000", "run.limit=12"]
    words.append(f"run.dir={run}")
    assert kgqa("sweep", *words).code == 0

    def numbers(*words: str) -> set[int]:
        return {share["configuration"] for share in json.loads(kgqa("losses", run, "json=true", *words).out)["shares"]}

    one = json.loads(kgqa("losses", run, "json=true", "configuration=0").out)["groups"]
    everything = numbers()
    assert len(everything) > 1
    assert numbers("configuration=0") == {0}
    assert numbers("configuration=[0,1]") == everything & {0, 1}
    groups = json.loads(kgqa("losses", run, "json=true", "groups=100").out)["groups"]
    assert max(group["configurations"] for group in groups) > 1, "those of all configurations are counted together"
    assert all(group["configuration"] == 0 and "configurations" not in group for group in one)
    assert kgqa("losses", run, "configuration=7").sentence == f"{run} has no configuration 7: its highest number is 2"
    assert "has no configuration 'x'" in kgqa("losses", run, "configuration=x").sentence


@pytest.mark.parametrize("columns", [45, 80])
def test_a_narrow_terminal_shows_whole_columns_and_names_the_others(
    columns: int, finished: Path, kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    wide = kgqa("losses", finished, "by=type", "groups=1").out.partition("wrong questions lost")[0]
    assert "too wide" not in wide
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = kgqa("losses", finished, "by=type", "groups=1").out.partition("wrong questions lost")[0]
    table, _, left_out = shown.partition("too wide, see table=FILE:")
    assert max(map(len, shown.splitlines())) <= columns
    words = f"{table} {left_out}".replace(",", " ").replace('"', " ").split()
    headings = wide.splitlines()[1:5]
    missing = {word for line in headings for word in line.split() if word.isalpha()} - set(words)
    assert not missing, "each heading is whole, in the table or below it"
    assert bool(left_out) == (columns == 45), "else this says little"
    assert not left_out or '"' in left_out, "a column has the name `not shown`"


def test_groups_that_are_not_listed_are_counted(finished: Path, kgqa: Kgqa) -> None:
    everything = json.loads(kgqa("losses", finished, "groups=1000", "json=true").out)
    count = len(everything["groups"])
    assert count > 2
    assert not any("more group" in note for note in everything["notes"])
    listed = kgqa("losses", finished, "groups=1", "table=losses.csv")
    assert f"and {count - 1} more groups: groups={count} lists all" in listed.out
    assert len(Path("losses-2.csv").read_text().splitlines()) == 1 + count, "a file has all groups"


def test_each_reason_of_a_group_is_explained(finished: Path, kgqa: Kgqa) -> None:
    shown = kgqa("losses", finished, "groups=1000")
    reasons = {
        each["reason"] for each in json.loads(kgqa("losses", finished, "groups=1000", "json=true").out)["groups"]
    }
    assert reasons
    notes = shown.out.splitlines()
    assert [reason for reason in reasons if not any(line.startswith(f"{reason}: ") for line in notes)] == []
    assert any(line.startswith("in brackets: the role of the model call") for line in notes)


def test_an_unknown_question_is_answered_with_a_command(finished: Path, kgqa: Kgqa) -> None:
    first = json.loads(kgqa("losses", finished, "json=true").out)["groups"][0]["example"]
    sentence = kgqa("show", finished, "nosuch").sentence
    assert f"kgqa view {finished} lists all." in sentence
    named = re.search("The first finished question is '([^']+)'", sentence)
    assert named is not None
    assert kgqa("show", finished, named[1]).code == 0
    assert f"Did you mean '{first}'?" in kgqa("show", finished, first + "x").sentence
