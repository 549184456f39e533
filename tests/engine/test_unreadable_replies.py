"""The early notice that a model does not follow the prompts of a method."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from pipeline.engine.progress import RunProgress
from pipeline.engine.unreadable_replies import UnreadableReplies
from pipeline.engine.worker_reports import FinishedRows


def rows(configuration: int, calls: int, unreadable: int) -> FinishedRows:
    return FinishedRows(questions=1, calls_of={configuration: (calls, unreadable)})


def test_it_is_said_once_of_the_first_configuration_with_hardly_a_readable_reply() -> None:
    watch = UnreadableReplies(["method=tog", "method=pog"])
    assert watch.check(rows(0, 500, 40)) is None
    assert watch.check(rows(1, 90, 90)) is None, "too few calls"
    said = watch.check(rows(1, 30, 27))
    assert said is not None
    assert said.startswith("97.5 % of the first 120 replies of method=pog could not be read: ")
    assert watch.check(rows(1, 100, 100)) is None


@pytest.mark.parametrize(("calls", "unreadable"), [(1000, 880), (0, 0)])
def test_many_readable_replies_are_no_reason(calls: int, unreadable: int) -> None:
    watch = UnreadableReplies()
    assert [watch.check(rows(0, calls, unreadable)) for _ in range(3)] == [None] * 3


def test_the_notice_stands_above_the_bar() -> None:
    text = StringIO()
    progress = RunProgress(
        Console(file=text, width=200),
        total=300,
        on_opened=lambda backends: None,
        confidence=0.95,
        checks=[UnreadableReplies().check],
    )
    progress.on_progress(rows(0, 60, 60) + rows(0, 60, 58))
    assert "98.3 % of the first 120 replies could not be read" in text.getvalue()
