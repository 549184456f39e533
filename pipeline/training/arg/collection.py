"""Collects ArG's training data as a method over solved questions (specification §7.2).

For each question it draws a reference path and has a critic label it. A collection is a run like any other: its calls
are traced, deduplicated, budgeted and resumed. Its product is the event `collected`, or `rejected`, in each trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field, replace
from dataclasses import dataclass as plain_dataclass
from random import Random
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.errors import ParseError
from pipeline.kg.paths import GoldNodes, find_paths, gold_paths
from pipeline.llm.prompt import Prompt, Sampling
from pipeline.methods.arg.answers import write_answers
from pipeline.methods.arg.entities import EntitySegment, FactLayout
from pipeline.methods.arg.relations import RelationSegment
from pipeline.methods.arg.tails import TailOrder, ordered_tails
from pipeline.methods.arg.tokens import (
    NOT_USEFUL,
    PARTIALLY_RELEVANT,
    RETRIEVE_RELATION,
    UNREASONABLE,
    UNRELEVANT,
)
from pipeline.methods.arg.transcript import UNKNOWN_ENTITY, Segment, printed_node
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.interface import Tools
from pipeline.methods.rendering import Names, node_name, one_line
from pipeline.simulation.gold_path_search import draw_walk
from pipeline.training.arg.critic import EntityRelevance, Judgement, Rationality, RelationRelevance, Utility
from pipeline.training.labelled import LabelledQuestion
from pipeline.types import Answer, EntityId, Node, Prediction, Question, Relation, RelationPath

T = TypeVar("T")

_UNREADABLE = "the text would not read back as it was labelled"
_ANSWERS_SHOWN = 5
"""Gold answers that the critic sees when it judges a path."""


class Unusable(Exception):
    """A path or a question gives no training text. The message is the reason, which the report counts."""


@plain_dataclass(frozen=True, slots=True)
class Hop:
    """The labels of one hop."""

    relations: Mapping[str, str]
    """The relevance of each offered relation."""
    entities: Mapping[str, str]
    """The relevance of each shown tail."""
    rationality: str


@plain_dataclass(frozen=True, slots=True)
class Sample:
    """One training text with its labels."""

    text: str
    """The model's whole turn, in the layout of specification §4.3."""
    walk: GroundedPath
    """The whole reference path, even if the text stops earlier."""
    hops: Sequence[Hop]
    answers: Judgement


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class ArGCollection:
    """Draws a reference path and has it labelled. The keys are described in `conf/collect_arg.yaml`."""

    prompts: ClassVar = (RelationRelevance, EntityRelevance, Rationality, Utility)
    name: str
    paths: Literal["shortest", "known"]
    max_hops: PositiveInt
    max_paths: PositiveInt
    retrieve_k: PositiveInt | Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    max_tails_shown: PositiveInt
    max_tails_fetched: PositiveInt
    tail_order: TailOrder
    facts: FactLayout
    contradictions: Literal["keep", "drop"]
    answers: Literal["all", "shown"]
    max_answers: PositiveInt
    temperature: NonNegativeFloat
    max_tokens: PositiveInt
    parse_retries: NonNegativeInt

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Label the drawn paths one after the other until one gives a text."""
        assert isinstance(question, LabelledQuestion), "training data is collected from solved questions"
        state = QuestionState(question, tools)
        try:
            sample = await self._collect(state)
        except Unusable as reason:
            tools.record("rejected", reason=str(reason))
            return Answer(status="ok" if question.topic_entities else "no_topic_entity")
        tools.record("collected", **_payload(sample, state.names))
        return Answer(
            predictions=tuple(map(Prediction, sample.answers.usefulness)),
            raw=sample.text,
            evidence=(sample.walk.triples,),
            names={node: state.names.get(node) for node in sample.walk.nodes if isinstance(node, str)},
        )

    async def _collect(self, state: QuestionState) -> Sample:
        """Return the first text that a drawn path gives. Raises Unusable."""
        question = state.question
        if question.unusable:
            raise Unusable(question.unusable)
        reason = Unusable(f"no path to an answer within {self.max_hops} hops")
        for topic, path in await self._draw_paths(state):
            try:
                return await self._label(state, await self._draw_walk(state, topic, path))
            except Unusable as error:
                state.tools.record("pruned", reason=str(error), topic=topic, path=path)
                reason = error
        raise reason

    # The reference path

    async def _draw_paths(self, state: QuestionState) -> list[tuple[EntityId, RelationPath]]:
        """Draw a few relation paths from topic entities to gold answers."""
        gold, kg = state.question.gold, state.tools.kg
        found: list[tuple[EntityId, RelationPath]] = []
        for topic in state.question.topic_entities:
            if self.paths == "known":
                known = gold.paths.get(topic.id, ())
                paths = await gold_paths(kg, topic.id, known, gold.answers, max_hops=self.max_hops)
            else:
                paths = await find_paths(kg, topic.id, gold.answers, max_hops=self.max_hops)
            found += [(topic.id, path) for path in paths]
        return state.random.sample(found, min(self.max_paths, len(found)))

    async def _draw_walk(self, state: QuestionState, topic: EntityId, path: RelationPath) -> GroundedPath:
        """Draw one of the walks along a path that end in a gold answer. Raises Unusable."""
        kg = state.tools.kg
        goals = await GoldNodes.resolve(kg, state.question.gold.answers)
        nodes = await draw_walk(kg, topic, path, goals, state.random)
        if nodes is None:  # a layer of the path has too many nodes to follow them all
            raise Unusable("no walk along the path ends in an answer")
        walk = GroundedPath(topic)
        for relation, node in zip(path, nodes, strict=True):
            walk = walk.then(relation, node)
        await state.look_up_names(walk.nodes)
        if node_name(walk.end, state.names) is None:
            raise Unusable("the answer has no name")
        return walk

    # The labels, and the transcript as it grows

    async def _label(self, state: QuestionState, walk: GroundedPath) -> Sample:
        """Write the walk hop by hop; stop early if the critic calls it unreasonable. Raises Unusable."""
        transcript = RETRIEVE_RELATION
        hops: list[Hop] = []
        while True:
            so_far = walk.first(len(hops) + 1)
            offered = await self._offer_relations(state, transcript, so_far)
            relations = await self._ask(state, RelationRelevance(offered, state.names))
            if not relations:
                raise Unusable("the critic's relevance of relations cannot be read")
            reached = await self._offer_tails(state, _with_relations(offered, relations), so_far)
            entities = await self._judge_tails(state, reached, so_far)
            rationality = await self._judge_path(state, so_far)
            hop = Hop(relations, entities, rationality)
            hops.append(hop)
            stopped = rationality == UNREASONABLE
            steps = (relations[so_far.path[-1]], entities[state.printed(so_far.end)])
            if self.contradictions == "drop" and not stopped and UNRELEVANT in steps:
                raise Unusable("the critic calls a step unrelevant, and the path reasonable")
            if stopped or so_far == walk:
                answers = await self._judge_answers(state, reached, stopped=stopped)
                return Sample(_with_tails(reached, hop, answers), walk, hops, answers)
            transcript = _with_tails(reached, hop, None)

    async def _offer_relations(self, state: QuestionState, transcript: str, so_far: GroundedPath) -> RelationSegment:
        """Offer the relations nearest to the question and the last hop of `so_far`, its own among them, shuffled.

        Without the shuffle the hop's own relation, which is part of the query, would come first in every text.
        """
        relation, end = so_far.steps[-1].relation.name, node_name(so_far.end, state.names)
        query = " ".join(filter(None, (state.question.text, relation, end)))
        k = self.retrieve_k if isinstance(self.retrieve_k, int) else state.random.choice(self.retrieve_k)
        nearest = await state.tools.retrieval.relations(query, k, hybrid=False)
        group = _including(relation, nearest, k)
        group = tuple(state.random.sample(group, len(group)))
        before = so_far.first(so_far.length - 1)
        return RelationSegment(state.question, prompted=False, transcript=transcript, group=group, walks=(before,))

    async def _offer_tails(self, state: QuestionState, transcript: str, so_far: GroundedPath) -> EntitySegment:
        """Offer the first tails of the last hop's relation, in both directions, with the hop's own among them.

        If the hop's own tail is unnamed, only the placeholder is shown: it covers all unnamed tails.
        """
        before, (relation, node) = so_far.first(so_far.length - 1), so_far.steps[-1]
        is_named = node_name(before.end, state.names) is not None
        directed = [each for each in _both_directions(relation) if is_named or each == relation]
        source = before.entity
        found = await state.tools.kg.neighbours([(source, each) for each in directed], self.max_tails_fetched)
        nodes = await ordered_tails(
            {hop: reached.nodes for hop, reached in found.items()},
            self.tail_order,
            lambda ends: state.tools.kg.relations(list(dict.fromkeys(ends))),
            shown=self.max_tails_shown,
            is_last=so_far.length == self.max_hops,
        )
        tails = dict.fromkeys(before.then(each, end) for each in directed for end in nodes[source, each])
        tails |= {so_far: None}
        await state.look_up_names(tail.end for tail in tails)
        segment = EntitySegment(
            question=state.question,
            prompted=False,
            transcript=transcript,
            source=before,
            relation=relation.name,
            tails=tuple(tails),
            names=state.names,
            max_shown=self.max_tails_shown,
            cvt_fanout=len(tails),
            facts=self.facts,
        )
        own = state.printed(node)
        kept = (own,) if own == UNKNOWN_ENTITY else _including(own, list(segment.by_name), self.max_tails_shown)
        return replace(segment, tails=tuple(tail for name in kept for tail in segment.by_name[name]))

    async def _judge_tails(
        self, state: QuestionState, reached: EntitySegment, so_far: GroundedPath
    ) -> Mapping[str, str]:
        if state.printed(so_far.end) == UNKNOWN_ENTITY:
            return {UNKNOWN_ENTITY: PARTIALLY_RELEVANT}
        labels = await self._ask(state, EntityRelevance(reached))
        if not labels:
            raise Unusable("the critic's relevance of entities cannot be read")
        return labels

    async def _judge_path(self, state: QuestionState, so_far: GroundedPath) -> str:
        answers = tuple(answer.name for answer in state.question.gold.answers[:_ANSWERS_SHOWN])
        rationality = await self._ask(state, Rationality(state.question, so_far, answers, state.names))
        if rationality is None:
            raise Unusable("the critic's rationality cannot be read")
        return rationality

    async def _judge_answers(self, state: QuestionState, reached: EntitySegment, *, stopped: bool) -> Judgement:
        """Have all gold answers judged, or by choice those that the text shows, unless it stops early."""
        gold = state.question.gold.answers
        goals = await GoldNodes.resolve(state.tools.kg, gold)
        named = ((name, tails) for name, tails in reached.shown_tails.items() if name != UNKNOWN_ENTITY)
        shown = [name for name, tails in named if any(tail.end in goals for tail in tails)]
        if stopped or self.answers == "all":
            await state.look_up_names(answer.id for answer in gold if answer.id)
            with_name = (answer for answer in gold if answer.id is None or state.names[answer.id] is not None)
            texts = [one_line(answer.name) for answer in with_name]
        else:
            texts = shown
        answers = tuple(dict.fromkeys(texts))[: self.max_answers]
        return await self._ask(state, Utility(state.question, answers))

    async def _ask(self, state: QuestionState, prompt: Prompt[T]) -> T:
        sampling = Sampling(self.temperature, self.max_tokens)
        return await state.tools.llm.ask(prompt, sampling, retries=self.parse_retries)


@plain_dataclass
class QuestionState:
    """A question, its tools, and the lookups made so far."""

    question: LabelledQuestion
    tools: Tools
    names: dict[EntityId, str | None] = field(default_factory=dict)
    """The names of all entities met so far."""
    random: Random = field(init=False)

    def __post_init__(self) -> None:
        self.names.update((topic.id, topic.name) for topic in self.question.topic_entities)
        self.random = self.tools.rng("collect")

    async def look_up_names(self, nodes: Iterable[Node]) -> None:
        """Look up the names of the entities that are new."""
        new = sorted({node for node in nodes if isinstance(node, str) and node not in self.names})
        self.names.update(await self.tools.kg.labels(new) if new else {})

    def printed(self, node: Node) -> str:
        """Return the name of a node as the text shows it."""
        return printed_node(node, self.names)


def _with_relations(offered: RelationSegment, labels: Mapping[str, str]) -> str:
    """Return the transcript up to `[Retrieve Entity]`. Raises Unusable unless the method's parser reads it back."""
    written = offered.render(labels)
    pairs = _read_back(offered, written).labelled
    _check({pair.name: pair.token.text for pair in pairs} == labels)
    return offered.text_so_far + written


