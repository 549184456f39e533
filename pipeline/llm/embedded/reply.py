"""A reply on its way: what the model has written so far, and when it is done (methods.md §2.3).

A reply is written in rounds. In each, the model writes the most probable tokens, up to one of `ends` or as many as
`limit`; what becomes of them is decided here. Most replies at temperature 0 take one round. Where tokens are drawn, the
written ones are a draft, as in speculative decoding: they are kept as long as the draw, which has the reply's own seed,
falls on the same, and the next round goes on from the first that differs. Where a stop string may come in several
tokens, rounds are short, so that little is written in vain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pipeline.llm.checkpoint import Array
from pipeline.llm.embedded.chat import Chat
from pipeline.llm.prompt import Sampling

_DRAFT = 16
"""Tokens of the first short round, and of the one after a draft that was not kept whole."""


class Ends(NamedTuple):
    """What ends a reply."""

    turn: frozenset[int]
    """Tokens that end the model's turn, and are not shown."""
    stop: tuple[str, ...]
    """Texts that end it, and are not shown either."""
    tokens: tuple[int, ...]
    """All tokens that surely end it: those of the turn, and those that hold a stop string."""
    settled: bool
    """Whether these are what it ends with in practice."""


class Round(NamedTuple):
    """What the model is asked for; replies that want the same are written together."""

    ends: tuple[int, ...]
    limit: int
    """Tokens to write at most."""
    logits: bool
    """Whether they are wanted for each token."""


class Reply:
    """What answers one prompt."""

    def __init__(
        self, chat: Chat, prompt: list[int], sampling: Sampling, ends: Ends, *, seed: int, listed: Sequence[int] = ()
    ) -> None:
        """Begin with nothing. Of each token the log-probabilities of `listed` ids are kept, or the highest.

        `sampling.logprobs` says how many of the highest.
        """
        self.prompt = prompt
        self.written: list[int] = []
        self.text = ""
        self.finish_reason: str | None = None
        """`stop` or `length`; None while it is not done."""
        self.logprobs: list[dict[int, float]] = []
        """Of each token, where they are wanted: natural log-probabilities by id, its own first."""
        self._read = chat.reader(prompt)
        self._sampling = sampling
        self._ends = ends
        self._listed = listed
        self._random = np.random.default_rng(seed)
        self._draft = _DRAFT

    @property
    def ids(self) -> list[int]:
        """All that the next token depends on."""
        return self.prompt + self.written

    @property
    def wanted(self) -> Round:
        """The next round."""
        left = self._sampling.max_tokens - len(self.written)
        short = self._drawn or not self._ends.settled
        return Round(self._ends.tokens, min(left, self._draft) if short else left, self._drawn or self._reported)

    def go_on(self, drafted: Sequence[int], logits: Array | None) -> None:
        """Take what a round gave: ids, and the logits of each with shape (tokens, vocabulary) if they were wanted."""
        logprobs = None if logits is None else _log_softmax(logits)
        for position, id in enumerate(drafted):
            taken = id
            if logprobs is not None:
                taken = self._draw(logprobs[position]) if self._drawn else id
                if self._reported:
                    self.logprobs.append(self._report(taken, logprobs[position]))
            self._take(taken)
            if self.finish_reason:
                return
            if taken != id:
                self._draft = _DRAFT
                return
        self._draft *= 2

    @property
    def _drawn(self) -> bool:
        return self._sampling.temperature > 0

    @property
    def _reported(self) -> bool:
        return bool(self._listed) or self._sampling.logprobs is not None

    def _take(self, id: int) -> None:
        self.written.append(id)
        if len(self.written) == self._sampling.max_tokens:
            self.finish_reason = "length"
        if id in self._ends.turn:
            self.finish_reason = "stop"
            return
        self.text += self._read(id)
        found = [(place + len(stop), place) for stop in self._ends.stop if (place := self.text.find(stop)) >= 0]
        if found:
            _, place = min(found)  # the one that is whole first
            self.text = self.text[:place]
            self.finish_reason = "stop"

    def _draw(self, logprobs: Array) -> int:
        """A token by its probability at the temperature, among the fewest that have `top_p` of it together."""
        weights = np.exp((logprobs - logprobs.max()).astype(np.float64) / self._sampling.temperature)
        if self._sampling.top_p < 1:
            order = np.argsort(-weights)
            kept = int(np.searchsorted(np.cumsum(weights[order]), self._sampling.top_p * weights.sum())) + 1
            weights[order[kept:]] = 0
        # In the order of ids: in that of weights, a token could take another's place by the noise of a batch.
        reached = np.cumsum(weights)
        return int(np.searchsorted(reached, self._random.random() * reached[-1], side="right"))

    def _report(self, taken: int, logprobs: Array) -> dict[int, float]:
        count = self._sampling.logprobs or 0
        ids = [taken, *self._listed] if self._listed else list(dict.fromkeys([taken, *_highest(logprobs, count)]))
        return {id: float(logprobs[id]) for id in ids[: max(count, 1 + len(self._listed))]}


def _log_softmax(logits: Array) -> Array:
    shifted: Array = logits - logits.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


def _highest(logprobs: Array, count: int) -> list[int]:
    if not count:
        return []
    best = np.argpartition(-logprobs, count)[:count]
    return list(best[np.argsort(-logprobs[best])])
