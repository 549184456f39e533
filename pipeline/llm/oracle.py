"""The oracle: a simulated model that knows the gold paths and answers, and can be made to err (design: idea 5).

It knows where to look (the relations that lead to an answer, and the nodes on the way), and knows the answer when it
sees it, but answers from the evidence alone: what a method has not found, it does not say, not even where the method
falls back on the model's own knowledge. So its score is the method's.
The one exception is `cot`, which is the model alone and is told the gold answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Annotated, Self, TypeAlias
from weakref import WeakValueDictionary

from pydantic import ConfigDict, Field, NonNegativeFloat
from pydantic.dataclasses import dataclass as pydantic_dataclass

from pipeline.datasets.gold_paths import Operation, query_operation
from pipeline.kg.paths import Leg, RelationPath, answer_nodes, gold_paths, instantiate, leading_paths, legs, waypoints
from pipeline.kg.port import AttributedGraph, KnowledgeGraph
from pipeline.llm.mentions import ground
from pipeline.llm.port import OneModel
from pipeline.llm.prompt import Call, Completion
from pipeline.llm.simulated import written
from pipeline.text import normalise
from pipeline.types import Entity, EntityId, Example, Gold, LiteralNode, Node, Question

_NO_BRACKETS = str.maketrans("", "", "()[]{}<>")
_CURLY_QUOTES = str.maketrans({'"': "\u201d", "'": "\u2019"})

Rate = Annotated[float, Field(ge=0, le=1)]

_Paths: TypeAlias = Mapping[EntityId, tuple[RelationPath, ...]]
_Ways: TypeAlias = Mapping[EntityId, tuple[Leg, ...]]


@dataclass(frozen=True)
class Truth:
    """What the oracle knows of one question. Prompts read it in `write_as_oracle`; methods never see it."""

    question: Question
    gold: Gold
    paths: _Paths
    """Per topic entity the relation paths to what is sought in the graph at hand, best first; may be empty."""
    counted: frozenset[Node] = frozenset()
    """The nodes whose number is the answer, when it is no node itself; empty for every other question."""
    waypoints: frozenset[Node] = frozenset()
    """The nodes from which a path goes on to what is sought: not every node that begins like a path does."""
    topics: tuple[Entity, ...] = ()
    """The nodes that the question mentions, where the dataset does not name them (GRBench)."""
    features: frozenset[str] = frozenset()
    """Those names in `paths` that are features of nodes, not edges (GRBench); a path without one ends in a number."""
    ways: _Ways = field(default_factory=dict)
    """Per topic entity that has a path, where the best one leads, leg by leg."""

    @cached_property
    def operation(self) -> Operation | None:
        """What the question wants done with the nodes that the paths lead to, where its gold SPARQL tells."""
        return query_operation(self.gold.sparql) if self.gold.sparql else None

    def is_sought(self, node: Node, name: str | None) -> bool:
        """Whether the evidence needs a graph node, printed under `name`: a gold answer, or a thing to count."""
        return node in self.counted if self.counted else self.is_answer_node(node, name)

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
        """Some datasets list MIDs among the aliases."""
        return frozenset(id for answer in self.gold.answers for id in (answer.id, *answer.aliases) if id)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(normalise(name) for answer in self.gold.answers for name in (answer.name, *answer.aliases))


async def find_truth(example: Example, kg: KnowledgeGraph) -> Truth:
    """Look up the relation paths from each topic entity to a gold answer in this graph (`gold_paths`).

    If there is none at all, the dataset's own paths to what its answer is made of are trusted (`leading_paths`). For a
    question of GRBench, which names no topic entity, both are found by its words (`ground`).
    """
    question, gold = example.question, example.gold
    if not question.topic_entities and isinstance(kg, AttributedGraph):
        grounded = await ground(question.text, gold, kg)
        return Truth(question, grounded.gold, grounded.paths, topics=grounded.topics, features=grounded.features)
    known = {topic.id: gold.paths.get(topic.id, ()) for topic in question.topic_entities}
    found = await asyncio.gather(*(gold_paths(kg, topic, paths, gold.answers) for topic, paths in known.items()))
    if any(found):
        paths = _by_topic(known, found)
        on_the_way = await _waypoints(kg, paths, await answer_nodes(kg, gold.answers))
        return Truth(question, gold, paths, waypoints=on_the_way, ways=await _ways(kg, paths, gold))
    found = await asyncio.gather(*(leading_paths(kg, topic, paths, gold.answers) for topic, paths in known.items()))
    paths = _by_topic(known, found)
    ways = await _ways(kg, paths, gold)
    counted = await _counted(kg, paths, ways, gold)
    on_the_way = await _waypoints(kg, paths, counted)
    return Truth(question, gold, paths, counted, on_the_way, ways=ways)


async def _waypoints(kg: KnowledgeGraph, paths: _Paths, goals: Container[Node]) -> frozenset[Node]:
    all_paths = [(topic, path) for topic, of_topic in paths.items() for path in of_topic if len(path) > 1]
    return frozenset().union(*await asyncio.gather(*(waypoints(kg, topic, path, goals) for topic, path in all_paths)))


async def _ways(kg: KnowledgeGraph, paths: _Paths, gold: Gold) -> _Ways:
    best = [(topic, of_topic[0]) for topic, of_topic in paths.items() if of_topic]
    found = await asyncio.gather(*(legs(kg, topic, path, gold.answers) for topic, path in best))
    return {topic: way for (topic, _), way in zip(best, found, strict=True)}


def _by_topic(topics: Iterable[EntityId], found: Iterable[Sequence[RelationPath]]) -> _Paths:
    return {topic: tuple(paths) for topic, paths in zip(topics, found, strict=True)}


async def _counted(kg: KnowledgeGraph, paths: _Paths, ways: _Ways, gold: Gold) -> frozenset[Node]:
    """The nodes to which the best paths of all topic entities lead, if the gold answer is their number.

    Some queries count what a path comes back to (her marriages lead to herself, too), others exclude it: either may be.
    """
    best = [(topic, of_topic[0]) for topic, of_topic in paths.items() if of_topic]
    if not best or len(gold.answers) != 1:
        return frozenset()
    reached = await asyncio.gather(*(instantiate(kg, topic, path) for topic, path in best))
    onwards = [way[-1].nodes if way else frozenset() for way in ways.values()]
    for ends in ([frozenset(end.nodes) for end in reached], onwards):
        common = frozenset.intersection(*ends) - paths.keys()
        if normalise(gold.answers[0].name) == str(len(common)):
            return common
    return frozenset()


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
        """The oracle of one question. All that are in use for one example and graph share one look-up of the truth."""
        place = id(example), id(kg)
        known = _IN_USE.get(place)
        if known is None:
            known = _IN_USE[place] = _KnownTruth(example, kg)
        return QuestionOracle(self, known)


class _KnownTruth:
    """The truth of one question about one graph, looked up when it is first needed."""

    def __init__(self, example: Example, kg: KnowledgeGraph) -> None:
        self.question_id = example.question.id
        self._example = example
        self._kg = kg
        self._truth: Truth | None = None
        self._looking_up = asyncio.Lock()

    async def get(self) -> Truth:
        async with self._looking_up:
            if self._truth is None:
                self._truth = await find_truth(self._example, self._kg)
        return self._truth


_IN_USE: WeakValueDictionary[tuple[int, int], _KnownTruth] = WeakValueDictionary()
"""By the identities of the example and the graph, which last as long as the value: it holds both."""


class QuestionOracle(OneModel):
    """Replies to the prompts of one question as a perfect model would, or errs, by draws seeded by what is asked."""

    def __init__(self, oracle: Oracle, known: _KnownTruth) -> None:
        """Bind to a question; the truth about it is looked up at the first call."""
        self.identity = oracle.identity
        self._oracle = oracle
        self._known = known

    async def complete(self, call: Call) -> Completion:
        """What a perfect model would write, or an erring or a damaged version of it."""
        rng = self._draws(call)
        doubt, slip = self._err(rng)
        is_malformed = rng.random() < self._oracle.malformed_rate
        text = await self._write(call, slip)
        return written(call, damage(text, rng) if is_malformed else text, doubt=doubt)

    async def choose(self, call: Call) -> Completion:
        """Puts what its doubt leaves on the choice that the written text mentions first; the others share the doubt."""
        doubt, slip = self._err(self._draws(call))
        text = await self._write(call, slip)
        mentioned = {choice: position for choice in call.choices if (position := text.find(choice)) >= 0}
        if not mentioned:
            raise ValueError(f"what the oracle writes for {call.prompt.role} names none of {call.choices}: {text}")
        favourite = min(mentioned, key=lambda choice: (mentioned[choice], -len(choice)))
        others = [choice for choice in call.choices if choice != favourite]
        shares = {choice: doubt / len(others) for choice in others}
        probabilities = {choice: shares.get(choice, 1 - sum(shares.values())) for choice in call.choices}
        return written(call, favourite, probabilities=probabilities)

    def _draws(self, call: Call) -> Random:
        """Seeded by what is asked and not by the aids that come with it (`Prompt.aids`)."""
        asked = sorted((name, text) for name, text in call.prompt.inputs().items() if name not in call.prompt.aids)
        return Random(repr((self._known.question_id, call.prompt.role, asked, call.choices, call.nonce)))

    def _err(self, rng: Random) -> tuple[float, Random | None]:
        """How doubtful this call is, and what a slip is drawn from if it goes wrong.

        The model is calibrated: doubts are spread evenly around the error rate, and a call goes wrong with the
        probability of its doubt. So its probabilities say something, as those of a good model do.
        """
        rate = self._oracle.error_rate
        doubt = rate + min(rate, 1 - rate) * (2 * rng.random() - 1)
        return doubt, rng if rng.random() < doubt else None

    async def _write(self, call: Call, slip: Random | None) -> str:
        await asyncio.sleep(self._oracle.latency_s)
        return call.prompt.write_as_oracle(await self._known.get(), slip)


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
