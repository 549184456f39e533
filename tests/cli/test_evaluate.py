"""`kgqa evaluate`: user-defined components, printed output, and secrets."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from pipeline.config import conf_dir
from tests.cli.conftest import FixedReply, serving
from tests.cli.support import Kgqa

METHOD = '''
from dataclasses import dataclass

from pipeline.types import Answer, Prediction


@dataclass(frozen=True, kw_only=True)
class Mine:
    """Gives the same answer to every question, and fails on every fourth."""

    name: str
    word: str

    async def answer(self, question, tools):
        if int(question.id[-2:]) % 4 == 3:
            raise RuntimeError("failed on purpose")
        return Answer((Prediction(self.word),))
'''


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A method and its configuration in the user's own folders; returns the overrides that use them."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "outside_method.py").write_text(METHOD)
    monkeypatch.syspath_prepend(str(tmp_path / "code"))  # what PYTHONPATH does
    (tmp_path / "conf" / "method").mkdir(parents=True)
    (tmp_path / "conf" / "method" / "mine.yaml").write_text("_target_: outside_method.Mine\nname: mine\nword: Ada\n")
    return [f"hydra.searchpath=[file://{tmp_path}/conf]", "method=mine"]


def test_a_user_defined_method(outside: list[str], evaluate: Kgqa, kgqa: Kgqa, tmp_path: Path) -> None:
    ran = evaluate(*outside, "method.word=Bob", "run.max_failed=0.25")
    assert ran.code == 0
    assert "mine" in ran.out
    rows = pl.read_parquet(tmp_path / "run" / "traces" / "*.parquet")
    assert set(rows["method"]) == {"mine"}
    assert set(rows.filter(pl.col("status") == "ok")["answers"].list.first()) == {"Bob"}
    assert kgqa("evaluate", "run/run.yaml").out == ran.out, "run.yaml needs no search path"


def test_a_method_that_fails_on_some_questions_does_not_end_the_run(
    outside: list[str], evaluate: Kgqa, tmp_path: Path
) -> None:
    ran = evaluate(*outside)
    assert ran.code == 3
    assert "5 failed" in ran.out
    rows = pl.read_parquet(tmp_path / "run" / "traces" / "*.parquet")
    assert rows["status"].value_counts().sort("status").rows() == [("failed", 5), ("ok", 15)]
    (error,) = set(rows["error"].drop_nulls())
    assert re.fullmatch(r"RuntimeError: failed on purpose \(outside_method\.py:\d+\)", error)


@pytest.mark.parametrize("code", [0, 1])
def test_a_module_that_exits_while_it_is_imported_is_an_error(
    code: int, outside: list[str], evaluate: Kgqa, tmp_path: Path
) -> None:
    (tmp_path / "code" / "exiting.py").write_text(f"import sys\nsys.exit({code})\n")
    said = evaluate(*outside, "method._target_=exiting.Mine").sentence
    assert said.startswith(f"method._target_=exiting.Mine cannot be imported: SystemExit: {code} (")
    assert "exiting.py, line 2)" in said


def test_a_method_whose_name_is_no_text_is_refused_before_any_call(outside: list[str], evaluate: Kgqa) -> None:
    assert evaluate(*outside, "method.name=5").sentence == "method.name=5 is wrong: input should be a text"


def test_a_wrong_choice_lists_user_defined_ones(outside: list[str], evaluate: Kgqa) -> None:
    said = evaluate(outside[0], "method=mien").sentence
    known = sorted(["mine", *(file.stem for file in (conf_dir() / "method").glob("*.yaml"))])
    assert said == (
        f"there is no method=mien. Did you mean 'mine'? Known: {', '.join(known)}; "
        "choices of your own are searched in KGQA_CONF, by default ./conf, and in hydra.searchpath=[file://FOLDER]"
    )
    assert evaluate(*outside, "method.wrod=x").sentence == "unknown key 'method.wrod'. Did you mean 'method.word'?"


@pytest.mark.parametrize("folder", ["conf", "choices"])
@pytest.mark.usefixtures("outside")
def test_choices_in_a_folder_of_the_users_need_no_search_path(
    folder: str, evaluate: Kgqa, kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if folder != "conf":
        (tmp_path / "conf").rename(tmp_path / folder)
        monkeypatch.setenv("KGQA_CONF", folder)
    assert evaluate("method=mine", "run.max_failed=0.25").code == 0
    assert "mine" in kgqa("evaluate", "method=mine", "--help").out
    assert kgqa("sweep", "method=mine", "method.word=a,b", "run.limit=2", "run.dir=sweep", "run.max_failed=1").code == 0
    assert evaluate("method=mien").sentence.startswith("there is no method=mien. Did you mean 'mine'?")


def test_a_missing_folder_in_the_environment_is_named(
    evaluate: Kgqa, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KGQA_CONF", f"{tmp_path}/nothing")
    assert evaluate().sentence == f"KGQA_CONF names {tmp_path}/nothing, which is not a folder"


def test_a_method_with_a_syntax_error_is_named(outside: list[str], evaluate: Kgqa, tmp_path: Path) -> None:
    sys.modules.pop("outside_method", None)
    (tmp_path / "code" / "outside_method.py").write_text("def")
    assert "method._target_=outside_method.Mine cannot be imported: invalid syntax" in evaluate(*outside).sentence


def test_an_exception_while_a_method_is_imported_is_a_sentence(
    outside: list[str], evaluate: Kgqa, tmp_path: Path
) -> None:
    sys.modules.pop("outside_method", None)
    file = tmp_path / "code" / "outside_method.py"
    file.write_text("from pipeline import Template\n\n\nclass Mine:\n    template = Template(syst='')\n")
    said = evaluate(*outside).sentence
    assert said.startswith("method._target_=outside_method.Mine cannot be imported: TypeError: Template.__init__() ")
    assert said.endswith(f" ({file}, line 5)")


SLOTS = """
from dataclasses import dataclass

