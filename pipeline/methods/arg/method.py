"""ArG: a generator walks the graph and judges each step; token probabilities rank the beam (specification §4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import field, replace
from math import ceil
from typing import ClassVar, Literal, TypeVar

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
from pipeline.kg.interface import Hop
from pipeline.llm.prompt import Sampling
from pipeline.methods.answer_linking import entity_names, link, search_status
from pipeline.methods.arg.answers import AnswerSegment, ParsedAnswers
from pipeline.methods.arg.entities import EntitySegment, TailJudgement
from pipeline.methods.arg.generation import GeneratedSegment, Generator, Probabilities
from pipeline.methods.arg.relations import HypotheticalRelations, RelationJudgement, RelationSegment
from pipeline.methods.arg.retrieval import RetrievalToken
from pipeline.methods.arg.scores import (
    Aggregate,
    SeqScore,
    Terms,
    UtilityWeights,
    aggregate,
    graded_score,
    sequence,
    utility,
)
from pipeline.methods.arg.tokens import RETRIEVE_ENTITY, RETRIEVE_RELATION, UNRELEVANT, ReflectionToken
from pipeline.methods.arg.transcript import Segment, TokenChoice
from pipeline.methods.arg.tree import (
    Expansion,
    Leaf,
    Node,
    best_leaves,
    entity_beam,
    relation_beam,
    relations_to_follow,
)
from pipeline.methods.concurrency import concurrently
from pipeline.methods.grounded_path import GroundedPath, within
from pipeline.methods.interface import Caps, Tools
from pipeline.methods.rendering import node_name
from pipeline.retrieval.relations import as_text
from pipeline.types import Answer, EntityId, Question, Relation
from pipeline.types import Node as GraphNode

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class ArG:
    """Active self-Reflection over knowledge Graph. Its hyper-parameters are described in `conf/method/arg.yaml`."""

    prompts: ClassVar = (
        RetrievalToken,
        HypotheticalRelations,
        RelationSegment,
        EntitySegment,
        AnswerSegment,
        TokenChoice,
    )
    generator: Literal["finetuned", "prompted"]
    probabilities: Probabilities
    name: str
    beam: NonNegativeInt | Literal["exhaustive"]
    max_hops: PositiveInt
    max_regenerate: NonNegativeInt
    retrieval: Literal["model", "always"]
    retrieve_k: PositiveInt
    hypo: bool
    naive_retriever: bool
    group_size: PositiveInt
    max_tails_shown: PositiveInt
    max_tails_fetched: PositiveInt
    tail_order: Literal["connected", "id"]
    cvt_fanout: PositiveInt
    k1: NonNegativeFloat
    k2: NonNegativeFloat
    score: Terms
    seq_score: SeqScore
    utility_weights: UtilityWeights
    aggregate: Aggregate
    on_unreasonable: Literal["leaf", "drop"]
    on_all_unrelevant: Literal["inherit", "end"]
    force_answer: bool
    answer_leaves: PositiveInt
    temperature: NonNegativeFloat
    top_p: NonNegativeFloat
    max_new_tokens: PositiveInt
    logprobs: PositiveInt

    @field_validator("name")
    @classmethod
    def _name_the_variant(cls, name: str, info: ValidationInfo) -> str:
        """Add to the name, in every table, what makes this variant incomparable to the published results."""
        if info.data.get("generator") == "prompted" and "arg-prompted" not in name:
            name = f"arg-prompted {name.removeprefix('arg').strip()}".strip()
        if info.data.get("probabilities") == "hard" and "hard_scores" not in name:
            name = f"{name} (hard_scores)"
        return name

    @model_validator(mode="after")
    def _has_a_retriever(self) -> ArG:
        if not (self.hypo or self.naive_retriever):
            raise ValueError("ArG needs a relation retriever: set hypo=true or naive_retriever=true")
        return self

    def most_llm_calls(self, question: Question, caps: Caps) -> int:
        """Bound the calls (§4.9): at each hop for every node, group of relations, and relation of an entity.

        A group after which the model declines to retrieve takes one more call, and so does the root.
        """
        nodes = self._width or caps.max_frontier
        entities = max(len(question.topic_entities), self.max_tails_shown * self.cvt_fanout)
        groups = ceil(2 * self.retrieve_k / self.group_size)
        of_hop = nodes * (1 + 2 * groups + entities * self.group_size)
        return (1 + self.max_regenerate) * (1 + self.max_hops * of_hop + nodes)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Grow the tree hop by hop, force an answer at open nodes, and rank the leaves (specification §4.5)."""
        state = QuestionState(question, tools, self._generator(tools))
        if question.topic_entities:
            await self._grow(state)
        await self._force_answers(state)
        return self._answer(state)

    async def _grow(self, state: QuestionState) -> None:
        try:
            await self._begin(state)
            for depth in range(1, self.max_hops + 1):
                if state.exhausted or not state.frontier:
                    break
                nodes = await self._judge_relations(state, depth)
                if not state.exhausted:
                    await self._judge_entities(state, nodes, depth)
            if not state.exhausted:
                state.record_cut("depth", state.frontier)
        except BudgetExhausted:
            state.exhausted = True

    # Retrieval on demand (specification §4.5)

    async def _begin(self, state: QuestionState) -> None:
        """Ask the model whether to retrieve. A root that declines becomes a leaf, and the search is over."""
        if self.retrieval == "always":
            return
        (token,) = await state.generate([RetrievalToken(state.question, self._prompted)])
        if token is not None and token.value:
            root, state.frontier, state.deepest = state.frontier, (), ()
            await self._answer_without_retrieval(state, root, hop=0)

    async def _answer_without_retrieval(self, state: QuestionState, nodes: Sequence[Node], hop: int) -> None:
        """Make leaves of the nodes at which the model declined to retrieve."""
        if nodes:
            state.tools.record("retrieval_declined", hop=hop, nodes=len(nodes))
            state.leaves += await self._forced_leaves(state, nodes, last=False)

    # Relation level (specification §4.5.1, §4.5.2)

    async def _judge_relations(self, state: QuestionState, depth: int) -> list[Node]:
        """Offer each node its retrieved relations, in groups; return the beam of nodes with a relevant relation.

        A group after which the model declines to retrieve is not followed: the model answers there.
        """
        await state.look_up_relations(entity for node in state.frontier for entity in node.walk_to)
        retrieved = await self._retrieve(state, depth)
        offers = [
            (node, RelationSegment(state.question, self._prompted, node.transcript, group, node.walks))
            for node, relations in zip(state.frontier, retrieved, strict=True)
            for group in _chunks(relations, self.group_size)
        ]
        segments = await state.generate([segment for _, segment in offers])
        judged = [(node, segment) for (node, _), segment in zip(offers, segments, strict=True) if segment]
        declined = [self._declined(node, segment) for node, segment in judged if self._declines(segment)]
        nodes = [self._relation_node(node, segment) for node, segment in judged if not self._declines(segment)]
        beam = relation_beam((node for node in nodes if node.relations), self._width)
        for node in nodes:
            if node not in beam:
                state.tools.record("cut", by="beam", relations=list(node.relations), at=list(node.walk_to))
        state.tools.record(
            "relations_selected",
            hop=depth,
            offered=retrieved,
            relevant=[dict(node.relations) for node in nodes],
            kept=[list(node.relations) for node in beam],
        )
        await self._answer_without_retrieval(state, declined, depth)
        return beam

    async def _retrieve(self, state: QuestionState, depth: int) -> list[list[str]]:
        """Return at most 2K relations for each node of the frontier: the naive retriever's, then the hypothetical."""
        hypothetical: Sequence[tuple[str, ...]] = [()] * len(state.frontier)
        if self.hypo:
            segments = await state.generate(
                [
                    HypotheticalRelations(state.question, self._prompted, node.transcript, node.walks)
                    for node in state.frontier
                ]
            )
            hypothetical = [segment.value if segment else () for segment in segments]
        retrieved = await concurrently(
            self._retrieve_for(state, node, relations)
            for node, relations in zip(state.frontier, hypothetical, strict=True)
        )
        state.tools.record("relations_listed", hop=depth, hypothetical=hypothetical, retrieved=retrieved)
        return retrieved

    async def _retrieve_for(self, state: QuestionState, node: Node, hypothetical: Sequence[str]) -> list[str]:
        queries = []
        if self.naive_retriever:
            names = [node_name(entity, state.names) for entity in node.walk_to] if node.hop_scores else []
            queries.append(" ".join([state.question.text, *filter(None, names)]))
        if hypothetical:
            queries.append(" ".join(map(as_text, hypothetical)))
        candidates = sorted({relation.name for entity in node.walk_to for relation in state.relations.get(entity, ())})
        found = [relation for query in queries for relation in await self._search(state, query, candidates)]
        cut = set(candidates).difference(found)
        state.tools.record("cut", by="similarity", relations=cut, at=list(node.walk_to))
        allowed = {relation.name for relations in state.relations_to_follow(node).values() for relation in relations}
        return [relation for relation in dict.fromkeys(found) if relation in allowed or not candidates]

    async def _search(self, state: QuestionState, query: str, candidates: Sequence[str]) -> list[str]:
        """Return the K candidates nearest to a query; without candidates, the K nearest relations of the graph."""
        if not candidates:
            return await state.tools.retrieval.relations(query, self.retrieve_k)
        ranking = await state.tools.retrieval.rank(query, list(map(as_text, candidates)))
        return [candidates[index] for index in ranking[: self.retrieve_k]]

    def _declines(self, segment: GeneratedSegment[RelationJudgement]) -> bool:
        return self.retrieval == "model" and segment.value.declines

    def _declined(self, node: Node, segment: GeneratedSegment[RelationJudgement]) -> Node:
        return replace(node, transcript=segment.transcript_ending_with(RETRIEVE_RELATION))

    def _relation_node(self, node: Node, segment: GeneratedSegment[RelationJudgement]) -> Node:
        relevant = {
            pair.name: graded_score(segment.weights(pair.token))
            for pair in segment.value.labelled
            if pair.token.text != UNRELEVANT
        }
        return replace(node, transcript=segment.transcript_ending_with(RETRIEVE_ENTITY), relations=relevant)

    # Entity level (specification §4.5.3)

    async def _judge_entities(self, state: QuestionState, nodes: Sequence[Node], depth: int) -> None:
        """Follow every relevant relation of the beam; set leaves aside, and make the beam of new nodes the frontier."""
        expansions = await self._expand(state, nodes, depth)
        segments = await state.generate([segment for _, segment in expansions])
        outcomes = [
            self._outcome(expansion, segment)
            for (expansion, _), segment in zip(expansions, segments, strict=True)
            if segment is not None
        ]
        grown = [outcome for outcome in outcomes if isinstance(outcome, Node)]
        state.leaves += [outcome for outcome in outcomes if isinstance(outcome, Leaf)]
        state.advance(entity_beam(grown, self._width))
        state.tools.record("kept", nodes=[walk.end for found in outcomes if found for walk in found.walks])
        state.record_cut("beam", [node for node in grown if node not in state.frontier])
        state.tools.record(
            "expanded",
            hop=depth,
            segments=[[str(expansion.source.end), expansion.relation, len(s.tails)] for expansion, s in expansions],
            grown=[node.score for node in grown],
            kept=len(state.frontier),
            leaves=len(state.leaves),
        )

    async def _expand(
        self, state: QuestionState, nodes: Sequence[Node], depth: int
    ) -> list[tuple[Expansion, EntitySegment]]:
        """Return the expansions that reach a tail, with their segments: one batched lookup of tails, one of names."""
        expansions = [expansion for node in nodes for expansion in self._expansions(state, node)]
        hops = list(dict.fromkeys(hop for expansion in expansions for hop in expansion.hops))
        cap = state.tools.caps.max_frontier
        if len(hops) > cap:
            state.tools.record("cap_hit", cap="max_frontier")
        found = await state.tools.kg.neighbours(hops[:cap], self.max_tails_fetched)
        await state.look_up_names(end for tails in found.values() for end in tails.nodes if isinstance(end, str))
        tails_of = await self._ordered(state, {hop: tails.nodes for hop, tails in found.items()}, depth)
        reached = [
            (
                expansion,
                tuple(expansion.source.then(hop[1], end) for hop in expansion.hops for end in tails_of.get(hop, ())),
            )
            for expansion in expansions
        ]
        segments = [(expansion, self._entity_segment(state, expansion, tails)) for expansion, tails in reached if tails]
        hidden = {tail.end for _, segment in segments for tail in segment.tails} - {
            tail.end for _, segment in segments for tails in segment.shown_tails.values() for tail in tails
        }
        state.tools.record("cut", by="cap", nodes=hidden)
        return segments

    async def _ordered(
        self, state: QuestionState, tails_of: Mapping[Hop, Sequence[GraphNode]], depth: int
    ) -> Mapping[Hop, Sequence[GraphNode]]:
        """Order the tails of each hop by how many relations lead on from them, because only the first are shown.

        The next hop needs the relations that this looks up. So the last hop, after which nobody needs them, keeps the
        order of the ids.
        """
        some_are_hidden = any(len(tails) > self.max_tails_shown for tails in tails_of.values())
        if self.tail_order == "id" or depth == self.max_hops or not some_are_hidden:
            return tails_of
        await state.look_up_relations(end for tails in tails_of.values() for end in tails if isinstance(end, str))
        return {
            hop: sorted(tails, key=lambda end: -len(state.relations.get(end, ())) if isinstance(end, str) else 0)
            for hop, tails in tails_of.items()
        }

    def _expansions(self, state: QuestionState, node: Node) -> Iterable[Expansion]:
        to_follow = state.relations_to_follow(node)
        for entity, source in node.walk_to.items():
            for name in node.relations:
                directed = [relation for relation in to_follow[entity] if relation.name == name]
                if not state.relations.get(entity, ()):  # the relation was retrieved from the whole graph
                    directed = [Relation(name, "out"), Relation(name, "in")]
                hops = tuple((entity, relation) for relation in sorted(directed, key=lambda r: r.direction != "out"))
                yield Expansion(node, source, name, hops)

    def _entity_segment(
        self, state: QuestionState, expansion: Expansion, tails: tuple[GroundedPath, ...]
    ) -> EntitySegment:
        return EntitySegment(
            question=state.question,
            prompted=self._prompted,
            transcript=expansion.node.transcript,
            source=expansion.source,
            relation=expansion.relation,
            tails=tails,
            names=state.names,
            max_shown=self.max_tails_shown,
            cvt_fanout=self.cvt_fanout,
        )

    def _outcome(self, expansion: Expansion, segment: GeneratedSegment[TailJudgement]) -> Leaf | Node | None:
        """Return what one segment leads to: a leaf, a node to extend, or None for a path that is dropped."""
        judgement, node = segment.value, expansion.node
        hop_scores = (*node.hop_scores, self._hop_score(expansion, segment))
        score = aggregate(hop_scores, self.aggregate)
        walks = judgement.relevant or node.walks
        if judgement.answers is not None and not (judgement.is_unreasonable and self.on_unreasonable == "drop"):
            return Leaf(judgement.answers, walks, score + self._leaf_terms(segment, judgement.answers.utility))
        if judgement.ends:
            return Leaf(ParsedAnswers(), walks, 0.0)
        if judgement.is_unreasonable or (self.on_all_unrelevant == "end" and judgement.is_all_unrelevant):
            return None
        return Node(
            transcript=segment.transcript_ending_with(RETRIEVE_RELATION),
            walks=walks,
            hop_scores=hop_scores,
            score=score,
            tried=frozenset() if judgement.relevant else frozenset(relation for _, relation in expansion.hops),
        )

    # Scores (specification §4.6)

    def _hop_score(self, expansion: Expansion, segment: GeneratedSegment[TailJudgement]) -> float:
        judgement = segment.value
        relevance = rationality = 1.0
        if self.score.relevance:
            best_tail = max((graded_score(segment.weights(token)) for token in judgement.relevance), default=0.0)
            relevance = expansion.node.relations[expansion.relation] * best_tail
        if self.score.rationality:
            rationality = graded_score(segment.weights(judgement.rationality))
        return self.k1 * relevance * rationality

    def _leaf_terms(
        self,
        segment: GeneratedSegment[TailJudgement] | GeneratedSegment[ParsedAnswers],
        level: ReflectionToken | None,
    ) -> float:
        """Return the terms that only a leaf has: the probability of its last segment, and its utility."""
        confidence = sequence(segment.logprobs, self.seq_score) if self.score.sequence else 0.0
        worth = "linear" if self.probabilities == "hard" else self.utility_weights
        usefulness = utility(segment.weights(level), worth) if self.score.utility else 0.0
        return confidence + self.k2 * usefulness

    # Answers (specification §4.5.4, §4.7)

    async def _force_answers(self, state: QuestionState) -> None:
        """Force an answer at the depth limit; if no leaf has one and no node is left, at the deepest nodes.

        After a cap has been hit, one forced answer is allowed, and only if there is no answer yet.
        """
        if not self.force_answer:
            return
        answered = bool(best_leaves(state.leaves))
        open_nodes = state.frontier or ([] if answered else state.deepest)
        if not state.exhausted:
            state.leaves += await self._forced_leaves(state, open_nodes, last=False)
        if state.exhausted and not best_leaves(state.leaves):
            state.leaves += await self._forced_leaves(state, (open_nodes or state.deepest)[:1], last=True)

    async def _forced_leaves(self, state: QuestionState, nodes: Sequence[Node], *, last: bool) -> list[Leaf]:
        prompts = [
            AnswerSegment(state.question, self._prompted, node.transcript, node.walks, state.names) for node in nodes
        ]
        segments = await state.generate(prompts, last=last)
        return [
            Leaf(segment.value, node.walks, node.score + self._leaf_terms(segment, segment.value.utility))
            for node, segment in zip(nodes, segments, strict=True)
            if segment is not None
        ]

    def _answer(self, state: QuestionState) -> Answer:
        """Return the answers of the best leaves, in their order."""
        ranked = best_leaves(state.leaves)
        leaves = ranked[: self.answer_leaves]
        walks = dict.fromkeys(walk for leaf in leaves for walk in leaf.walks if walk.length)
        kept = within(walks, state.tools.caps.max_evidence_triples)
        if len(kept) < len(walks):
            state.tools.record("cap_hit", cap="max_evidence_triples")
        left_out = {walk.end for leaf in ranked[self.answer_leaves :] for walk in leaf.walks}
        state.tools.record("cut", by="beam", nodes=left_out - {walk.end for walk in walks})
        evidence = tuple(walk.triples for walk in kept)
        scores: dict[str, float] = {}
        for leaf in leaves:
            for text in leaf.answers.texts:
                scores.setdefault(text, leaf.score)
        linked = link(scores, (node for walk in walks for node in walk.nodes), state.names)
        status = search_status(state.question, evidence, exhausted=state.exhausted)
        state.tools.record(
            "answered",
            leaves=[[round(leaf.score, 6), list(leaf.answers.texts)] for leaf in leaves],
            of=len(state.leaves),
            status=status,
        )
        return Answer(
            predictions=tuple(replace(one, score=scores[one.text]) for one in linked),
            raw=leaves[0].answers.raw if leaves else "",
            evidence=evidence,
            names=entity_names(evidence, state.names),
            status=status,
        )

    # Hyper-parameters in the form in which the algorithm uses them

    @property
    def _width(self) -> int:
        """The beam width; 0 keeps all nodes."""
        return 0 if self.beam == "exhaustive" else self.beam

    @property
    def _prompted(self) -> bool:
        return self.generator == "prompted"

    def _generator(self, tools: Tools) -> Generator:
        sampling = Sampling(self.temperature, self.max_new_tokens, self.top_p, logprobs=self.logprobs)
        return Generator(tools.llm, sampling, self.probabilities, self.max_regenerate)


