"""Which retrievers a table's configurations used, and which presets did not run as published."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.evaluation.configuration_summary import ConfigurationSummary

_NAMED = 5
"""The most configurations that are named by their numbers."""


def retriever_lines(summaries: Sequence[ConfigurationSummary]) -> list[str]:
    """Name the retriever of all configurations, or of each; and say which presets did not run as published."""
    retrievers: dict[str, list[int]] = {}
    departed: dict[str, list[int]] = {}
    for each in summaries:
        if each.retriever:
            retrievers.setdefault(each.retriever, []).append(each.number)
        for departure in each.departures:
            departed.setdefault(departure, []).append(each.number)
    names = _each(retrievers, len(summaries))
    lines = [f"retriever: {names}"] if names else []
    return [
        *lines,
        *([f"presets (experiment=…) not as published: {_each(departed, len(summaries))}"] if departed else []),
    ]


def departures_label(summary: ConfigurationSummary) -> str:
    """Return what follows the name of a preset that did not run as published: ` [no references]`; else nothing."""
    return f" [{', '.join(summary.departures)}]" if summary.departures else ""


def _each(numbers: dict[str, list[int]], configurations: int) -> str:
    """Return each text with the numbers of its configurations, without numbers if it is that of all."""
    return ", ".join(f"{text}{_numbers(found, configurations)}" for text, found in numbers.items())


def _numbers(found: Sequence[int], configurations: int) -> str:
    if len(found) == configurations:
        return ""
    more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    return f" (in {', '.join(map(str, found[:_NAMED]))}{more})"
