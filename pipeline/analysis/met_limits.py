"""Finds which limits the questions of a run met, and the command that shows such a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.evaluation.budget_limits import limits_line, much_limited
from pipeline.evaluation.configuration_summary import ConfigurationSummary
from pipeline.text import counted, show_command
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import MetLimit, count_limits

_NAMED = 3
_ENOUGH = 500
"""Questions among which limits are counted."""
_WALL = "max_wall_s"
_WAITS = (
    "the seconds of a question include those in which it waits for its turn at the model: raise budget.max_wall_s, or "
    "lower engine.concurrency"
)


def limit_notes(folder: RunFolder, summaries: Sequence[ConfigurationSummary]) -> list[str]:
    """Say which share of the questions met a limit; where it is high, which limits, and how to see a question.

    No trace is read if no configuration has a high share.
    """
    line = limits_line(summaries)
    high = [each for _, each in much_limited(summaries)]
    if not high:
        return [line]
    limits, found = count_limits(folder, [each.number for each in high], enough=_ENOUGH)
    is_part = found < sum(each.counters["at_limit"] for each in high)
    points = folder.require_run()["points"]
    shown = [
        f"  {counted(each.rows, 'question')}: {_name(each, points)} "
        f"({show_command(folder.path, each.question_id, each.configuration, len(summaries))})"
        for each in limits[:_NAMED]
    ]
    more = [f"  and {counted(len(limits) - _NAMED, 'other limit')}"] if len(limits) > _NAMED else []
    waits = [_WAITS] if any(each.name == _WALL for each in limits) else []
    first = f"; of the first {found:,} such questions:" if is_part else ":"
    return [f"{line}{first}", *shown, *more, *waits]


def _name(limit: MetLimit, points: Sequence[Mapping[str, Any]]) -> str:
    """Return the key of a limit, or the name by which a method records it."""
    composed = points[limit.configuration]["config"]
    sections = (section for section in ("budget", "method") if limit.name in composed.get(section, {}))
    return ".".join([*sections, limit.name])
