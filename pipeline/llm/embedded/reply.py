"""A reply in progress: the tokens so far, and the rule when it is complete (specification §2.3).

A reply is generated in rounds. In each round, the model generates the most probable tokens, up to one of `ends` or up
to `limit` tokens. Most replies at temperature 0 take one round. If tokens are sampled, the generated ones are a draft,
as in speculative decoding: they are accepted while sampling, with the reply's seed, gives the same tokens, and the next
round starts at the first different one. If a stop string can span several tokens, rounds are short to waste few tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from pipeline.llm.checkpoint import Array
from pipeline.llm.embedded.chat import Chat
from pipeline.llm.prompt import Sampling

_DRAFT_LENGTH = 16
"""Tokens of the first short round, and of the round after a draft that was not accepted completely."""


class Ends(NamedTuple):
    """The tokens and texts that end a reply."""

    turn: frozenset[int]
    """Tokens that end the model's turn. They are not shown."""
    stop: tuple[str, ...]
    """Stop strings. They are not shown."""
    tokens: tuple[int, ...]
    """All tokens that certainly end the reply: those of the turn, and those that contain a stop string."""
    complete: bool
    """Whether a reply always ends with one of `tokens`, because each stop string is one token."""


class Round(NamedTuple):
    """A request to the model. Replies with equal requests are generated in one batch."""

    ends: tuple[int, ...]
    limit: int
    """Maximum number of tokens."""
    logits: bool
    """Whether logits are needed."""
    beams: int = 1
    """Width of a beam search, and number of its results; 1 generates the most probable tokens."""
    length_penalty: float = 1.0


class Reply:
    """The reply to one prompt."""

    def __init__(
        self, chat: Chat, prompt: list[int], sampling: Sampling, ends: Ends, *, seed: int, listed: Sequence[int] = ()
    ) -> None:
        """Start an empty reply.

        Log-probabilities are kept for the `listed` ids of each token, or for the `sampling.logprobs` highest ones.
        """
        self.prompt = prompt
        self.ids: list[int] = []
        self.text = ""
        self.finish_reason: str | None = None
        """`stop` or `length`; None if the reply is not complete."""
        self.logprobs: list[dict[int, float]] = []
        """Per token, natural log-probabilities by id, its own first; empty if not requested."""
        self.seconds = 0.0
        """Seconds in which the model generated it, without the pauses between rounds."""
        self._read = chat.reader(prompt)
        self._sampling = sampling
        self._ends = ends
        self._listed = listed
        self._random = np.random.default_rng(seed)
        self._draft_length = _DRAFT_LENGTH

    @property
    def context(self) -> list[int]:
        """The ids that the next token depends on."""
        return self.prompt + self.ids

    @property
    def next_round(self) -> Round:
        """The request of the next round."""
        left = self._sampling.max_tokens - len(self.ids)
        short = self._is_sampled or not self._ends.complete
        return Round(
            self._ends.tokens,
            min(left, self._draft_length) if short else left,
            self._is_sampled or self._needs_logprobs,
        )

    def add(self, draft: Sequence[int], logits: Array | None) -> None:
        """Add the result of a round: ids and, if requested, their logits with shape (tokens, vocabulary)."""
        logprobs = None if logits is None else _log_softmax(logits)
        for position, id in enumerate(draft):
            accepted = id
            if logprobs is not None:
                accepted = self._sample(logprobs[position]) if self._is_sampled else id
                if self._needs_logprobs:
                    self.logprobs.append(self._report(accepted, logprobs[position]))
            self._append(accepted)
            if self.finish_reason:
                return
            if accepted != id:
                self._draft_length = _DRAFT_LENGTH
                return
        self._draft_length *= 2

    @property
    def _is_sampled(self) -> bool:
        return self._sampling.temperature > 0

    @property
    def _needs_logprobs(self) -> bool:
        return bool(self._listed) or self._sampling.logprobs is not None

    def _append(self, id: int) -> None:
        self.ids.append(id)
        if len(self.ids) == self._sampling.max_tokens:
            self.finish_reason = "length"
        if id in self._ends.turn:
            self.finish_reason = "stop"
            return
        self.text += self._read(id)
        found = [(place + len(stop), place) for stop in self._ends.stop if (place := self.text.find(stop)) >= 0]
        if found:
            _, place = min(found, key=itemgetter(0))  # complete first; of equals the first in the list, as vLLM does
            self.text = self.text[:place]
            self.finish_reason = "stop"

    def _sample(self, logprobs: Array) -> int:
        """Sample a token at the temperature from the smallest set of tokens with a probability of `top_p`."""
        weights = np.exp((logprobs - logprobs.max()).astype(np.float64) / self._sampling.temperature)
        if self._sampling.top_p < 1:
            order = np.argsort(-weights)
            kept = int(np.searchsorted(np.cumsum(weights[order]), self._sampling.top_p * weights.sum())) + 1
            weights[order[kept:]] = 0
        # In the order of ids: the order of weights could change with the rounding of a batch.
        cumulative = np.cumsum(weights)
        return int(np.searchsorted(cumulative, self._random.random() * cumulative[-1], side="right"))

    def _report(self, accepted: int, logprobs: Array) -> dict[int, float]:
        count = self._sampling.logprobs or 0
        ids = [accepted, *self._listed] if self._listed else list(dict.fromkeys([accepted, *_highest(logprobs, count)]))
        return {id: float(logprobs[id]) for id in ids[: max(count, 1 + len(self._listed))]}


def _log_softmax(logits: Array) -> Array:
    shifted: Array = logits - logits.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


def _highest(logprobs: Array, count: int) -> list[int]:
    if not count:
        return []
    highest = np.argpartition(-logprobs, count)[:count]
    return list(highest[np.argsort(-logprobs[highest])])
