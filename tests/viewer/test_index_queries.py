"""Filters, order, pages and comparisons of the lists."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import polars as pl
import pytest

from pipeline.analysis.losses import flips
from pipeline.analysis.runs import open_run
from pipeline.errors import UserError
from pipeline.viewer import index_queries
from pipeline.viewer.index import RunIndex
from pipeline.viewer.index_queries import Filters, Side, compare, find_side, list_questions, list_types, question_url


@pytest.fixture
def table(index: RunIndex) -> pl.DataFrame:
    return index.scan().collect()


FILTERS: list[tuple[dict[str, Any], pl.Expr]] = [
    ({}, pl.lit(value=True)),
    ({"configuration": 2}, pl.col("configuration") == 2),
    ({"outcome": "wrong"}, pl.col("outcome") == "wrong"),
    ({"stage": "answered", "configuration": 0}, (pl.col("stage") == "answered") & (pl.col("configuration") == 0)),
    ({"type": "2-hop"}, pl.col("type") == "2-hop"),
    ({"hops": 3}, pl.col("hops") == 3),
    ({"cost": "tokens", "at_least": 3000.0}, pl.col("tokens") >= 3000),
    ({"cost": "calls", "at_most": 4.0, "at_least": 2.0}, pl.col("calls").is_between(2, 4)),
    ({"text": "MOVIES"}, pl.any_horizontal(pl.col("question", "answers", "gold").str.contains("(?i)movies"))),
    ({"text": "test-000007"}, pl.col("question_id") == "sample-test-000007"),
    ({"text": "(.*"}, pl.lit(value=False)),
]


@pytest.mark.parametrize(
    ("given", "expected"), FILTERS, ids=lambda value: str(value) if isinstance(value, dict) else ""
)
def test_a_filter_shows_what_passes_it(
    given: dict[str, Any], expected: pl.Expr, index: RunIndex, table: pl.DataFrame
) -> None:
    listing = list_questions([index], Filters(**given))
    wanted = table.filter(expected)
    assert listing.count == wanted.height
    assert (wanted.height > 0) == (given != {"text": "(.*"})
    assert {row["row"] for row in listing.rows} <= set(wanted["row"])
    assert sum(listing.outcomes.values()) == wanted.height
    assert sum(listing.stages.values()) == wanted["stage"].count()


@pytest.mark.parametrize("name", ["calls", "tokens", "seconds", "f1"])
@pytest.mark.parametrize("descending", [False, True])
def test_the_list_is_sorted(name: str, descending: bool, index: RunIndex, table: pl.DataFrame) -> None:
    rows = list_questions([index], Filters(sort=name, descending=descending)).rows
    shown = pl.Series([row[name] for row in rows])
    assert (
        shown.to_list() == table[name].sort(descending=descending, nulls_last=True).head(index_queries.PAGE).to_list()
    )


@pytest.mark.parametrize("sort", ["question", "tokens", "f1"])
@pytest.mark.parametrize("first_pages", [0, 2, 20])
def test_pages_show_every_question_once(
    sort: str, first_pages: int, index: RunIndex, table: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_queries, "PAGE", 7)
    monkeypatch.setattr(index_queries, "_FIRST_PAGES", first_pages)
    first = list_questions([index], Filters())
    seen = [
        row["row"]
        for page in range(1, first.pages + 1)
        for row in list_questions([index], Filters(page=page, sort=sort)).rows
    ]
    assert sorted(seen) == table["row"].to_list()
    assert list_questions([index], Filters(page=first.pages + 1)).rows == []


def test_two_runs_are_listed_together_and_apart(index: RunIndex, table: pl.DataFrame) -> None:
    class Other(RunIndex):
        def __init__(self) -> None:
            vars(self).update(vars(index) | {"name": "other"})

    both = list_questions([index, Other()], Filters(outcome="wrong"))
    assert both.count == 2 * table.filter(outcome="wrong").height
    assert {row["run"] for row in list_questions([index, Other()], Filters(run="other")).rows} == {"other"}
    with pytest.raises(UserError, match="there is no run 'another'"):
        list_questions([index, Other()], Filters(run="another"))


@pytest.mark.parametrize("given", [given for given, _ in FILTERS])
def test_an_address_says_what_is_shown(given: dict[str, Any]) -> None:
    filters = Filters(**given, sort="tokens", descending=True)
    url = filters.url(page=3)
    assert Filters.parse(dict(parse_qsl(urlsplit(url).query))) == Filters(
        **given, sort="tokens", descending=True, page=3
    )
    assert "page" not in filters.url()


@pytest.mark.parametrize(
    "query", ["stages=x", "outcome=x", "sort=x", "page=-1", "page=x", "at_least=x", "at_most=nan", "hops=9999999999"]
)
def test_a_wrong_parameter_is_one_sentence(query: str) -> None:
    with pytest.raises(UserError):
        Filters.parse(dict(parse_qsl(query)))


def test_the_address_of_a_question_is_stable() -> None:
    assert question_url("run", 3, "WebQTest-7") == "/run/3/WebQTest-7"
    assert question_url("a b/ü", 0, "q/1?x#y%2F", step=4) == "/a%20b%2F%C3%BC/0/q%2F1%3Fx%23y%252F?step=4"


def test_types_and_hops_that_occur(index: RunIndex, table: pl.DataFrame) -> None:
    types, hops = list_types([index])
    assert set(types) == set(table["type"].drop_nulls())
    assert hops == sorted(set(table["hops"].drop_nulls()))


def test_a_comparison_agrees_with_the_flips_of_the_analysis(index: RunIndex) -> None:
    before, after = find_side([index], "run/0"), find_side([index], "run/1")
    losses = open_run(index.folder.path).losses()
    of_both = [losses.filter(pl.col("configuration") == each) for each in (0, 1)]
    expected = flips(*of_both).collect()
    for change, gained in (("gained", True), ("lost", False)):
        found = compare(before, after, change, "", 1)
        ids = {row["question_id"] for row in found.rows}
        assert ids == set(expected.filter(gained=gained)["question_id"])
        assert found.count == found.changes[change] == len(ids)
    every = compare(before, after, "all", "", 1)
    assert every.count == sum(every.changes[name] for name in ("differ", "both_right", "both_wrong"))
    searched = compare(before, after, "all", every.rows[0]["question_id"], 1)
    assert [row["question_id"] for row in searched.rows] == [every.rows[0]["question_id"]]


@pytest.mark.parametrize("key", ["", "run", "run/", "run/99", "run/x", "other/0", "run/-1", "run/³"])
def test_a_wrong_side_is_one_sentence(key: str, index: RunIndex) -> None:
    with pytest.raises(UserError, match="there is no configuration"):
        find_side([index], key)


def test_a_side_is_found_by_its_key(index: RunIndex) -> None:
    assert find_side([index], "run/2") == Side(index, 2)
