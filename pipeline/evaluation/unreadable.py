"""Which share of the model calls had a reply that no parser accepted (§2.4), which may decide a score."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pipeline.evaluation.configuration_summary import ConfigurationSummary
from pipeline.percentages import percentage
from pipeline.text import counted

MUCH = 0.05
"""A share above which a score may be that of the replies' format."""
_NAMED = 3


def unreadable_line(summaries: Sequence[ConfigurationSummary]) -> str:
    """Say which share of the calls had unreadable replies, and in which configurations it was more than 5 %.

    Empty if no call was made, if an older version wrote the traces, or if only failed questions may have had a reply
    that could not be read: the server's, which no parser saw.
    """
    shares = [each.unreadable_share for each in summaries if each.unreadable_share is not None]
    if not shares:
        return ""
    if not any(shares):
        return "" if any(each.failed for each in summaries) else "every reply of the model could be read"
    high = much_unreadable(summaries)
    if len(summaries) == 1:
        decides = ", which may decide the score" if high else ""
        return f"{share_text(shares[0])} of the model calls had a reply that could not be read{decides}"
    if not high:
        return f"{range_text(shares)} of the model calls of a configuration had a reply that could not be read"
    named = named_shares([(each.unreadable_share or 0.0, each.number) for each in high])
    return f"model calls with a reply that could not be read, which may decide the score of the configuration: {named}"


def much_unreadable(summaries: Sequence[ConfigurationSummary]) -> list[ConfigurationSummary]:
    """Return the configurations in which more than 5 % of the replies could not be read, the highest share first."""
    high = [each for each in summaries if (each.unreadable_share or 0) > MUCH]
    return sorted(high, key=lambda each: (-(each.unreadable_share or 0), each.number))


def share_text(share: float) -> str:
    """Format a share as a percentage. A share that is not zero is never shown as zero, nor one below 1 as 100."""
    if 0 < share < 0.0005:
        return "less than 0.1 %"
    if 0.9995 <= share < 1:
        return "more than 99.9 %"
    return f"{percentage(share)} %"


def named_shares(shares: Sequence[tuple[float, object]]) -> str:
    """Format the first shares with the numbers or names of their configurations, and say how many others there are."""
    named = ", ".join(f"{share_text(share)} in {configuration}" for share, configuration in shares[:_NAMED])
    others = counted(len(shares) - _NAMED, "other configuration")
    return f"{named}, and at most as much in {others}" if len(shares) > _NAMED else named


def range_text(shares: Sequence[float]) -> str:
    """Format the lowest and the highest of some shares."""
    return " to ".join(dict.fromkeys(map(share_text, (min(shares), max(shares)))))


def at_most_text(share: float) -> str:
    """Format an upper limit of shares as a percentage, which is not rounded down."""
    return f"at most {math.ceil(round(1000 * share, 6)) / 10:.1f} %"
