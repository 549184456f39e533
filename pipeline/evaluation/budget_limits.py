"""Shares of questions and replies that met a limit or had no plan (§2.5, §5.8), which may decide a score."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipeline.evaluation.configuration_summary import ConfigurationSummary
from pipeline.evaluation.unreadable import at_most_text, named_shares, share_text
from pipeline.text import counted

MUCH_LIMITED = 0.01
"""A share above which a difference between configurations may come from the limit."""
_AT_LIMIT = "configurations whose questions met a limit of budget or of the method, which may decide their scores"


def limits_line(summaries: Sequence[ConfigurationSummary]) -> str:
    """Say which share of the questions met a limit, in which configurations it is high, and how high in the others."""
    shares = [share for each in summaries if (share := limited_share(each)) is not None]
    if not shares:
        return "older traces do not say how many questions met a limit of budget"
    if not any(shares):
        return _no_limit(summaries)
    high = much_limited(summaries)
    if len(summaries) == 1:
        return f"{share_text(shares[0])} of the questions met a limit of budget or of the method"
    if not high:
        return (
            f"{at_most_text(max(shares))} of the questions of each configuration met a limit of budget or of the method"
        )
    return much_limited_line([(share, each.number) for share, each in high], shares)


def much_limited_line(high: Sequence[tuple[float, object]], shares: Sequence[float]) -> str:
    """Name the configurations in which more than 1 % of the questions met a limit, and count those with fewer.

    `high` are their shares and names, and `shares` those of all configurations.
    """
    few = [share for share in shares if 0 < share <= MUCH_LIMITED]
    others = f"; {at_most_text(max(few))} in {counted(len(few), 'other configuration')}" if few else ""
    return f"{_AT_LIMIT}: {named_shares(high)}{others}"


def _no_limit(summaries: Sequence[ConfigurationSummary]) -> str:
    if all(each.failed == each.answered for each in summaries):
        return "no question was answered"
    if any(each.failed for each in summaries):
        return "none of the questions that did not fail met a limit of budget"
    return f"no question{' of any configuration' if len(summaries) > 1 else ''} met a limit of budget"


def cut_replies_line(summaries: Sequence[ConfigurationSummary]) -> str:
    """Say which share of the replies ended at the number of tokens that they were allowed; empty if none did."""
    shares = _shares(summaries, "replies_cut", lambda summary: summary.counters.get("llm_calls"))
    said = "replies that were cut off at the number of tokens that the method or the model allows, and read as they are"
    return f"{said}: {shares}" if shares else ""


def without_plan_line(summaries: Sequence[ConfigurationSummary]) -> str:
    """Say for which share of the questions PARoG could use no plan; empty if it used every plan."""
    shares = _shares(summaries, "without_plan", lambda summary: summary.answered)
    said = "questions without a plan that could be used, so that the question itself was the plan"
    return f"{said}: {shares}" if shares else ""


def _shares(
    summaries: Sequence[ConfigurationSummary], counter: str, total: Callable[[ConfigurationSummary], float | None]
) -> str:
    """Return the shares of a counter in its totals, the highest first; empty if all are zero or not known."""
    counted = ((each.counters.get(counter), total(each), each.number) for each in summaries)
    known = [(count / of, number) for count, of, number in counted if count and of]
    shares = sorted(known, key=lambda pair: (-pair[0], pair[1]))
    if len(summaries) > 1:
        return named_shares(shares)
    return share_text(shares[0][0]) if shares else ""


def limited_share(summary: ConfigurationSummary) -> float | None:
    """Return the share of the answered questions that met a limit; None if an older version wrote the traces."""
    met = summary.counters.get("at_limit")
    return None if met is None or not summary.answered else met / summary.answered


def much_limited(summaries: Sequence[ConfigurationSummary]) -> list[tuple[float, ConfigurationSummary]]:
    """Return the configurations in which more than 1 % of the questions met a limit, with the share, highest first."""
    shares = [(limited_share(each) or 0.0, each) for each in summaries]
    return sorted((pair for pair in shares if pair[0] > MUCH_LIMITED), key=lambda pair: (-pair[0], pair[1].number))
