"""Shares in sentences: none is shown as zero or as everything that is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.evaluation.budget_limits import limits_line
from pipeline.evaluation.configuration_summary import ConfigurationSummary
from pipeline.evaluation.unreadable import share_text, unreadable_line


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0.0 %"),
        (0.0004, "less than 0.1 %"),
        (0.0123, "1.2 %"),
        (0.9996, "more than 99.9 %"),
        (1.0, "100.0 %"),
    ],
)
def test_a_share_below_the_precision_shown_is_not_zero(share: float, text: str) -> None:
    assert share_text(share) == text


def summary(limited: int, unreadable: int) -> ConfigurationSummary:
    counters = {"at_limit": limited, "llm_calls": 10_000, "parse_failures": unreadable}
    return ConfigurationSummary(
        number=0,
        method="cot",
        dataset="synthetic",
        overrides=(),
        label=None,
        questions=10_000,
        not_run=0,
        failed=0,
        empty_gold=0,
        statuses={},
        scores={},
        confidence=0.95,
        counters=counters,
    )


def test_the_highest_share_is_never_rounded_down() -> None:
    few = [summary(1, 1), replace(summary(0, 0), number=1)]
    assert (
        limits_line(few)
        == "at most 0.1 % of the questions of each configuration met a limit of budget or of the method"
    )


def test_configurations_in_which_few_questions_met_a_limit_are_counted() -> None:
    some = [replace(summary(limited, 0), number=number) for number, limited in enumerate((110, 10, 0, 5))]
    said = "which may decide their scores: 1.1 % in 0; at most 0.1 % in 2 other configurations"
    assert limits_line(some).endswith(said)


def test_the_share_of_unreadable_replies_is_the_range_that_the_report_shows() -> None:
    few = [summary(1, 1), replace(summary(0, 0), number=1)]
    assert unreadable_line(few).startswith("0.0 % to less than 0.1 % of the model calls")
    assert unreadable_line([summary(0, 123), summary(0, 0)]).startswith("0.0 % to 1.2 % of the model calls")
    assert unreadable_line([summary(0, 120), summary(0, 120)]).startswith("1.2 % of the model calls")


def test_no_question_is_said_in_words() -> None:
    assert limits_line([summary(0, 0)]) == "no question met a limit of budget"
    failed = replace(summary(0, 0), failed=1)
    assert limits_line([failed]) == "none of the questions that did not fail met a limit of budget"
    assert limits_line([summary(0, 0), summary(0, 0)]) == "no question of any configuration met a limit of budget"


def test_configurations_that_are_not_named_have_at_most_the_last_share_named() -> None:
    many = [replace(summary(limited, 0), number=number) for number, limited in enumerate((350, 300, 200, 150))]
    said = limits_line(many)
    assert said.endswith("3.5 % in 0, 3.0 % in 1, 2.0 % in 2, and at most as much in 1 other configuration")
