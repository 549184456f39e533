"""What a table says where a simulated model answered in place of a language model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pipeline.evaluation.configuration_summary import ConfigurationSummary
from pipeline.llm.interface import APPROXIMATE, replies_from_gold, simulated

_MOST_METHODS = 3
"""The most methods that are named."""
_NO_MODEL = "not the answers of a language model"
_ESTIMATED = "probabilities of choices are estimated (llm.approximate_choices)"


def simulated_lines(summaries: Sequence[ConfigurationSummary]) -> list[str]:
    """Say which simulated models answered, whether they know the gold answers, and for which methods that is all."""
    return [*label_lines(summary.label for summary in summaries), *gold_lines(summaries)]


def takes_time(summary: ConfigurationSummary, llm: Mapping[str, Any]) -> bool:
    """Whether seconds mean anything: a simulated model takes none, unless its section `llm` says how many."""
    return not summary.simulated or bool(llm.get("latency_s"))


def label_lines(labels: Iterable[str | None]) -> list[str]:
    """Say which simulated models answered, and whether probabilities are estimated; nothing if neither is so."""
    given = set(filter(None, labels))
    names = sorted(filter(None, map(simulated, given)))
    said = [f"{_NO_MODEL}: {', '.join(names)}"] if names else []
    return [*said, *([_ESTIMATED] if any(APPROXIMATE in label for label in given) else [])]


def label_meaning(label: str) -> str:
    """Return what it means that answers have a label."""
    return _NO_MODEL if simulated(label) else _ESTIMATED


def gold_lines(summaries: Sequence[ConfigurationSummary]) -> list[str]:
    """Say that a simulated model replies from the gold answers, and for which methods the score is its own alone."""
    if not any(summary.from_gold for summary in summaries):
        return []
    return [
        "the oracle replies from the gold answers (and errs by llm.error_rate): a score shows what a method can reach "
        "with such replies, not what a model answers",
        *closed_book_lines([summary.method for summary in summaries if summary.closed_book]),
    ]


def closed_book_lines(methods: Sequence[str]) -> list[str]:
    """Say that the scores of methods without a lookup are the oracle's; nothing without such methods."""
    alone = list(dict.fromkeys(methods))
    named = ", ".join(alone[:_MOST_METHODS])
    named += f" and {len(alone) - _MOST_METHODS:,} more" if len(alone) > _MOST_METHODS else ""
    return [f"{named}: looked up nothing in the graph, so the score is the oracle's alone"] if alone else []


def answered_by(label: str | None) -> str:
    """Say that a language model answered, or what did: `oracle: no language model, replies from the gold answers`."""
    if name := simulated(label):
        return f"{name}: no language model{', replies from the gold answers' if replies_from_gold(name) else ''}"
    return f"a language model{f', {label}' if label else ''}"
