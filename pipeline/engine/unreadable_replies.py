"""Says early that a model does not follow the prompts of a method: further calls would be made in vain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pipeline.engine.worker_reports import FinishedRows
from pipeline.evaluation.unreadable import share_text

_FEWEST_CALLS = 100
"""Calls of a configuration from which the share of its unreadable replies is known well enough."""
_MOST = 0.9
"""The share of unreadable replies from which hardly any answer is that of the method."""


class UnreadableReplies:
    """Counts the model calls of the finished rows."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        """Take the names of the configurations, if there are several."""
        self._names = names
        self._calls: Counter[int] = Counter()
        self._unreadable: Counter[int] = Counter()
        self._is_said = False

    def check(self, new: FinishedRows) -> str | None:
        """Add rows that have finished. Return a sentence, once, about the first configuration with hardly a reply."""
        for number, (calls, unreadable) in new.calls_of.items():
            self._calls[number] += calls
            self._unreadable[number] += unreadable
            share = self._unreadable[number] / max(1, self._calls[number])
            if not self._is_said and self._calls[number] >= _FEWEST_CALLS and share >= _MOST:
                self._is_said = True
                name = f" of {self._names[number]}" if self._names else ""
                return (
                    f"{share_text(share)} of the first {self._calls[number]:,} replies{name} could not be read: the "
                    "model may not follow the prompts of the method (kgqa doctor asks it one question, and says more)"
                )
        return None
