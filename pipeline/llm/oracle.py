"""The oracle: a simulated model that knows the gold paths and answers, and can be made to err (design: idea 5)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from random import Random
from typing import Annotated, Self

from pydantic import ConfigDict, Field, NonNegativeFloat
from pydantic.dataclasses import dataclass as pydantic_dataclass

from pipeline.kg.paths import RelationPath, find_paths, rank_paths
from pipeline.kg.port import KnowledgeGraph
from pipeline.llm.prompt import Call, Completion
from pipeline.llm.simulated import written
from pipeline.text import normalise
from pipeline.types import Direction, EntityId, Example, Gold, GoldAnswer, LiteralNode, Node, Question, Relation

MAX_HOPS = 4
"""Longest path that is searched for where the dataset gives none."""

_NO_BRACKETS = str.maketrans("", "", "()[]{}<>")
_CURLY_QUOTES = str.maketrans({'"': "\u201d", "'": "\u2019"})
_DIRECTIONS: tuple[Direction, ...] = ("out", "in")

Rate = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class Truth:
    """What the oracle knows of one question. Prompts read it in `write_as_oracle`; methods never see it."""

    question: Question
    gold: Gold
    paths: Mapping[EntityId, tuple[tuple[Relation, ...], ...]]
    """Per topic entity the relation paths that reach a gold answer in the graph at hand, best first; may be empty."""

    def is_answer(self, text: str | None = None, *, id: EntityId | None = None) -> bool:
        """Whether a text (under `normalise`) or an id is one of the gold answers."""
        return (id is not None and id in self._ids) or (text is not None and normalise(text) in self._names)

    def is_answer_node(self, node: Node, name: str | None) -> bool:
        """Whether a graph node, printed under `name`, is one of the gold answers."""
        if isinstance(node, LiteralNode):
            return self.is_answer(node.value)
        return self.is_answer(name, id=node)

    @cached_property
    def _ids(self) -> frozenset[EntityId]:
        return frozenset(answer.id for answer in self.gold.answers if answer.id is not None)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(normalise(name) for answer in self.gold.answers for name in (answer.name, *answer.aliases))


async def find_truth(example: Example, kg: KnowledgeGraph) -> Truth:
    """Look up which relation paths lead from each topic entity to a gold answer in this graph.

    The dataset's own paths count if they do; else the same relations in other directions (not every dataset marks
    them); else the shortest paths of at most `MAX_HOPS` relations.
    """
    question, gold = example.question, example.gold
    topics = [topic.id for topic in question.topic_entities]
    paths = await asyncio.gather(*(_paths(kg, id, gold.paths.get(id, ()), gold.answers) for id in topics))
    return Truth(question, gold, {id: tuple(reaching) for id, reaching in zip(topics, paths, strict=True)})


@pydantic_dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class Oracle:
    """A model that knows the truth of every question, and errs at the given rates."""

    error_rate: Rate = 0.0
    malformed_rate: Rate = 0.0
    latency_s: NonNegativeFloat = 0.0

    def __post_init__(self) -> None:
        self.identity = f"oracle(error_rate={self.error_rate:g},malformed_rate={self.malformed_rate:g})"
        self.label: str | None = "oracle"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        pass

    def for_question(self, example: Example, kg: KnowledgeGraph) -> QuestionOracle:
        return QuestionOracle(self, example, kg)


class QuestionOracle:
    """Replies to the prompts of one question as a perfect model would, or errs, by draws seeded by the call."""

    def __init__(self, oracle: Oracle, example: Example, kg: KnowledgeGraph) -> None:
        """Bind to a question; the truth about it is looked up at the first call."""
        self.identity = oracle.identity
        self._oracle = oracle
        self._example = example
        self._kg = kg
        self._truth: Truth | None = None
        self._looking_up = asyncio.Lock()

    async def complete(self, call: Call) -> Completion:
        """What a perfect model would write, or an erring or a damaged version of it."""
        rng = Random(call.seed)
        errs, is_malformed = rng.random() < self._oracle.error_rate, rng.random() < self._oracle.malformed_rate
        text = await self._write(call, rng if errs else None)
        return written(call, damage(text, rng) if is_malformed else text)

    async def choose(self, call: Call) -> Completion:
        """Puts 1 - error_rate on the choice that the written text mentions first; the others share the rest."""
        rng, error_rate = Random(call.seed), self._oracle.error_rate
        text = await self._write(call, rng if rng.random() < error_rate else None)
        mentioned = {choice: position for choice in call.choices if (position := text.find(choice)) >= 0}
        if not mentioned:
            raise ValueError(f"what the oracle writes for {call.prompt.role} names none of {call.choices}: {text}")
        favourite = min(mentioned, key=lambda choice: (mentioned[choice], -len(choice)))
        others = [choice for choice in call.choices if choice != favourite]
        shares = {choice: error_rate / len(others) for choice in others}
        probabilities = {choice: shares.get(choice, 1 - sum(shares.values())) for choice in call.choices}
        return written(call, favourite, probabilities=probabilities)

    async def _write(self, call: Call, slip: Random | None) -> str:
        await asyncio.sleep(self._oracle.latency_s)
        async with self._looking_up:
            if self._truth is None:
                self._truth = await find_truth(self._example, self._kg)
        return call.prompt.write_as_oracle(self._truth, slip)


def damage(text: str, rng: Random) -> str:
    """Spoil a reply in one of the ways in which models do; a parser may or may not get over it."""
    damaged = (
        text[: rng.randrange(len(text) + 1)],
        text.translate(_NO_BRACKETS),
        text.translate(_CURLY_QUOTES),
        f"```\n{text}\n```",
        f"Sure, here is what you asked for.\n\n{text}\n\nShall I explain any of it?",
        f"{text}\n{text}",
        "As far as I can tell, there is more than one way to look at this question.",
        "",
    )
    return rng.choice(damaged)


async def _paths(
    kg: KnowledgeGraph, topic: EntityId, given: Sequence[RelationPath], answers: Sequence[GoldAnswer]
) -> list[RelationPath]:
    return (
        await rank_paths(kg, topic, given, answers)
        or await rank_paths(kg, topic, _redirected(given), answers)
        or await find_paths(kg, topic, answers, max_hops=MAX_HOPS)
    )


def _redirected(paths: Iterable[RelationPath]) -> Iterator[RelationPath]:
    """Every path in every combination of directions, the given ones too."""
    for path in paths:
        for directions in product(_DIRECTIONS, repeat=len(path)):
            yield tuple(
                Relation(relation.name, direction) for relation, direction in zip(path, directions, strict=True)
            )
