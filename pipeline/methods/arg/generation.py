"""Writes all segments of one level concurrently, and weighs their reflection tokens (specification §4.5, §4.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from pipeline.errors import BudgetExhausted, UserError
from pipeline.llm.interface import LanguageModel
from pipeline.llm.prompt import Completion, Sampling
from pipeline.methods.arg.relations import HypotheticalRelations
from pipeline.methods.arg.retrieval import MAX_TOKENS, RetrievalToken
from pipeline.methods.arg.tokens import (
    CLASSES,
    OPEN,
    RETRIEVE_ENTITY,
    Kind,
    Logprobs,
    ReflectionToken,
    Weights,
    find_tokens,
    hard_weights,
    reported_weights,
)
from pipeline.methods.arg.transcript import Segment, TokenChoice, end_with
from pipeline.methods.concurrency import concurrently

T = TypeVar("T")

Probabilities: TypeAlias = Literal["reported", "exact", "hard"]

_WEIGHED: tuple[Kind, ...] = ("relevance", "rationality", "utility")


@dataclass(frozen=True)
class GeneratedSegment(Generic[T]):
    """A segment with the text that the model wrote and the value parsed from it."""

    segment: Segment[T]
    value: T
    text: str
    logprobs: Logprobs | None
    """None with hard scores."""
    exact: Mapping[tuple[Kind, int], Weights] = field(default_factory=dict)
    """Weights requested from the model, by class and index of the token, because the reported ones were incomplete."""
    met_limit: bool = False
    """Whether a limit prevented a request for weights."""

    def transcript_ending_with(self, retrieval: str) -> str:
        """Return the transcript with this segment, ended by the token `retrieval`."""
        return self.segment.text_so_far + end_with(self.text, retrieval)

    def weights(self, token: ReflectionToken | None) -> Weights | None:
        """Return the probabilities of the class of one of the segment's tokens; None without a token."""
        if token is None:
            return None
        if (weights := self.exact.get((token.kind, token.index))) is not None:
            return weights
        return hard_weights(token) if self.logprobs is None else reported_weights(token, self.logprobs)[0]


@dataclass(frozen=True)
class GeneratedLevel(Generic[T]):
    """The outcome of writing several segments."""

    segments: list[GeneratedSegment[T] | None]
    """In the order of the request; None for a segment that a limit prevented."""
    met_limit: bool
    """Whether a limit prevented any call."""


@dataclass(frozen=True)
class Generator:
    """The model as ArG uses it for one question."""

    llm: LanguageModel
    sampling: Sampling
    probabilities: Probabilities
    regenerations: int

    async def write(self, segments: Sequence[Segment[T]], *, last: bool = False) -> GeneratedLevel[T]:
        """Write all segments concurrently. `last` calls are allowed after a limit of the budget was met."""
        written = await concurrently(self._write(segment, last) for segment in segments)
        if self.probabilities == "exact":
            written = await concurrently(self._weigh(one) for one in written)
        return GeneratedLevel(written, met_limit=any(one is None or one.met_limit for one in written))

    async def _write(self, segment: Segment[T], last: bool) -> GeneratedSegment[T] | None:
        sampling = self._sampling(segment)
        try:
            value, completion = await self.llm.read(segment, sampling, retries=self.regenerations, last=last)
        except BudgetExhausted:
            return None
        return GeneratedSegment(segment, value, completion.text, self._logprobs(completion))

    def _sampling(self, segment: Segment[Any]) -> Sampling:
        """Stop where a paragraph begins; hypothetical relations, which may come in a paragraph, stop after it."""
        stop = RETRIEVE_ENTITY if isinstance(segment, HypotheticalRelations) else OPEN
        logprobs = None if self.probabilities == "hard" else self.sampling.logprobs
        limit = self.sampling.max_tokens
        if isinstance(segment, RetrievalToken):
            limit = min(limit, MAX_TOKENS)
        return replace(self.sampling, max_tokens=limit, stop=(stop,), logprobs=logprobs)

    def _logprobs(self, completion: Completion) -> Logprobs | None:
        if self.probabilities == "hard":
            return None
        if completion.logprobs is None:
            raise UserError(
                "the model reports no log-probabilities, or only those of the written tokens, and ArG's scores need "
                "others: set method.probabilities=hard to score by the written tokens alone"
            )
        return completion.logprobs

    async def _weigh(self, written: GeneratedSegment[T] | None) -> GeneratedSegment[T] | None:
        """Request the weights of the tokens whose class was not fully reported."""
        if written is None or written.logprobs is None or isinstance(written.segment, HypotheticalRelations):
            return written
        logprobs = written.logprobs
        incomplete = [
            token
            for token in find_tokens(written.text)
            if token.kind in _WEIGHED and not reported_weights(token, logprobs)[1]
        ]
        weights = await concurrently(self._choose(written, token) for token in incomplete)
        exact = {(token.kind, token.index): found for token, found in zip(incomplete, weights, strict=True) if found}
        return replace(written, exact=exact, met_limit=None in weights)

    async def _choose(self, written: GeneratedSegment[Any], token: ReflectionToken) -> Weights | None:
        """Return the probabilities of the token's class at its position, or None if a limit prevented the call."""
        choice = TokenChoice(written.segment, written.text[: token.start], token)
        sampling = Sampling(self.sampling.temperature, 1, self.sampling.top_p)
        try:
            return await self.llm.choose(choice, CLASSES[token.kind], sampling)
        except BudgetExhausted:
            return None
