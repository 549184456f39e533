"""Finds the roles whose replies could often not be read, and the command that shows such a reply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipeline.evaluation.configuration_summary import ConfigurationSummary
from pipeline.evaluation.unreadable import MUCH, much_unreadable, share_text, unreadable_line
from pipeline.text import counted, show_command
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import RoleReplies, count_unreadable
from pipeline.traces.storage import StoragePath

_NAMED = 3


def often_unreadable(folder: RunFolder, summaries: Sequence[ConfigurationSummary]) -> list[RoleReplies]:
    """Return the roles of which more than 5 % of the replies could not be read, the largest number first.

    Only configurations with more than 5 % of such replies are looked at: no trace is read if there is none.
    """
    numbers = [each.number for each in much_unreadable(summaries)]
    found = count_unreadable(folder, numbers) if numbers else []
    return [each for each in found if each.unreadable > MUCH * each.calls]


def unreadable_notes(folder: RunFolder, summaries: Sequence[ConfigurationSummary]) -> list[str]:
    """Say which share of the replies could not be read; where it is high, of which roles, and how to see one."""
    return unreadable_lines(folder.path, summaries, often_unreadable(folder, summaries))


def unreadable_lines(
    path: StoragePath, summaries: Sequence[ConfigurationSummary], roles: Sequence[RoleReplies]
) -> list[str]:
    """Return the sentences of `unreadable_notes` for the roles that `often_unreadable` found."""
    line = unreadable_line(summaries)
    totals = _over_configurations(roles)
    together = " in these configurations together" if len({each.configuration for each in roles}) > 1 else ""
    shown = [
        f"  {role_text(each)}{together} ({show_command(path, each.question_id, each.configuration, len(summaries))})"
        for each in totals[:_NAMED]
    ]
    more = [f"  and {counted(len(totals) - _NAMED, 'other role')}"] if len(totals) > _NAMED else []
    return [f"{line}:" if shown else line, *shown, *more] if line else []


def role_text(each: RoleReplies) -> str:
    """Return the share of unreadable replies of a role."""
    return f"{share_text(each.unreadable / each.calls)} of {counted(each.calls, 'reply')} to {each.role}"


def _over_configurations(roles: Sequence[RoleReplies]) -> list[RoleReplies]:
    """Add the numbers of each role, with a question of one of the configurations, the largest number first."""
    totals: dict[str, RoleReplies] = {}
    for each in roles:
        before = totals.get(each.role, replace(each, calls=0, unreadable=0))
        calls, unreadable = before.calls + each.calls, before.unreadable + each.unreadable
        totals[each.role] = replace(before, calls=calls, unreadable=unreadable)
    return sorted(totals.values(), key=lambda each: -each.unreadable)