def _with_tails(reached: EntitySegment, hop: Hop, answers: Judgement | None) -> str:
    """Return the transcript up to the next `[Retrieve Relation]`, or to its end. Raises Unusable as above."""
    rendered = write_answers(answers.usefulness, answers.utility) if answers else None
    written = reached.render(hop.entities, hop.rationality, rendered)
    read = _read_back(reached, written)
    relevant = {name for name, label in hop.entities.items() if label != UNRELEVANT}
    _check([token.text for token in read.relevance] == list(hop.entities.values()))
    _check(set(read.relevant) == {tail for name in relevant for tail in reached.by_name[name]})
    _check(read.rationality is not None and read.rationality.text == hop.rationality)
    _check((read.answers is None) == (answers is None))
    if read.answers and answers:
        useful = [text for text, label in answers.usefulness.items() if label != NOT_USEFUL]
        _check(list(read.answers.texts) == (useful or list(answers.usefulness)))
        _check(read.answers.utility is not None and read.answers.utility.text == answers.utility)
    return reached.text_so_far + written


def _read_back(segment: Segment[T], written: str) -> T:
    try:
        return segment.parse(written)
    except ParseError:
        raise Unusable(_UNREADABLE) from None


def _check(is_as_written: bool) -> None:
    if not is_as_written:
        raise Unusable(_UNREADABLE)


def _including(own: str, found: Sequence[str], limit: int) -> tuple[str, ...]:
    """Return the first `limit` items found; `own` replaces the last one if it is not among them."""
    kept = tuple(found[:limit])
    return kept if own in kept else (*kept[: limit - 1], own)


def _both_directions(relation: Relation) -> tuple[Relation, Relation]:
    return Relation(relation.name, "out"), Relation(relation.name, "in")


def _payload(sample: Sample, names: Names) -> dict[str, Any]:
    """Return the sample as it is stored in the trace."""
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
