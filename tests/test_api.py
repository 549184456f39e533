"""The public surface: `import pipeline` runs, sweeps, scores and opens runs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given
from hypothesis import strategies as st

import pipeline
from pipeline import config
from pipeline.errors import UserError

SMALL = {"llm": "oracle", "dataset.questions": 6}


def test_every_public_name_can_be_imported() -> None:
    assert {"evaluate", "sweep", "score", "open_run", "Prompt", "Tools", "Question", "Answer"} <= set(pipeline.__all__)
    assert all(getattr(pipeline, name) is not None for name in pipeline.__all__)
    assert pipeline.__version__


def test_importing_the_package_imports_nothing_heavy() -> None:
    shown = subprocess.run(
        [sys.executable, "-c", "import sys, pipeline; print({'polars', 'ray', 'hydra', 'torch'} & set(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.strip() == "set()"


def test_evaluate_runs_a_configuration_and_opens_the_run(tmp_path: Path) -> None:
    run = pipeline.evaluate({**SMALL, "method": "srp", "run.dir": tmp_path / "a run"})
    assert run.questions.collect().height == 6
    again = pipeline.evaluate(["llm=oracle", "dataset.questions=6", "method=srp", f"run.dir='{tmp_path / 'a run'}'"])
    assert again.questions.collect().height == 6


def test_sweep_runs_every_combination_as_one_run(tmp_path: Path) -> None:
    run = pipeline.sweep({"method": ["srp", "cot"], "method.depth": [1, 2]}, {**SMALL, "run.dir": tmp_path / "run"})
    configurations = run.configurations.collect()
    assert configurations.height == 4
    assert configurations["method"].to_list() == ["srp", "srp", "cot", "cot"]


def test_a_key_may_not_be_an_axis_and_an_override(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^method.depth=3 is one of the axes too: give each key once$"):
        pipeline.sweep({"method.depth": [1, 2]}, {**SMALL, "method.depth": 3, "run.dir": tmp_path / "run"})


def test_score_gives_a_row_for_each_configuration(tmp_path: Path) -> None:
    run = pipeline.evaluate({**SMALL, "method": "srp", "run.dir": tmp_path / "run"})
    scores = pipeline.score(run)
    assert isinstance(scores, pl.DataFrame)
    assert scores.height == 1
    assert scores["hits_at_1"].to_list() == [pytest.approx(run.questions.collect()["hits_at_1"].mean())]
    assert pipeline.score(tmp_path / "run").equals(scores)
    summary = (tmp_path / "run" / "summary.json").read_bytes()
    pipeline.score(run, {"evaluation.confidence": 0.9})
    assert (tmp_path / "run" / "summary.json").read_bytes() == summary, "the scores by its own keys"


async def test_evaluate_works_inside_a_running_event_loop(tmp_path: Path) -> None:
    assert asyncio.get_running_loop()
    run = pipeline.evaluate({**SMALL, "method": "cot", "run.dir": tmp_path / "run"})
    assert run.questions.collect().height == 6


def test_a_wrong_key_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"method\.dept"):
        pipeline.evaluate({"method.dept": 3, "run.dir": tmp_path / "run"})


def test_a_row_that_stops_a_run_in_a_worker_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "graph.tsv").write_text("Ann\tson\tBob\n")
    row = '{"id": 1, "question": "Who?", "topic_entities": ["Ann"], "answers": ["Bob"]}\n'
    (tmp_path / "rows.jsonl").write_text(f'{row}{{"id": 2}}\n')
    files = {"dataset.triples": tmp_path / "graph.tsv", "dataset.questions": tmp_path / "rows.jsonl"}
    words = {"dataset": "custom", **files, "dataset.strict": True, "engine.shard_size": 1, "run.dir": tmp_path / "run"}
    with pytest.raises(UserError, match=r"rows\.jsonl, line 2: .*dataset\.strict=false skips such rows"):
        pipeline.evaluate({**words, "method": "cot", "llm": "oracle"})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (3, "3"),
        ("plain-text_1", "plain-text_1"),
        ("two words", '"two words"'),
        ('2" x', '"2\\" x"'),
        (["a", 1], "[a,1]"),
        ({"type": "2-hop"}, "{type:2-hop}"),
        (Path("größe"), '"größe"'),
        ("true", '"true"'),
        ("1", '"1"'),
        ("C:\\", '"C:\\\\"'),
    ],
)
def test_values_are_written_as_on_the_command_line(value: object, text: str) -> None:
    assert config.override("key", value) == f"key={text}"


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("aü1 '\\\",:={}[]()$~+-.\n")
_NESTED = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab_:=, ", min_size=1), inner, max_size=3),
    max_leaves=5,
)


@given(value=_NESTED)
@example(value=["x y", "ü"])
@example(value={"a:b": ["it's", "\\'", "1", "null", None, False, {}]})
def test_hydra_reads_the_same_value_as_the_dictionary_holds(value: object) -> None:
    assert OverridesParser.create().parse_override(config.override("key", value)).value() == value


def test_words_with_spaces_and_letters_need_no_quotes_in_a_dictionary(tmp_path: Path) -> None:
    told = {"run.tags": ["x y", "ü"], "run.note": "null", "run.dir": tmp_path / "größe 1"}
    run = pipeline.evaluate({**SMALL, "method": "cot", **told})
    assert (run.metadata["tags"], run.metadata["note"]) == (["x y", "ü"], "null")
    assert run.folder.path.name == "größe 1"
    assert pipeline.open_run(run).folder.path == run.folder.path


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: pipeline.sweep({"method.depth": 1}), r"method\.depth: 1 should be a list of values, such as \[1\]"),
        (lambda: pipeline.sweep({"method": "srp"}), r"method: 'srp' should be a list of values, such as \['srp'\]"),
        (lambda: pipeline.sweep({"method.depth": []}), r"^method\.depth has no values: give it one, or leave it out$"),
        (lambda: pipeline.sweep("method=srp,arg"), "'method=srp,arg' should be a dictionary of lists"),
        (lambda: pipeline.sweep({"method": ["srp"]}, "llm=oracle"), "'llm=oracle' should be a dictionary, such as"),
        (
            lambda: pipeline.evaluate({"method": ["srp", "arg"]}),
            r"^method=\[srp,arg\]: method takes one choice, as in ",
        ),
        (lambda: pipeline.evaluate("method=srp"), "'method=srp' should be a dictionary, such as"),
        (lambda: pipeline.evaluate(None), "None should be a dictionary, such as"),  # type: ignore[arg-type]
        (lambda: pipeline.score(None), "None is no path: name a folder, such as 'runs/x'"),  # type: ignore[arg-type]
        (lambda: pipeline.evaluate([("method", "srp")]), "should be a dictionary, such as"),
        (lambda: pipeline.evaluate({"json": True}), r"^json=true is a word of the commands, which print figures"),
        (lambda: pipeline.evaluate(["table=a.md"]), r"^table=a\.md is a word of the commands, which print figures"),
        (lambda: pipeline.evaluate({"run.early_stopping": 9}), r"^run\.early_stopping drops .*: a run of one has none"),
    ],
)
def test_a_value_of_another_kind_is_a_user_error(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        call()
