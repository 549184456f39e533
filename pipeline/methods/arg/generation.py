"""The generator at work: all segments of one level at once, and the weights of their tokens (methods.md §4.5, §4.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from pipeline.errors import BudgetExhausted, UserError
from pipeline.llm.port import LanguageModel
from pipeline.llm.prompt import Completion, Sampling
from pipeline.methods.arg.layout import Segment, TokenChoice, closed
from pipeline.methods.arg.relations import HypotheticalRelations
from pipeline.methods.arg.tokens import (
    CLASSES,
    OPEN,
    RETRIEVE_ENTITY,
    Kind,
    Mark,
    Positions,
    Weights,
    certain,
    find_marks,
    reported_weights,
)
from pipeline.methods.concurrency import concurrently

T = TypeVar("T")

Probabilities: TypeAlias = Literal["reported", "exact", "hard"]

_WEIGHED: tuple[Kind, ...] = ("relevance", "rationality", "utility")


@dataclass(frozen=True)
class Written(Generic[T]):
    """A segment as it was written and read."""

    segment: Segment[T]
    value: T
    text: str
    logprobs: Positions | None
    """None with hard scores."""
    exact: Mapping[tuple[Kind, int], Weights] = field(default_factory=dict)
    """Weights that were asked for because the reported ones were not whole."""

    def closed(self, token: str) -> str:
        """The text so far with this segment, up to its retrieval token, which is `token`."""
        return self.segment.shown + closed(self.text, token)

    def weights(self, mark: Mark | None) -> Weights | None:
        """How probable each member of the class of one of its tokens was."""
        if mark is None:
            return None
        if (weights := self.exact.get((mark.kind, mark.place))) is not None:
            return weights
        return certain(mark) if self.logprobs is None else reported_weights(mark, self.logprobs)[0]


@dataclass
class Generator:
    """The model as ArG uses it for one question."""

    llm: LanguageModel
    sampling: Sampling
    probabilities: Probabilities
    regenerations: int
    exhausted: bool = False
    """Whether a cap has kept it from writing something."""

    async def write(self, segments: Sequence[Segment[T]], *, last: bool = False) -> list[Written[T] | None]:
        """All segments, at once and in order; None for one that a cap did not allow."""
        drawn = await concurrently(self._write(segment, last) for segment in segments)
        if self.probabilities != "exact":
            return drawn
        return await concurrently(self._weigh(written) for written in drawn)

    async def _write(self, segment: Segment[T], last: bool) -> Written[T] | None:
        sampling = self._sampling(segment)
        try:
            value, completion = await self.llm.read(segment, sampling, retries=self.regenerations, last=last)
        except BudgetExhausted:
            self.exhausted = True
            return None
        return Written(segment, value, completion.text, self._positions(completion))

    def _sampling(self, segment: Segment[Any]) -> Sampling:
        """A segment ends where a paragraph begins; made-up relations may come in one."""
        stop = RETRIEVE_ENTITY if isinstance(segment, HypotheticalRelations) else OPEN
        drawn = self.sampling
        logprobs = None if self.probabilities == "hard" else drawn.logprobs
        return Sampling(drawn.temperature, drawn.max_tokens, drawn.top_p, (stop,), logprobs)

    def _positions(self, completion: Completion) -> Positions | None:
        if self.probabilities == "hard":
            return None
        if completion.logprobs is None:
            raise UserError(
                "the model reports no log-probabilities: score by the tokens alone with method.probabilities=hard"
            )
        return completion.logprobs

    async def _weigh(self, written: Written[T] | None) -> Written[T] | None:
        """Ask for the weights of the tokens whose class was not reported in full."""
        if written is None or written.logprobs is None or isinstance(written.segment, HypotheticalRelations):
            return written
        logprobs = written.logprobs
        wanted = [
            mark
            for mark in find_marks(written.text)
            if mark.kind in _WEIGHED and not reported_weights(mark, logprobs)[1]
        ]
        weights = await concurrently(self._choose(written, mark) for mark in wanted)
        exact = {(mark.kind, mark.place): found for mark, found in zip(wanted, weights, strict=True) if found}
        return Written(written.segment, written.value, written.text, logprobs, exact)

    async def _choose(self, written: Written[Any], mark: Mark) -> Weights | None:
        choice = TokenChoice(written.segment, written.text[: mark.start], mark)
        sampling = Sampling(self.sampling.temperature, 1, self.sampling.top_p)
        try:
            return await self.llm.choose(choice, CLASSES[mark.kind], sampling)
        except BudgetExhausted:
            self.exhausted = True
            return None
