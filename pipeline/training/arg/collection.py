"""Collecting ArG's training data, as a method over solved questions: draw a reference path, have it labelled (§7.2).

Being a method, a collection is a run: its calls are traced, shared, budgeted and resumed like those of any other. What
it answers is the end of the path; what it is for is the decision `collected`, or `rejected`, in the trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field, replace
from dataclasses import dataclass as plain_dataclass
from random import Random
from typing import Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.errors import ParseError
from pipeline.kg.paths import RelationPath, answer_nodes, draw_walk, find_paths, gold_paths
from pipeline.llm.prompt import Prompt, Sampling
from pipeline.methods.arg.answers import write_judged
from pipeline.methods.arg.entities import UNKNOWN_ENTITY, EntitySegment
from pipeline.methods.arg.layout import Segment
from pipeline.methods.arg.relations import RelationSegment
from pipeline.methods.arg.tokens import (
    NOT_USEFUL,
    PARTIALLY_RELEVANT,
    RETRIEVE_RELATION,
    UNREASONABLE,
    UNRELEVANT,
)
from pipeline.methods.instance import Instance
from pipeline.methods.port import Tools
from pipeline.methods.rendering import Names, node_name, one_line
from pipeline.training.arg.critic import EntityRelevance, Judgement, Rationality, RelationRelevance, Utility
from pipeline.training.solved import Solved
from pipeline.types import Answer, EntityId, Node, Prediction, Question, Relation

T = TypeVar("T")

_UNREADABLE = "the text would not read back as it was labelled"
_ANSWERS_OF_A_PATH = 5
"""Answers that the critic is told when it judges a path."""


class Unfit(Exception):
    """Why a path, or a question, gives no training text. The message is the same for all that are unfit alike."""


@plain_dataclass(frozen=True, slots=True)
class Hop:
    """What the text says of one hop."""

    relations: Mapping[str, str]
    """The relations offered, each with its relevance."""
    entities: Mapping[str, str]
    """The tails shown, each with its relevance."""
    rationality: str


@plain_dataclass(frozen=True, slots=True)
class Sample:
    """One training text and what it was made of."""

    text: str
    """The whole of the model's turn, in the layout of §4.3."""
    walk: Instance
    """The reference path: to its end, also where the text stops before."""
    hops: Sequence[Hop]
    answers: Judgement


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class ArGCollection:
    """Draws a reference path and has it labelled. The settings are described in `conf/collect_arg.yaml`."""

    name: str = "collect-arg"
    paths: Literal["shortest", "known"] = "shortest"
    max_hops: PositiveInt = 4
    max_paths: PositiveInt = 3
    retrieve_k: PositiveInt | Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = 5
    max_tails_shown: PositiveInt = 5
    max_tails_fetched: PositiveInt = 100
    max_answers: PositiveInt = 10
    temperature: NonNegativeFloat = 1.0
    max_tokens: PositiveInt = 1024
    parse_retries: NonNegativeInt = 2

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Label the drawn paths, one after the other, until one gives a text."""
        assert isinstance(question, Solved), "training data is collected from solved questions"
        case = _Case(question, tools)
        try:
            sample = await self._collect(case)
        except Unfit as unfit:
            tools.record("rejected", reason=str(unfit))
            return Answer(status="ok" if question.topic_entities else "no_topic_entity")
        tools.record("collected", **_payload(sample, case.names))
        return Answer(
            predictions=tuple(map(Prediction, sample.answers.usefulness)),
            raw=sample.text,
            evidence=(sample.walk.triples,),
            names={node: case.names.get(node) for node in sample.walk.nodes if isinstance(node, str)},
        )

    async def _collect(self, case: _Case) -> Sample:
        """The first text that a drawn path gives. Raises Unfit."""
        question = case.question
        if question.held_out:
            raise Unfit("held out")
        if not question.topic_entities:
            raise Unfit("no topic entity")
        if not question.gold.answers:
            raise Unfit("no answer")
        unfit = Unfit(f"no path to an answer within {self.max_hops} hops")
        for topic, path in await self._draw_paths(case):
            try:
                return await self._label(case, await self._draw_walk(case, topic, path))
            except Unfit as found:
                case.tools.record("pruned", reason=str(found), topic=topic, path=path)
                unfit = found
        raise unfit

    # The reference path

    async def _draw_paths(self, case: _Case) -> list[tuple[EntityId, RelationPath]]:
        """A few relation paths from topic entities to gold answers, at random."""
        gold, kg = case.question.gold, case.tools.kg
        found: list[tuple[EntityId, RelationPath]] = []
        for topic in case.question.topic_entities:
            if self.paths == "known":
                known = gold.paths.get(topic.id, ())
                paths = await gold_paths(kg, topic.id, known, gold.answers, max_hops=self.max_hops)
            else:
                paths = await find_paths(kg, topic.id, gold.answers, max_hops=self.max_hops)
            found += [(topic.id, path) for path in paths]
        return case.random.sample(found, min(self.max_paths, len(found)))

    async def _draw_walk(self, case: _Case, topic: EntityId, path: RelationPath) -> Instance:
        """One of the walks along a path that end in a gold answer."""
        kg = case.tools.kg
        goals = await answer_nodes(kg, case.question.gold.answers)
        nodes = await draw_walk(kg, topic, path, goals, case.random)
        if nodes is None:  # the walk was cut at a layer that is too wide
            raise Unfit("no walk along the path ends in an answer")
        walk = Instance(topic)
        for relation, node in zip(path, nodes, strict=True):
            walk = walk.then(relation, node)
        await case.look_up_names(walk.nodes)
        if node_name(walk.end, case.names) is None:
            raise Unfit("the answer has no name")
        return walk

    # The labels, and the text as it grows

    async def _label(self, case: _Case, walk: Instance) -> Sample:
        """Lay the walk out hop by hop; it stops early where the critic calls it unreasonable. Raises Unfit."""
        text = RETRIEVE_RELATION
        hops: list[Hop] = []
        while True:
            so_far = walk.first(len(hops) + 1)
            offered = await self._offer_relations(case, text, so_far)
            relations = await self._ask(case, RelationRelevance(offered, case.names))
            if not relations:
                raise Unfit("the critic's relevance of relations cannot be read")
            reached = await self._offer_tails(case, _with_relations(offered, relations), so_far)
            entities = await self._judge_tails(case, reached, so_far)
            rationality = await self._judge_path(case, so_far)
            hop = Hop(relations, entities, rationality)
            hops.append(hop)
            stopped = rationality == UNREASONABLE
            if not stopped and UNRELEVANT in (relations[so_far.path[-1]], entities[case.printed(so_far.end)]):
                raise Unfit("the critic calls a step unrelevant, and the path reasonable")
            if stopped or so_far == walk:
                answers = await self._judge_answers(case, reached, stopped=stopped)
                return Sample(_with_tails(reached, hop, answers), walk, hops, answers)
            text = _with_tails(reached, hop, None)

    async def _offer_relations(self, case: _Case, text: str, so_far: Instance) -> RelationSegment:
        """The relations nearest to the question and the next hop, that hop's own among them, in an order drawn.

        The hop's own is what was asked for, so it would stand first in every text.
        """
        relation, end = so_far.steps[-1].relation.name, node_name(so_far.end, case.names)
        query = " ".join(filter(None, (case.question.text, relation, end)))
        most = self.retrieve_k if isinstance(self.retrieve_k, int) else case.random.choice(self.retrieve_k)
        found = await case.tools.retrieval.relations(query, most)
        before = so_far.first(so_far.length - 1)
        group = _with(relation, found, most)
        group = tuple(case.random.sample(group, len(group)))
        return RelationSegment(case.question, prompted=False, before=text, group=group, instances=(before,))

    async def _offer_tails(self, case: _Case, text: str, so_far: Instance) -> EntitySegment:
        """The first tails of the hop's relation, in both directions; the hop's own takes the last place if need be.

        An unnamed tail stands for itself and others like it: no named one is shown beside it.
        """
        before, (relation, node) = so_far.first(so_far.length - 1), so_far.steps[-1]
        is_named = node_name(before.end, case.names) is not None
        ways = [way for way in _both_directions(relation) if is_named or way == relation]
        source = before.entity
        found = await case.tools.kg.neighbours([(source, way) for way in ways], self.max_tails_fetched)
        tails = dict.fromkeys(before.then(way, end) for way in ways for end in found[source, way].nodes)
        tails |= {so_far: None}
        await case.look_up_names(tail.end for tail in tails)
        segment = EntitySegment(
            question=case.question,
            prompted=False,
            before=text,
            source=before,
            relation=relation.name,
            tails=tuple(tails),
            names=case.names,
            max_shown=self.max_tails_shown,
            cvt_fanout=len(tails),
        )
        own = case.printed(node)
        kept = (own,) if own == UNKNOWN_ENTITY else _with(own, list(segment.by_name), self.max_tails_shown)
        return replace(segment, tails=tuple(tail for name in kept for tail in segment.by_name[name]))

    async def _judge_tails(self, case: _Case, reached: EntitySegment, so_far: Instance) -> Mapping[str, str]:
        if case.printed(so_far.end) == UNKNOWN_ENTITY:
            return {UNKNOWN_ENTITY: PARTIALLY_RELEVANT}
        labels = await self._ask(case, EntityRelevance(reached))
        if not labels:
            raise Unfit("the critic's relevance of entities cannot be read")
        return labels

    async def _judge_path(self, case: _Case, so_far: Instance) -> str:
        answers = tuple(answer.name for answer in case.question.gold.answers[:_ANSWERS_OF_A_PATH])
        rationality = await self._ask(case, Rationality(case.question, so_far, answers, case.names))
        if rationality is None:
            raise Unfit("the critic's rationality cannot be read")
        return rationality

    async def _judge_answers(self, case: _Case, reached: EntitySegment, *, stopped: bool) -> Judgement:
        """The gold answers that the text shows, judged; after an early stop, which is to answer from memory, all."""
        gold = case.question.gold.answers
        goals = await answer_nodes(case.tools.kg, gold)
        tails = (pair for pair in reached.shown_tails.items() if pair[0] != UNKNOWN_ENTITY)
        shown = [name for name, of_name in tails if any(tail.end in goals for tail in of_name)]
        named = [one_line(answer.name) for answer in gold] if stopped else shown
        answers = tuple(dict.fromkeys(named))[: self.max_answers]
        return await self._ask(case, Utility(case.question, answers))

    async def _ask(self, case: _Case, prompt: Prompt[T]) -> T:
        return await case.tools.llm.ask(prompt, Sampling(self.temperature, self.max_tokens), retries=self.parse_retries)


@plain_dataclass
class _Case:
    """A question and all there is to work on it with."""

    question: Solved
    tools: Tools
    names: dict[EntityId, str | None] = field(default_factory=dict)
    """The names of all entities met so far."""
    random: Random = field(init=False)

    def __post_init__(self) -> None:
        self.names.update((topic.id, topic.name) for topic in self.question.topic_entities)
        self.random = self.tools.rng("collect")

    async def look_up_names(self, nodes: Iterable[Node]) -> None:
        new = sorted({node for node in nodes if isinstance(node, str) and node not in self.names})
        self.names.update(await self.tools.kg.labels(new) if new else {})

    def printed(self, node: Node) -> str:
        """What a node is called in the text."""
        return one_line(node_name(node, self.names) or UNKNOWN_ENTITY)


def _with_relations(offered: RelationSegment, labels: Mapping[str, str]) -> str:
    """The text up to `[Retrieve Entity]`. Raises Unfit unless the method reads in it what was written."""
    written = offered.written(labels)
    read = _read_back(offered, written)
    _check({pair.name: pair.mark.token for pair in read} == labels)
    return offered.shown + written


def _with_tails(reached: EntitySegment, hop: Hop, answers: Judgement | None) -> str:
    """The text up to the next `[Retrieve Relation]`, or to its end. Raises Unfit as `_with_relations`."""
    answer = write_judged(answers.usefulness, answers.utility) if answers else None
    written = reached.written(hop.entities, hop.rationality, answer)
    read = _read_back(reached, written)
    relevant = {name for name, label in hop.entities.items() if label != UNRELEVANT}
    _check([mark.token for mark in read.relevance] == list(hop.entities.values()))
    _check(set(read.relevant) == {tail for name in relevant for tail in reached.by_name[name]})
    _check(read.rationality is not None and read.rationality.token == hop.rationality)
    _check((read.answered is None) == (answers is None))
    if read.answered and answers:
        useful = [text for text, label in answers.usefulness.items() if label != NOT_USEFUL]
        _check(list(read.answered.texts) == (useful or list(answers.usefulness)))
        _check(read.answered.utility is not None and read.answered.utility.token == answers.utility)
    return reached.shown + written


def _read_back(segment: Segment[T], written: str) -> T:
    try:
        return segment.parse(written)
    except ParseError:
        raise Unfit(_UNREADABLE) from None


def _check(is_as_written: bool) -> None:
    if not is_as_written:
        raise Unfit(_UNREADABLE)


def _with(own: str, found: Sequence[str], most: int) -> tuple[str, ...]:
    """The first few of what was found, `own` in the last place where it is not among them."""
    kept = tuple(found[:most])
    return kept if own in kept else (*kept[: most - 1], own)


def _both_directions(relation: Relation) -> tuple[Relation, Relation]:
    return Relation(relation.name, "out"), Relation(relation.name, "in")


def _payload(sample: Sample, names: Names) -> dict[str, Any]:
    """The sample as the trace holds it."""
    return {
        "text": sample.text,
        "topic": {"id": sample.walk.start, "name": node_name(sample.walk.start, names)},
        "path": [
            {
                "relation": step.relation.name,
                "direction": step.relation.direction,
                "node": step.node if isinstance(step.node, str) else step.node.value,
                "name": node_name(step.node, names),
            }
            for step in sample.walk.steps
        ],
        "hops": [asdict(hop) for hop in sample.hops],
        "answers": sample.answers.usefulness,
        "utility": sample.answers.utility,
    }
