"""What a table says where a simulated model answered in place of a language model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipeline.evaluation.configuration_summary import ConfigurationSummary
from pipeline.llm.interface import replies_from_gold

_MOST_METHODS = 3
"""The most methods that are named."""


def simulated_lines(summaries: Sequence[ConfigurationSummary]) -> list[str]:
    """Say which simulated models answered, whether they know the gold answers, and for which methods that is all."""
    return [*label_lines(summary.label for summary in summaries), *gold_lines(summaries)]


def label_lines(labels: Iterable[str | None]) -> list[str]:
    """Say which simulated models answered; nothing if none did."""
    simulated = sorted({label for label in labels if label})
    return [f"not the answers of a language model: {', '.join(simulated)}"] if simulated else []


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


def not_a_model(label: str) -> str:
    """Say what answered in place of a language model: `oracle: no language model, replies from the gold answers`."""
    return f"{label}: no language model{', replies from the gold answers' if replies_from_gold(label) else ''}"
