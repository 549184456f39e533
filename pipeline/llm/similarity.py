"""A model-free policy: every prompt is answered by lexical similarity alone. The lower baseline, labelled as such."""

from __future__ import annotations

import math
from typing import Self

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from pipeline.kg.port import KnowledgeGraph
from pipeline.llm.port import OneModel
from pipeline.llm.prompt import Call, Completion
from pipeline.llm.simulated import written
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.types import Example


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class Similarity(OneModel):
    """Writes what each prompt's `write_by_similarity` makes of its own inputs. It knows no gold and no language."""

    def __post_init__(self) -> None:
        self.identity = "similarity"
        self.label: str | None = "similarity"
        self._encoder = LexicalEncoder()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        pass

    def for_question(self, example: Example, kg: KnowledgeGraph) -> Self:
        return self

    async def complete(self, call: Call) -> Completion:
        """The text that the prompt's policy writes."""
        return written(call, call.prompt.write_by_similarity(self._encoder))

    async def choose(self, call: Call) -> Completion:
        """The softmax of each choice's similarity to that text."""
        text = call.prompt.write_by_similarity(self._encoder)
        weights = [math.exp(similarity) for similarity in self._encoder.similarities(text, call.choices)]
        total = sum(weights)
        probabilities = {choice: weight / total for choice, weight in zip(call.choices, weights, strict=True)}
        return written(call, max(probabilities, key=probabilities.__getitem__), probabilities=probabilities)
