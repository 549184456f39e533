"""A point beside the base: what is said of a difference, of its cost, and of the questions that flipped."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from pipeline.analysis.compare import Comparison, Cost, Flip, compare
from pipeline.analysis.comparison_tables import comparison_table, cost_table, flip_tables
from pipeline.analysis.pairs import RunPoint, Sources
from pipeline.errors import UserError
from pipeline.evaluation.statistics import Difference
from pipeline.traces.folder import RunFolder


def point(name: str, *hits: float | None, calls: float = 2, **changes: object) -> RunPoint:
    """A point that scores these hits on q0, q1 and so on."""
    questions = [f"q{place}" for place in range(len(hits))]
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
            "wall_s": 0.5,
        }
    )
    values = {
        "name": name,
        "folder": RunFolder(Path("runs/x")),
        "number": 0,
        "overrides": (),
        "config": {"evaluation": {"_target_": "pipeline.evaluation.settings.Evaluation"}},
        "served": {"model": "m", "label": None, "graph": "g"},
        "rows": rows,
    }
    return RunPoint(**{**values, **changes})  # type: ignore[arg-type]


def comparison(mean: float = -0.1, **changes: object) -> Comparison:
    values = {
        "point": point("1", 1, 0),
        "questions": 100,
        "sources": 100,
        "base": 0.5,
        "changed": 0.5 + mean,
        "difference": Difference(mean, mean - 0.05, mean + 0.05, 0.01),
        "exact_p": 0.02,
        "won": ["q1"],
        "lost": ["q0"],
        "base_cost": Cost(4, 1000, 1),
        "cost": Cost(6, 2000, 2),
        "confidence": 0.95,
        "corrected_p": 0.04,
        "noise": None,
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
        ({"mean": -0.1, "corrected_p": 0.06}, "not shown"),
        ({"mean": -0.1, "corrected_p": 0.06, "confidence": 0.9}, "worse"),
        ({"mean": -0.1, "noise": 0.11}, "noise"),
        ({"mean": 0.1, "noise": 0.1}, "noise"),
        ({"mean": -0.1, "noise": 0.09}, "worse"),
        ({"mean": -0.1, "noise": 0.0}, "worse"),
        ({"mean": 0.0, "corrected_p": 1.0, "noise": 0.0}, "not shown"),
        ({"mean": 0.0, "corrected_p": 1.0, "noise": 0.1, "won": [], "lost": []}, "same"),
    ],
)
def test_verdicts(changes: dict[str, object], verdict: str) -> None:
    assert comparison(**changes).verdict == verdict  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mean", "calls", "rate", "words"),
    [
        (0.1, 6, 5.0, "5.00"),
        (-0.1, 3, 10.0, "10.00"),
        (-0.1, 6, -5.0, "dearer, worse"),
        (0.1, 3, -10.0, "cheaper, better"),
        (0.1, 4, None, "–"),
    ],
)
def test_what_a_call_buys(mean: float, calls: float, rate: float | None, words: str) -> None:
    found = comparison(mean, cost=Cost(calls, 2000, 2))
    assert found.points_per_call == (None if rate is None else pytest.approx(rate))
    assert words in printed(cost_table([found]))


def test_a_difference_that_is_not_shown_buys_nothing() -> None:
    assert "5.00" not in printed(cost_table([comparison(0.1, corrected_p=0.5)]))


def compared(base: RunPoint, *points: RunPoint, sources: Sources | None = None) -> list[Comparison]:
    return compare(base, points, score="hits_at_1", correction="holm", sources=sources, noise=None)


def test_only_questions_that_both_score_are_compared() -> None:
    (found,) = compared(point("0", 1, 1, None, 0, 1, calls=9), point("1", 0, 1, 1, 0))
    assert (found.questions, found.base, found.changed) == (3, pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert (found.lost, found.won) == (["q0"], [])
    assert (found.base_cost.calls, found.cost.calls, found.cost.tokens) == (9, 2, 110)
    with pytest.raises(UserError, match="0 and 1 have no question in common that has the score hits_at_1"):
        compared(point("0", 1, None), point("1", None, 1))


def test_points_over_different_questions_each_say_over_how_many() -> None:
    base = point("0", 1, 1, 1, 0)
    text = printed(comparison_table(base, compared(base, point("1", 0, 1, 1, 0), point("2", 0, 1)), **PLAIN))
    assert "4 common questions" in text
    assert "2 common questions" in text


PLAIN = {"score": "hits_at_1", "correction": "holm", "sources": None}


def sources(*names: int) -> Sources:
    of = {"question_id": [f"q{place}" for place in range(len(names))], "source": names}
    return Sources("origin", pl.DataFrame(of, schema_overrides={"source": pl.UInt32}))


def test_common_questions_of_a_single_source_are_refused_and_of_as_many_sources_need_no_clusters() -> None:
    base, other = point("0", 1, 1, 1, 1), point("1", 0, 0)
    assert compared(base, other, sources=sources(1, 2, 3, 3))[0].sources == 2
    with pytest.raises(UserError, match="all 2 common questions have one origin, and tell nothing of others"):
        compared(base, other, sources=sources(1, 1, 2, 3))


def test_a_models_text_does_not_reach_the_terminal_as_a_command() -> None:
    flip = Flip("q0", "Who\x1b[2J?", ["[red]Ann[/red]", "\x1b]0;title\x07"], [], ["x" * 500])
    (table,) = flip_tables(point("0", 1), [comparison()], [([flip], [])])
    text = printed(table)
    assert "[red]Ann[/red]" in text.replace("\n", "")
    assert "\x1b" not in text
    assert "\x07" not in text
    assert text.count("x") < 100
    assert "–" in text
