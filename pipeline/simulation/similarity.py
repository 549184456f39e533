"""The similarity policy: answers every prompt by lexical similarity alone, as a lower baseline without a model.

The functions at the end rank texts and break ties. The simulators in `pipeline/simulation/methods/` write the replies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Self

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from pipeline.kg.interface import KnowledgeGraph
from pipeline.llm.interface import OneModel
from pipeline.llm.prompt import Call, Completion
from pipeline.methods.grounded_path import GroundedPath, Path
from pipeline.methods.rendering import Names, names_of
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.retrieval.relations import as_text
from pipeline.simulation.completions import simulated_completion
from pipeline.simulation.registry import load_simulators, simulator_of, write_by_similarity
from pipeline.types import Example


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class Similarity(OneModel):
    """Replies with `write_by_similarity` of each prompt's simulator. It knows neither gold answers nor language.

    The keys are described in `conf/llm/similarity.yaml`.
    """

    simulators: tuple[str, ...]
    """The user's modules that register simulators."""

    def __post_init__(self) -> None:
        load_simulators(self.simulators)
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
        """Return the text, or the candidates, that the prompt's simulator writes."""
        if (count := call.sampling.candidates) == 1:
            return simulated_completion(call, [write_by_similarity(call.prompt, self._encoder)])
        simulator = simulator_of(call.prompt)
        return simulated_completion(call, simulator.write_candidates_by_similarity(call.prompt, self._encoder, count))

    async def choose(self, call: Call) -> Completion:
        """Return the softmax of each choice's similarity to that text."""
        text = write_by_similarity(call.prompt, self._encoder)
        weights = [math.exp(similarity) for similarity in self._encoder.similarities(text, call.choices)]
        total = sum(weights)
        probabilities = {choice: weight / total for choice, weight in zip(call.choices, weights, strict=True)}
        return simulated_completion(
            call, [max(probabilities, key=probabilities.__getitem__)], probabilities=probabilities
        )


def rank_relations(relations: Sequence[str], question: str, encoder: LexicalEncoder) -> list[str]:
    """Return the relations, the most similar to the question first, and equals by name."""
    scores = encoder.similarities(question, [as_text(relation) for relation in relations])
    ranking = sorted(zip(scores, relations, strict=True), key=lambda pair: (-pair[0], pair[1]))
    return [relation for _, relation in ranking]


def rank_names(names: Sequence[str], question: str, encoder: LexicalEncoder) -> list[str]:
    """Return the names, the most similar to the question first, and equals in the order given."""
    scores = encoder.similarities(question, names)
    ranking = sorted(range(len(names)), key=lambda index: (-scores[index], index))
    return [names[index] for index in ranking]


def most_similar_path(paths: Iterable[Path], question: str, encoder: LexicalEncoder) -> Path | None:
    """Return the path that is most similar to the question, the first of equals; None when there is no path."""
    distinct = list(dict.fromkeys(paths))
    scores = encoder.similarities(question, [" ".join(map(as_text, path)) for path in distinct])
    return max(zip(distinct, scores, strict=True), key=lambda pair: pair[1], default=(None, 0.0))[0]


def ends_of_most_similar_path(
    chains: Sequence[GroundedPath], names: Names, question: str, encoder: LexicalEncoder
) -> list[str]:
    """Return the distinct names of the nodes at the ends of the chains whose path is most similar to the question."""
    best = most_similar_path([chain.path for chain in chains], question, encoder)
    ends = names_of((chain.end for chain in chains if chain.path == best), names)
    return list(dict.fromkeys(ends.values()))
