"""ArG: one generator walks the graph and judges each step; its tokens' probabilities steer a beam (methods.md §4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import field, replace
from typing import Literal

from pydantic import (
    ConfigDict,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.dataclasses import dataclass

from pipeline.errors import BudgetExhausted
from pipeline.kg.port import Hop
from pipeline.llm.prompt import Sampling
from pipeline.methods.arg.answers import Answered, AnswerSegment
from pipeline.methods.arg.entities import EntitySegment, Reading
from pipeline.methods.arg.generation import Generator, Probabilities, Written
from pipeline.methods.arg.layout import Labelled
from pipeline.methods.arg.relations import HypotheticalRelations, RelationSegment
from pipeline.methods.arg.scores import (
    Aggregate,
    SeqScore,
    Terms,
    UtilityWeights,
    aggregate,
    rationality,
    relevance,
    sequence,
    utility,
)
from pipeline.methods.arg.tokens import RETRIEVE_ENTITY, RETRIEVE_RELATION, UNRELEVANT, Mark
from pipeline.methods.arg.tree import Expansion, Leaf, Node, best_leaves, entity_beam, relation_beam, ways_on
from pipeline.methods.concluding import entity_names, link, search_status
from pipeline.methods.concurrency import concurrently
from pipeline.methods.instance import Instance, within
from pipeline.methods.port import Tools
from pipeline.methods.rendering import node_name
from pipeline.retrieval.relations import as_text
from pipeline.types import Answer, EntityId, Question, Relation
from pipeline.types import Node as GraphNode


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid", validate_default=True))
class ArG:
    """Active self-Reflection over knowledge Graph. Its hyper-parameters are described in `conf/method/arg.yaml`."""

    generator: Literal["finetuned", "prompted"] = "finetuned"
    probabilities: Probabilities = "reported"
    name: str = "arg"
    beam: NonNegativeInt | Literal["exhaustive"] = 3
    max_hops: PositiveInt = 4
    max_regenerate: NonNegativeInt = 0
    retrieve_k: PositiveInt = 5
    hypo: bool = True
    naive_retriever: bool = True
    group_size: PositiveInt = 5
    max_tails_shown: PositiveInt = 5
    max_tails_fetched: PositiveInt = 100
    tail_order: Literal["connected", "id"] = "connected"
    cvt_fanout: PositiveInt = 3
    k1: NonNegativeFloat = 1.0
    k2: NonNegativeFloat = 0.5
    score: Terms = field(default_factory=Terms)
    seq_score: SeqScore = "exp_mean"
    utility_weights: UtilityWeights = "shifted"
    aggregate: Aggregate = "mean"
    on_unreasonable: Literal["leaf", "drop"] = "leaf"
    force_answer: bool = True
    answer_leaves: PositiveInt = 3
    temperature: NonNegativeFloat = 0.0
    top_p: NonNegativeFloat = 1.0
    max_new_tokens: PositiveInt = 100
    logprobs: PositiveInt = 20

    @field_validator("name")
    @classmethod
    def _label(cls, name: str, info: ValidationInfo) -> str:
        """What must never be taken for the paper's row says so in every table."""
        if info.data.get("generator") == "prompted" and "arg-prompted" not in name:
            name = f"arg-prompted {name.removeprefix('arg').strip()}".strip()
        if info.data.get("probabilities") == "hard" and "hard_scores" not in name:
            name = f"{name} (hard_scores)"
        return name

    @model_validator(mode="after")
    def _check(self) -> ArG:
        if not (self.hypo or self.naive_retriever):
            raise ValueError("without hypo and without naive_retriever there is nothing to retrieve relations by")
        return self

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Grow the tree hop by hop, make its open ends answer, and rank the leaves (§4.5)."""
        case = _Case(question, tools, self._generator(tools))
        if question.topic_entities:
            await self._grow(case)
        await self._force(case)
        return self._answer(case)

    async def _grow(self, case: _Case) -> None:
        try:
            for hop in range(1, self.max_hops + 1):
                nodes = await self._judge_relations(case, hop)
                if not case.generator.exhausted:
                    await self._judge_entities(case, nodes, hop)
                if case.generator.exhausted or not case.frontier:
                    break
        except BudgetExhausted:
            case.generator.exhausted = True

    # Relation level (§4.5.1, §4.5.2)

    async def _judge_relations(self, case: _Case, hop: int) -> list[Node]:
        """Offer each node the relations retrieved for it, in groups; the beam of nodes with relevant ones."""
        await case.look_around([entity for node in case.frontier for entity in node.at])
        offers = await self._retrieve(case, hop)
        offered = [
            (node, RelationSegment(case.question, self._prompted, node.text, group, node.instances))
            for node, relations in zip(case.frontier, offers, strict=True)
            for group in _chunks(relations, self.group_size)
        ]
        written = await case.generator.write([segment for _, segment in offered])
        nodes = [
            self._after_relations(node, judged) for (node, _), judged in zip(offered, written, strict=True) if judged
        ]
        kept = relation_beam((node for node in nodes if node.relations), self._width)
        case.tools.record(
            "relations_selected",
            hop=hop,
            offered=offers,
            relevant=[dict(node.relations) for node in nodes],
            kept=[list(node.relations) for node in kept],
        )
        return kept

    async def _retrieve(self, case: _Case, hop: int) -> list[list[str]]:
        """Per node of the frontier at most 2K relations: the naive retriever's, then the hypo-generator's."""
        dreamt: Sequence[tuple[str, ...]] = [()] * len(case.frontier)
        if self.hypo:
            prompts = [
                HypotheticalRelations(case.question, self._prompted, node.text, node.instances)
                for node in case.frontier
            ]
            written = await case.generator.write(prompts)
            dreamt = [hypothesis.value if hypothesis else () for hypothesis in written]
        found = await concurrently(
            self._candidates(case, node, relations) for node, relations in zip(case.frontier, dreamt, strict=True)
        )
        case.tools.record("relations_listed", hop=hop, hypothetical=dreamt, retrieved=found)
        return found

    async def _candidates(self, case: _Case, node: Node, hypothetical: Sequence[str]) -> list[str]:
        queries = []
        if self.naive_retriever:
            reached = (node_name(entity, case.names) for entity in node.at) if node.hops else ()
            queries.append(" ".join([case.question.text, *(name for name in reached if name)]))
        if hypothetical:
            queries.append(" ".join(map(as_text, hypothetical)))
        around = sorted({relation.name for entity in node.at for relation in case.around.get(entity, ())})
        found = [relation for query in queries for relation in await self._search(case, query, around)]
        possible = {relation.name for ways in case.ways_on(node).values() for relation in ways}
        return [relation for relation in dict.fromkeys(found) if relation in possible or not around]

    async def _search(self, case: _Case, query: str, around: Sequence[str]) -> list[str]:
        """The K relations nearest to a query: of those around, or of the whole graph where there are none."""
        if not around:
            return await case.tools.retrieval.relations(query, self.retrieve_k)
        ranking = await case.tools.retrieval.rank(query, list(map(as_text, around)))
        return [around[place] for place in ranking[: self.retrieve_k]]

    def _after_relations(self, node: Node, written: Written[tuple[Labelled, ...]]) -> Node:
        relevant = {
            pair.name: relevance(written.weights(pair.mark)) for pair in written.value if pair.mark.token != UNRELEVANT
        }
        return replace(node, text=written.closed(RETRIEVE_ENTITY), relations=relevant)

    # Entity level (§4.5.3)

    async def _judge_entities(self, case: _Case, nodes: Sequence[Node], hop: int) -> None:
        """Follow every relevant relation of the beam; leaves are put aside, the beam of the others is the frontier."""
        grown: list[Node] = []
        expansions = await self._expand(case, nodes, hop)
        written = await case.generator.write([segment for _, segment in expansions])
        for (expansion, _), judged in zip(expansions, written, strict=True):
            if judged is not None:
                self._after_entities(case, expansion, judged, grown)
        case.advance(entity_beam(grown, self._width))
        case.tools.record(
            "expanded",
            hop=hop,
            segments=[[str(expansion.source.end), expansion.relation, len(s.tails)] for expansion, s in expansions],
            grown=[node.score for node in grown],
            kept=len(case.frontier),
            leaves=len(case.leaves),
        )

    async def _expand(self, case: _Case, nodes: Sequence[Node], hop: int) -> list[tuple[Expansion, EntitySegment]]:
        """The segments of a level, for whatever leads anywhere: one lookup of neighbours, one of names."""
        expansions = [expansion for node in nodes for expansion in self._expansions(case, node)]
        hops = list(dict.fromkeys(way for expansion in expansions for way in expansion.hops))
        cap = case.tools.caps.max_frontier
        if len(hops) > cap:
            case.tools.record("cap_hit", cap="max_frontier")
        found = await case.tools.kg.neighbours(hops[:cap], self.max_tails_fetched)
        await case.look_up_names(end for tails in found.values() for end in tails.nodes if isinstance(end, str))
        reached = await self._ordered(case, {way: tails.nodes for way, tails in found.items()}, hop)
        followed = [
            (
                expansion,
                tuple(expansion.source.then(way[1], end) for way in expansion.hops for end in reached.get(way, ())),
            )
            for expansion in expansions
        ]
        return [(expansion, self._segment(case, expansion, tails)) for expansion, tails in followed if tails]

    async def _ordered(
        self, case: _Case, reached: Mapping[Hop, Sequence[GraphNode]], hop: int
    ) -> Mapping[Hop, Sequence[GraphNode]]:
        """The tails of each hop, those first from which most relations lead on: only the first few will be shown.

        What is looked up for it is what the next hop begins with, so the last hop keeps the order of the ids.
        """
        choosing = any(len(tails) > self.max_tails_shown for tails in reached.values())
        if self.tail_order == "id" or hop == self.max_hops or not choosing:
            return reached
        await case.look_around(end for tails in reached.values() for end in tails if isinstance(end, str))
        return {
            way: sorted(tails, key=lambda end: -len(case.around.get(end, ())) if isinstance(end, str) else 0)
            for way, tails in reached.items()
        }

    def _expansions(self, case: _Case, node: Node) -> Iterable[Expansion]:
        ways = case.ways_on(node)
        for entity, source in node.at.items():
            for name in node.relations:
                directed = [relation for relation in ways[entity] if relation.name == name]
                if not case.around.get(entity, ()):  # the relation came from the whole vocabulary
                    directed = [Relation(name, "out"), Relation(name, "in")]
                hops = tuple((entity, relation) for relation in sorted(directed, key=lambda r: r.direction != "out"))
                yield Expansion(node, source, name, hops)

    def _segment(self, case: _Case, expansion: Expansion, tails: tuple[Instance, ...]) -> EntitySegment:
        return EntitySegment(
            question=case.question,
            prompted=self._prompted,
            before=expansion.node.text,
            source=expansion.source,
            relation=expansion.relation,
            tails=tails,
            names=case.names,
            max_shown=self.max_tails_shown,
            cvt_fanout=self.cvt_fanout,
        )

    def _after_entities(self, case: _Case, expansion: Expansion, written: Written[Reading], grown: list[Node]) -> None:
        """Add what one segment has come to: a leaf, a node to go on from, or nothing."""
        reading, node = written.value, expansion.node
        hops = (*node.hops, self._hop_score(expansion, written))
        score = aggregate(hops, self.aggregate)
        instances = reading.relevant or node.instances
        if reading.answered is not None and not (reading.is_unreasonable and self.on_unreasonable == "drop"):
            leaf_score = score + self._leaf_terms(written, reading.answered.utility)
            case.leaves.append(Leaf(reading.answered, instances, leaf_score))
        elif reading.ends:
            case.leaves.append(Leaf(Answered(), instances, 0.0))
        elif not reading.is_unreasonable:
            grown.append(
                Node(
                    text=written.closed(RETRIEVE_RELATION),
                    instances=instances,
                    hops=hops,
                    score=score,
                    tried=frozenset() if reading.relevant else frozenset(relation for _, relation in expansion.hops),
                )
            )

    # Scores (§4.6)

    def _hop_score(self, expansion: Expansion, written: Written[Reading]) -> float:
        reading = written.value
        s_rel = s_rat = 1.0
        if self.score.relevance:
            of_tails = max((relevance(written.weights(mark)) for mark in reading.relevance), default=0.0)
            s_rel = expansion.node.relations[expansion.relation] * of_tails
        if self.score.rationality:
            s_rat = rationality(written.weights(reading.rationality))
        return self.k1 * s_rel * s_rat

    def _leaf_terms(self, written: Written[Reading] | Written[Answered], level: Mark | None) -> float:
        """What only a leaf has: the probability of its last segment, and its utility."""
        s_seq = sequence(written.logprobs, self.seq_score) if self.score.sequence else 0.0
        worth = "linear" if self.probabilities == "hard" else self.utility_weights
        s_uti = utility(written.weights(level), worth) if self.score.utility else 0.0
        return s_seq + self.k2 * s_uti

    # Answers (§4.5.4, §4.7)

    async def _force(self, case: _Case) -> None:
        """Make the open ends answer: those at the depth limit, and where no leaf has an answer, the deepest there were.

        After a cap has been hit only one may, and only when there is no answer yet.
        """
        if not self.force_answer:
            return
        answered = bool(best_leaves(case.leaves))
        pending = case.frontier or ([] if answered else case.deepest)
        if not case.generator.exhausted:
            await self._force_each(case, pending, last=False)
        if case.generator.exhausted and not best_leaves(case.leaves):
            await self._force_each(case, (pending or case.deepest)[:1], last=True)

    async def _force_each(self, case: _Case, nodes: Sequence[Node], *, last: bool) -> None:
        segments = [
            AnswerSegment(case.question, self._prompted, node.text, node.instances, case.names) for node in nodes
        ]
        for node, written in zip(nodes, await case.generator.write(segments, last=last), strict=True):
            if written is not None:
                leaf_score = node.score + self._leaf_terms(written, written.value.utility)
                case.leaves.append(Leaf(written.value, node.instances, leaf_score))

    def _answer(self, case: _Case) -> Answer:
        """The answers of the best leaves, in their order."""
        leaves = best_leaves(case.leaves)[: self.answer_leaves]
        walks = dict.fromkeys(walk for leaf in leaves for walk in leaf.instances if walk.length)
        kept = within(walks, case.tools.caps.max_evidence_triples)
        if len(kept) < len(walks):
            case.tools.record("cap_hit", cap="max_evidence_triples")
        evidence = tuple(walk.triples for walk in kept)
        scored: dict[str, float] = {}
        for leaf in leaves:
            for text in leaf.answered.texts:
                scored.setdefault(text, leaf.score)
        linked = link(scored, (node for walk in walks for node in walk.nodes), case.names)
        status = search_status(case.question, evidence, exhausted=case.generator.exhausted)
        case.tools.record(
            "answered",
            leaves=[[round(leaf.score, 6), list(leaf.answered.texts)] for leaf in leaves],
            of=len(case.leaves),
            status=status,
        )
        return Answer(
            predictions=tuple(replace(one, score=scored[one.text]) for one in linked),
            raw=leaves[0].answered.raw if leaves else "",
            evidence=evidence,
            names=entity_names(evidence, case.names),
            status=status,
        )

    # Settings

    @property
    def _width(self) -> int:
        return 0 if self.beam == "exhaustive" else self.beam

    @property
    def _prompted(self) -> bool:
        return self.generator == "prompted"

    def _generator(self, tools: Tools) -> Generator:
        sampling = Sampling(self.temperature, self.max_new_tokens, self.top_p, logprobs=self.logprobs)
        return Generator(tools.llm, sampling, self.probabilities, self.max_regenerate)


@plain_dataclass
class _Case:
    """A question, all there is to work on it with, and the tree so far."""

    question: Question
    tools: Tools
    generator: Generator
    around: dict[EntityId, Sequence[Relation]] = field(default_factory=dict)
    """The relations at each entity that was visited."""
    names: dict[EntityId, str | None] = field(default_factory=dict)
    """The names of all entities met so far."""
    frontier: Sequence[Node] = ()
    """The nodes to go on from."""
    deepest: Sequence[Node] = ()
    """The last frontier that was not empty."""
    leaves: list[Leaf] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names.update((topic.id, topic.name) for topic in self.question.topic_entities)
        self.advance([Node(RETRIEVE_RELATION, tuple(Instance(topic.id) for topic in self.question.topic_entities))])

    def advance(self, frontier: Sequence[Node]) -> None:
        self.frontier = frontier
        self.deepest = frontier or self.deepest

    def ways_on(self, node: Node) -> Mapping[EntityId, Sequence[Relation]]:
        return ways_on(node, self.around, self.names)

    async def look_around(self, entities: Iterable[EntityId]) -> None:
        new = [entity for entity in dict.fromkeys(entities) if entity not in self.around]
        self.around.update(await self.tools.kg.relations(new[: self.tools.caps.max_frontier]))

    async def look_up_names(self, entities: Iterable[EntityId]) -> None:
        new = sorted({entity for entity in entities if entity not in self.names})
        self.names.update(await self.tools.kg.labels(new))


def _chunks(relations: Sequence[str], size: int) -> Iterable[tuple[str, ...]]:
    return (tuple(relations[at : at + size]) for at in range(0, len(relations), size))
