"""Shares of questions and replies that met a limit or had no plan (§2.5, §5.8), which may decide a score."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.evaluation.configuration_summary import ConfigurationSummary
from pipeline.evaluation.unreadable import at_most_text, share_text

_MUCH = 0.01
"""A share above which a difference between configurations may come from the limit."""
_NAMED = 3


def limits_line(summaries: Sequence[ConfigurationSummary]) -> str:
    """Say which share of the questions met a limit, and in which configurations it was more than 1 %."""
    shares = [share for each in summaries if (share := limited_share(each)) is not None]
    if not shares:
        return "older traces do not say how many questions met a limit of budget"
    if not any(shares):
        return f"no question{' of any configuration' if len(summaries) > 1 else ''} met a limit of budget"
    high = much_limited(summaries)
    if len(summaries) == 1:
        return f"{share_text(shares[0])} of the questions met a limit of budget"
    if not high:
        return f"{at_most_text(max(shares))} of the questions of each configuration met a limit of budget"
    named = ", ".join(f"{share_text(share)} in {each.number}" for share, each in high[:_NAMED])
    more = f" and in {len(high) - _NAMED:,} more" if len(high) > _NAMED else ""
    return f"configurations whose questions met a limit of budget, which may decide their scores: {named}{more}"


def cut_replies_line(summaries: Sequence[ConfigurationSummary]) -> str:
    """Say which share of the replies ended at the number of tokens that they were allowed; empty if none did."""
    shares = {each.number: share for each in summaries if (share := _cut_share(each))}
    if not shares:
        return ""
    highest = sorted(shares, key=lambda number: (-shares[number], number))
    texts = [share_text(shares[number]) + (f" in {number}" if len(summaries) > 1 else "") for number in highest]
    more = f" and in {len(texts) - _NAMED:,} more" if len(texts) > _NAMED else ""
    named = ", ".join(texts[:_NAMED])
    return f"replies that were cut off at the number of tokens that the method or the model allows: {named}{more}"


def _cut_share(summary: ConfigurationSummary) -> float:
    """Return the share of the model calls whose replies were cut; 0 if that is not known."""
    calls, cut = summary.counters.get("llm_calls"), summary.counters.get("replies_cut")
    return cut / calls if calls and cut else 0.0


def without_plan_line(summaries: Sequence[ConfigurationSummary]) -> str:
    """Say for which share of the questions PARoG could use no plan; empty if it used every plan."""
    met = [each for each in summaries if each.counters.get("without_plan")]
    shares = [(each.counters["without_plan"] / each.answered, each.number) for each in met]
    if not shares:
        return ""
    shares.sort(key=lambda pair: (-pair[0], pair[1]))
    texts = [share_text(share) + (f" in {number}" if len(summaries) > 1 else "") for share, number in shares]
    more = f" and in {len(texts) - _NAMED:,} more" if len(texts) > _NAMED else ""
    named = ", ".join(texts[:_NAMED])
    return f"questions without a plan that could be used, so that the question itself was the plan: {named}{more}"


def limited_share(summary: ConfigurationSummary) -> float | None:
    """Return the share of the answered questions that met a limit; None if an older version wrote the traces."""
    met = summary.counters.get("at_limit")
    return None if met is None or not summary.answered else met / summary.answered


def much_limited(summaries: Sequence[ConfigurationSummary]) -> list[tuple[float, ConfigurationSummary]]:
    """Return the configurations in which more than 1 % of the questions met a limit, with the share, highest first."""
    shares = [(limited_share(each) or 0.0, each) for each in summaries]
    return sorted((pair for pair in shares if pair[0] > _MUCH), key=lambda pair: (-pair[0], pair[1].number))