from pipeline import Answer, Prompt, Sampling, Template


class Ask(Prompt[str]):
    role = "mine.ask"
    template = Template(user="{{question}} {{extra}}")

    def inputs(self):
        return {"question": "Who?"}

    def parse(self, text):
        return text

    def fallback(self, text):
        return text


@dataclass
class Mine:
    name: str
    word: str

    async def answer(self, question, tools):
        await tools.llm.ask(Ask(), Sampling())
        return Answer(())
"""


def test_a_slot_that_a_prompt_does_not_fill_is_named(outside: list[str], evaluate: Kgqa, tmp_path: Path) -> None:
    sys.modules.pop("outside_method", None)
    (tmp_path / "code" / "outside_method.py").write_text(SLOTS)
    ran = evaluate(*outside, "llm=oracle")
    assert "LookupError: Ask.inputs() has no text for the slot {{extra}} of its template" in ran.out + ran.err


def test_the_last_line_says_how_many_rows_could_not_be_read(kgqa: Kgqa, tmp_path: Path) -> None:
    question = {"question": "Who is Ann's son?", "topic_entities": ["Ann"], "answers": ["Bob"]}
    rows = [json.dumps({"id": f"q{number}", **question}) for number in range(6)]
    (tmp_path / "graph.tsv").write_text("Ann\tson\tBob\n")
    words = ["evaluate", "dataset=custom", "dataset.triples=graph.tsv", "dataset.questions=rows.jsonl", "run.dir=run"]
    words += ["evaluation.bootstrap_resamples=100"]
    (tmp_path / "rows.jsonl").write_text("\n".join([*rows[:3], '{"id": "half', *rows[3:], '{"id": "q9"}']))
    ran = kgqa(*words)
    file = tmp_path / "run" / "rejected.jsonl"
    assert ran.code == 0
    assert ran.out.splitlines()[-1] == f"2 rows could not be read: {file} lists them with reasons"
    assert [json.loads(line)["line"] for line in file.read_text().splitlines()] == [4, 8]
    assert kgqa("score", "run").out.splitlines()[-1].startswith("2 rows could not be read: run/rejected.jsonl")

    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    assert "could not be read" not in kgqa(*words).out
    assert not file.exists(), "the rows can be read now"


def test_a_limit_above_the_number_of_questions_is_named(evaluate: Kgqa) -> None:
    questions = evaluate("run.dir=all").out
    assert "run.limit" not in questions
    notes = evaluate("run.dir=more", "run.limit=100000", "dataset.questions=30").out.splitlines()
    assert any(note.startswith("run.limit=100000 is more than there are to ask of synthetic: ") for note in notes)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run.sample=2", "run.limit=5"], "run.limit=5 is more than run.sample=2 draws: 2 questions were asked"),
        (
            ["run.sample=5000", "run.limit=4000"],
            "run.limit=4000 is more than there are to ask of synthetic: 30 questions were asked",
        ),
        (
            ["run.limit=null", "run.sample=40"],
            "run.sample=40 is more than there are to ask of synthetic: 30 questions were asked",
        ),
        (["run.limit=3", "run.sample=40"], None),
        (["run.limit=4", "++run.limit=3"], None),
    ],
)
def test_the_key_that_asks_for_too_many_questions_is_named(evaluate: Kgqa, words: list[str], said: str | None) -> None:
    notes = [
        line for line in evaluate("run.dir=run", "dataset.questions=30", *words).out.splitlines() if "more than" in line
    ]
    assert notes == ([said] if said else [])


def test_a_run_says_how_many_calls_it_reused_and_why_it_made_others(evaluate: Kgqa) -> None:
    first = evaluate("run.dir=first", "run.limit=3").out
    assert "run.reuse" not in first
    again = evaluate("run.dir=again", "run.limit=3", "run.reuse=[first]").out.splitlines()
    taken = next(line for line in again if line.startswith("run.reuse: "))
    assert re.fullmatch(r"run.reuse: \d+ calls taken from first", taken)
    assert "run.reuse: no call had to be made" in again
    longer = evaluate("run.dir=longer", "run.limit=5", "run.reuse=[first]").out
    assert taken in longer
    made = (
        r"run.reuse: (\d+) calls had to be made, because no earlier run has them: \1 for questions that no finished "
        "shard there has answered"
    )
    assert re.search(made, longer)


def test_an_incomplete_run_does_not_say_that_the_dataset_is_small(evaluate: Kgqa, kgqa: Kgqa, tmp_path: Path) -> None:
    evaluate("run.dir=run", "engine.shard_size=4", "run.limit=20")
    (tmp_path / "run/summary.json").unlink()
    max((tmp_path / "run/traces").iterdir()).unlink()
    said = kgqa("score", "run").out
    assert "is not complete" in said
    assert "is more than" not in said


def test_a_table_is_no_wider_than_the_terminal_and_not_squeezed_by_a_path(
    evaluate: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = evaluate("run.dir=a/folder/with/a/name/that/is/long/enough/to/fill/several/lines/of/a/narrow/column").out
    assert max(map(len, out.splitlines())) <= 80
    assert "srp (similarity)" in out
    assert "run.dir" not in out
    assert "folder" not in out


def test_an_api_key_stays_in_the_environment(
    model_server: Callable[..., tuple], evaluate: Kgqa, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = "sk-this-must-not-be-seen"
    monkeypatch.setenv("MY_KEY", key)
    model, words = model_server(refuses_every=4)
    ran = evaluate("method=cot", "llm.api_key_env=MY_KEY", "run.max_failed=0.25", *words)
    assert ran.code == 0
    assert model.keys == {f"Bearer {key}"}
    rows = pl.read_parquet(tmp_path / "run" / "traces" / "*.parquet")
    assert rows["error"].drop_nulls().str.contains("no such thing for Bearer <key>").sum() == 5
    assert key not in json.dumps(rows.to_dicts(), default=str)
    assert key not in ran.out + ran.err
    files = [file for file in (tmp_path / "run").rglob("*") if file.is_file()]
    assert len(files) > 3
    assert not [file for file in files if key.encode() in file.read_bytes()]


def test_a_replay_finds_the_calls_of_a_server_with_a_limit_for_its_replies(
    model_server: Callable[..., tuple], evaluate: Kgqa
) -> None:
    _, words = model_server()
    assert evaluate(*words, "method=cot", "llm.max_new_tokens=9").code == 0
    replayed = evaluate("method=cot", "llm=replay", "llm.run=run", "run.dir=again")
    assert replayed.code == 0, replayed.err
    assert json.loads(Path("again/summary.json").read_text())["points"][0]["failed"] == 0


def test_a_server_that_refuses_every_call_stops_the_run_with_a_sentence_that_names_it(
    model_server: Callable[..., tuple], evaluate: Kgqa
) -> None:
    """A traceback belongs to a bug of the method. The refusal of a server is no bug."""
    model, words = model_server(refuses_every=1)
    ran = evaluate("method=srp", "run.limit=200", *words)
    assert ran.code == 2
    assert "the first 20 questions to finish all failed with the same kind of error" in ran.err
    assert "answered 400: no such thing for" in ran.err
    assert "Traceback" not in ran.err
    assert model.requests < 200


def test_a_graph_without_facts_is_refused_before_a_question_is_asked(kgqa: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "g.tsv").write_text("")
    (tmp_path / "q.jsonl").write_text('{"id": "1", "question": "Who?", "topic_entities": ["A"], "answers": ["B"]}\n')
    files = [f"dataset.triples={tmp_path / 'g.tsv'}", f"dataset.questions={tmp_path / 'q.jsonl'}"]
    ran = kgqa("evaluate", "dataset=custom", *files, "llm=oracle", f"run.dir={tmp_path / 'run'}")
    assert ran.code == 2
    assert ran.sentence == "the graph of custom has no facts: see whether its file is empty or was copied only in part"


def test_a_prompt_without_a_simulator_leaves_no_run_folder(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = conf_dir().parent / "docs" / "examples"
    monkeypatch.syspath_prepend(str(examples / "code"))
    monkeypatch.setenv("KGQA_CONF", str(examples / "conf"))
    refused = kgqa(
        "evaluate", "method=neighbour", "dataset.triples=2000", "llm=oracle", "run.dir=runs/r", "run.limit=4"
    )
    assert "llm=oracle cannot answer neighbour.pick: no simulator of PickFacts" in refused.err
    assert not Path("runs").exists()


def test_arg_needs_a_server_that_reports_probabilities(kgqa: Kgqa) -> None:
    """Some servers ignore the request for them: scores by the written tokens are not those of the paper."""
    with serving(FixedReply()) as words:
        common = ("method=arg", "dataset.triples=2000", "llm=endpoint", words, "run.limit=2")
        refused = kgqa("evaluate", *common, "run.dir=refused")
        assert refused.code == 2
        assert "reports no log-probabilities, or only those of the written tokens" in refused.err
        assert "set method.probabilities=hard" in refused.err
        shown = kgqa("evaluate", *common, "run.dir=hard", "method.probabilities=hard")
    assert "hard_scores" in shown.out


def test_a_run_whose_server_began_to_answer_as_another_model_says_so(kgqa: Kgqa) -> None:
    model, command = FixedReply(), ("evaluate", "method=cot", "dataset.triples=2000", "run.dir=run", "llm=endpoint")
    with serving(model) as words:
        assert "answered as" not in kgqa(*command, words, "run.limit=3").out
        model.answers_as = "fixed-2"
        shown = kgqa(*command, words, "run.limit=40", "run.extend=true")
    said = "the servers of fixed answered as fixed, fixed-2: the scores are of replies of all"
    for found in (shown, kgqa("score", "run"), kgqa("losses", "run"), kgqa("report", "run")):
        assert said in " ".join(found.out.split())
