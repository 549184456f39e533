"""Comparisons with the base: verdicts, costs, flipped questions."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from pipeline.analysis.compare import Comparison, Cost, Flip, Flips, Selection, compare
from pipeline.analysis.comparison_tables import comparison_table, flip_table, reading_lines
from pipeline.analysis.paired import Clusters, RunConfiguration
from pipeline.config import SECTIONS
from pipeline.errors import UserError
from pipeline.evaluation.statistics import Difference
from pipeline.traces.folder import RunFolder


def configuration(name: str, *hits: float | None, calls: float = 2, **changes: object) -> RunConfiguration:
    """Build a configuration with these hits on q0, q1 and so on."""
    questions = [f"q{index}" for index in range(len(hits))]
    rows = pl.DataFrame(
        {
            "question_id": questions,
            "question": questions,
            "dataset": "toy",
            "split": "test",
            "method": "srp",
            "hits_at_1": pl.Series(hits, dtype=pl.Float32),
            "llm_calls": calls,
            "prompt_tokens": 100,
            "completion_tokens": 10,
            "status": "ok",
            "wall_s": 0.5,
        }
    )
    values = {
        "name": name,
        "folder": RunFolder(Path("runs/x")),
        "number": 0,
        "overrides": (),
        "config": {
            **{section: {} for section in SECTIONS},
            "method": {"_target_": f"methods.Method{name}"},
            "evaluation": {"_target_": "pipeline.evaluation.config.ScoringConfig"},
        },
        "served": {"model": "m", "label": None, "graph": "g"},
        "code": {},
        "rows": rows,
    }
    return RunConfiguration(**{**values, **changes})  # type: ignore[arg-type]


def comparison(mean: float = -0.1, **changes: object) -> Comparison:
    values = {
        "configuration": configuration("1", 1, 0),
        "questions": 100,
        "sources": 100,
        "base": 0.5,
        "other": 0.5 + mean,
        "difference": Difference(mean, mean - 0.05, mean + 0.05, 0.01),
        "exact_p": 0.02,
        "won": ["q1"],
        "lost": ["q0"],
        "base_failed": 0,
        "failed": 0,
        "base_cost": Cost(4, 1000, 1),
        "cost": Cost(6, 2000, 2),
        "confidence": 0.95,
        "corrected_p": 0.04,
        "rerun_margin": None,
    }
    return Comparison(**{**values, **changes})  # type: ignore[arg-type]


def printed(*tables: object) -> str:
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(*tables)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    return text


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"mean": 0.1}, "better"),
        ({"mean": -0.1}, "worse"),
        ({"mean": -0.1, "corrected_p": 0.06}, "inconclusive"),
        ({"mean": -0.1, "corrected_p": 0.06, "confidence": 0.9}, "worse"),
        ({"mean": -0.1, "rerun_margin": 0.11}, "noise"),
        ({"mean": 0.1, "rerun_margin": 0.1}, "noise"),
        ({"mean": -0.1, "rerun_margin": 0.09}, "worse"),
        ({"mean": -0.1, "rerun_margin": 0.0}, "worse"),
        ({"mean": 0.0, "corrected_p": 1.0, "rerun_margin": 0.0}, "inconclusive"),
        ({"mean": 0.0, "corrected_p": 1.0, "rerun_margin": 0.1, "won": [], "lost": []}, "same"),
    ],
)
def test_verdicts(changes: dict[str, object], verdict: str) -> None:
    assert comparison(**changes).verdict == verdict  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mean", "calls", "rate"), [(0.1, 6, 5.0), (-0.1, 3, 10.0), (-0.1, 6, -5.0), (0.1, 3, -10.0), (0.1, 4, None)]
)
def test_the_gain_per_call(mean: float, calls: float, rate: float | None) -> None:
    found = comparison(mean, cost=Cost(calls, 2000, 2))
    assert found.points_per_call == (None if rate is None else pytest.approx(rate))


def compared(base: RunConfiguration, *others: RunConfiguration, clusters: Clusters | None = None) -> list[Comparison]:
    return compare(base, others, score="hits_at_1", correction="holm", clusters=clusters, variance=None)


def test_only_questions_that_both_score_are_compared() -> None:
    (found,) = compared(configuration("0", 1, 1, None, 0, 1, calls=9), configuration("1", 0, 1, 1, 0))
    assert (found.questions, found.base, found.other) == (3, pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert (found.lost, found.won) == (["q0"], [])
    assert (found.base_cost.calls, found.cost.calls, found.cost.tokens) == (9, 2, 110)
    with pytest.raises(UserError, match="0 and 1 have no question in common with the score hits_at_1"):
        compared(configuration("0", 1, None), configuration("1", None, 1))


def test_configurations_that_compute_the_same_are_corrected_for_once() -> None:
    hits, worse = [1.0] * 12, [0.0] * 8 + [1.0] * 4
    base, other = configuration("0", *hits), configuration("1", *worse)
    same, as_base = replace(other, name="2"), replace(base, name="3")
    alone, *_ = compared(base, other)
    found = compared(base, other, same, as_base)
    assert [each.tests for each in found] == [1, 1, 1]
    assert found[0].corrected_p == found[1].corrected_p == alone.corrected_p == alone.p_value
    assert found[2].corrected_p == 1
    several = " ".join(table(base, other, same, configuration("4", *worse, calls=9)).split())
    once = "those of a search with equal scores, calls and tokens count once"
    assert once in several
    assert "count once" not in table(base, other, configuration("4", *worse, calls=9))


def test_equal_configurations_in_batches_of_a_search_count_once_and_those_of_other_runs_do_not(tmp_path: Path) -> None:
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "run.yaml").touch()
    for first, second, tests in (("search", "search/batch-001", 1), ("a", "b", 2), ("batch-8", "batch-16", 2)):
        base, other, again = (
            replace(configuration(name, *hits), folder=RunFolder(tmp_path / folder))
            for name, hits, folder in (("0", [1.0] * 12, first), ("1", [0.0] * 12, first), ("1", [0.0] * 12, second))
        )
        assert [each.tests for each in compared(base, other, again)] == [tests, tests]


def table(base: RunConfiguration, *others: RunConfiguration) -> str:
    return printed(
        comparison_table(
            Selection(base, others, {}),
            compared(base, *others),
            score="hits_at_1",
            correction="holm",
            clusters=None,
            top=10,
        )
    )


def rows(text: str) -> list[list[str]]:
    """The cells of the configurations, the base first."""
    return [
        line.split() for line in text.splitlines() if re.match(r" \d .* (base|same|better|worse|inconclusive) ", line)
    ]


def test_each_row_has_its_number_of_questions_if_they_differ() -> None:
    text = table(configuration("0", 1, 1, 1, 0), configuration("1", 0, 1, 1, 0), configuration("2", 0, 1))
    assert "on 2 to 4 common questions" in text
    assert "questions" in next(line for line in text.splitlines() if "Hits@1" in line)
    assert [cells[1] for cells in rows(text)] == ["4", "4", "2"]


def test_only_failed_questions_that_are_compared_are_counted() -> None:
    base, other = configuration("0", 1, 1, 0), configuration("1", 0, 0)
    status = pl.Series("status", ["ok", "failed", "failed"])
    text = table(replace(base, rows=base.rows.with_columns(status)), other)
    assert [cells[1] for cells in rows(text)] == ["1", "0"], "the third question is not compared"
    text = table(other, replace(base, rows=base.rows.with_columns(status)))
    assert [cells[1] for cells in rows(text)] == ["0", "1"]


def test_equal_scores_have_no_interval_from_0_to_0() -> None:
    text = table(configuration("0", 0, 0, 0), configuration("1", 0, 0, 0))
    assert [line.split()[:5] for line in text.splitlines() if "same" in line] == [["1", "0.0", "0.0", "+0", "-0"]]


def test_models_that_no_key_tells_apart_are_named_in_their_rows() -> None:
    """Without llm.model, a server answers with what it serves at the time."""
    base, other = (
        configuration(name, *hits, served={"model": model, "label": None, "graph": "g"})
        for name, hits, model in (("0", (1, 1), "small"), ("1", (1, 0), "large"))
    )
    assert [cells[1] for cells in rows(table(base, replace(other, config=base.config)))] == ["small", "large"]
    keys = [{**base.config, "llm": {"model": model}} for model in ("small", "large")]
    named = table(replace(base, config=keys[0]), replace(other, config=keys[1]))
    assert "answered by" not in named, "the column of llm.model says it"


def test_a_default_is_shown_as_its_value_where_another_configuration_sets_the_key() -> None:
    def with_depth(name: str, depth: int, *overrides: str) -> RunConfiguration:
        config = {"method": {"depth": depth}, "evaluation": configuration("0", 1).config["evaluation"]}
        return configuration(name, 1, 0, config=config, overrides=overrides)

    text = table(with_depth("0", 4), with_depth("1", 2, "method.depth=2"))
    assert [cells[:2] for cells in rows(text)] == [["0", "4"], ["1", "2"]]


def test_a_key_that_an_older_run_lacks_has_no_column() -> None:
    def with_keys(name: str, **keys: int) -> RunConfiguration:
        method = {"_target_": "methods.Method", "depth": 3, **keys}
        config = {"method": method, "evaluation": configuration("0", 1).config["evaluation"]}
        return configuration(name, 1, 0, config=config)

    assert "width" not in table(with_keys("0", width=2), with_keys("1"))
    text = table(with_keys("0", width=2), with_keys("1", width=4))
    assert [cells[:2] for cells in rows(text)] == [["0", "2"], ["1", "4"]]


def test_a_run_says_what_is_read_of_it() -> None:
    served = {"model": "m", "label": "oracle", "graph": "g"}
    assert list(reading_lines([configuration("0", 1, 1), configuration("1", 1, 0, 0)])) == [
        "runs/x: 2 configurations, 2 to 3 answered questions each, toy (test), answered by m"
    ]
    (line,) = reading_lines([configuration("0", 1, 1), configuration("1", 1, 1, served=served)])
    assert line == "runs/x: 2 configurations, 2 answered questions each, toy (test), answered by 2 models"
    roles = {**served, "label": None, "roles": {"tog.answer": "n"}}
    (line,) = reading_lines([configuration("0", 1, 1, served=roles)])
    assert line.endswith(", answered by m, tog.answer by n")


def clusters(*sources: int) -> Clusters:
    of = {"question_id": [f"q{index}" for index in range(len(sources))], "source": sources}
    return Clusters("origin", pl.DataFrame(of, schema_overrides={"source": pl.UInt32}))


def test_questions_of_a_single_source_are_an_error_and_distinct_sources_need_no_clusters() -> None:
    base, other = configuration("0", 1, 1, 1, 1), configuration("1", 0, 0)
    assert compared(base, other, clusters=clusters(1, 2, 3, 3))[0].sources == 2
    with pytest.raises(UserError, match="all 2 common questions have the same origin, which is too few"):
        compared(base, other, clusters=clusters(1, 1, 2, 3))


def test_terminal_commands_in_a_models_text_are_removed() -> None:
    flip = Flip("q0", "Who\x1b[2J?", ["[red]Ann[/red]", "\x1b]0;title\x07"], [], ["x" * 500])
    text = printed(flip_table(configuration("0", 1), Flips(configuration("1", 1), [flip], []), binary=True, top=10))
    assert "[red]Ann[/red]" in text.replace("\n", "")
    assert "\x1b" not in text
    assert "\x07" not in text
    assert text.count("x") < 100
    assert "–" in text