@plain_dataclass
class QuestionState:
    """A question, the tools to answer it, and the tree so far."""

    question: Question
    tools: Tools
    generator: Generator
    relations: dict[EntityId, Sequence[Relation]] = field(default_factory=dict)
    """The relations at each entity that was looked up."""
    names: dict[EntityId, str | None] = field(default_factory=dict)
    """The names of all entities met so far."""
    frontier: Sequence[Node] = ()
    """The nodes to extend."""
    deepest: Sequence[Node] = ()
    """The last frontier that was not empty."""
    leaves: list[Leaf] = field(default_factory=list)
    exhausted: bool = False
    """Whether a cap on calls, lookups or time was hit."""

    def __post_init__(self) -> None:
        self.names.update((topic.id, topic.name) for topic in self.question.topic_entities)
        self.advance([Node(RETRIEVE_RELATION, tuple(GroundedPath(topic.id) for topic in self.question.topic_entities))])

    def advance(self, frontier: Sequence[Node]) -> None:
        """Make `frontier` the nodes to extend."""
        self.frontier = frontier
        self.deepest = frontier or self.deepest

    def record_cut(self, by: str, nodes: Iterable[Node]) -> None:
        """Record that the current entities of some nodes are not explored further."""
        self.tools.record("cut", by=by, nodes=[walk.end for node in nodes for walk in node.walks])

    async def generate(self, segments: Sequence[Segment[T]], *, last: bool = False) -> list[GeneratedSegment[T] | None]:
        """Write all segments concurrently, in order; None for one that a cap prevented."""
        level = await self.generator.write(segments, last=last)
        self.exhausted |= level.hit_cap
        return level.segments

    def relations_to_follow(self, node: Node) -> Mapping[EntityId, Sequence[Relation]]:
        """Return the relations to follow from each current entity of a node."""
        return relations_to_follow(node, self.relations, self.names)

    async def look_up_relations(self, entities: Iterable[EntityId]) -> None:
        """Look up the relations at the entities that are new, up to the cap."""
        new = [entity for entity in dict.fromkeys(entities) if entity not in self.relations]
        self.relations.update(await self.tools.kg.relations(new[: self.tools.caps.max_frontier]))

    async def look_up_names(self, entities: Iterable[EntityId]) -> None:
        """Look up the names of the entities that are new."""
        new = sorted({entity for entity in entities if entity not in self.names})
        self.names.update(await self.tools.kg.labels(new))


def _chunks(relations: Sequence[str], size: int) -> Iterable[tuple[str, ...]]:
    return (tuple(relations[start : start + size]) for start in range(0, len(relations), size))
