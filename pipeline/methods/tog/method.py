"""ToG: beam search over the graph, in which the model scores relations and entities (specification §6.13).

A baseline of all four papers. `docs/tog.md` lists the errors of the published code, and those that `compat` reproduces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import field
from typing import ClassVar, Literal, NamedTuple, TypeVar

from pydantic import ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.errors import BudgetExhausted
from pipeline.kg.interface import node_order
from pipeline.llm.prompt import Prompt, Sampling
from pipeline.methods.answer_linking import answer_from_chains
from pipeline.methods.answering import Answers
from pipeline.methods.concurrency import concurrently
from pipeline.methods.exploration import selecting
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.interface import Caps, Tools
from pipeline.methods.rendering import node_name
from pipeline.methods.tog.answer import AnswerFromChains, AnswerWithoutChains
from pipeline.methods.tog.entities import EntityScores
from pipeline.methods.tog.reason import Enough
from pipeline.methods.tog.relations import RelationScores
from pipeline.methods.tog.similarity_scores import Prune, similarity_scores
from pipeline.retrieval.relations import as_text
from pipeline.types import Answer, EntityId, Node, Question, Relation

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class ToG:
    """Think-on-Graph. Its hyper-parameters are described in `conf/method/tog.yaml`."""

    prompts: ClassVar = (RelationScores, EntityScores, Enough, AnswerFromChains, AnswerWithoutChains)
    name: str
    width: PositiveInt
    max_depth: PositiveInt
    prune: Prune
    entity_sample_from: PositiveInt
    entity_sample: PositiveInt
    no_return: Literal["repeat", "relation", "none"]
    temperature_explore: NonNegativeFloat
    temperature_reason: NonNegativeFloat
    max_tokens: PositiveInt
    parse_retries: NonNegativeInt
    compat: bool

    def most_llm_calls(self, question: Question, caps: Caps) -> int:
        """Bound the calls (§6.13): at each depth one for every chain, one for every relation, and one to reason."""
        of_depth = max(len(question.topic_entities), self.width) + self.width + 1
        return (1 + self.parse_retries) * (self.max_depth * of_depth + 1)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Extend the chains until they suffice to answer, the depth is reached or no chain can be extended."""
        search = _Search(question, tools, {topic.id: topic.name for topic in question.topic_entities})
        try:
            answers = await self._explore(search)
        except BudgetExhausted:
            answers, search.exhausted = None, True
        if answers is None:
            answers = await self._answer(search)
        record, exhausted = tools.record, search.exhausted
        return answer_from_chains(question, answers, search.chains, search.names, exhausted=exhausted, record=record)

    async def _explore(self, search: _Search) -> Answers | None:
        """Return the answers as soon as the chains suffice to give them; None when they never do."""
        frontier: Sequence[GroundedPath] = [GroundedPath(topic.id) for topic in search.question.topic_entities]
        for depth in range(1, self.max_depth + 1):
            picked = await self._pick_relations(search, frontier)
            candidates = await self._score_entities(search, picked, depth)
            frontier = self._best(search, candidates)
            if not frontier:
                break
            search.keep(frontier)
            answers = await self._reason(search)
            if answers is not None:
                return answers
        search.tools.record("cut", by="depth", nodes=[chain.end for chain in frontier])
        return None

    # The relation step

    def _without_last(self, chain: GroundedPath, relations: Sequence[Relation]) -> list[Relation]:
        """Leave out the last relation of a chain in the direction that `no_return` bars."""
        if not chain.steps or self.no_return == "none":
            return list(relations)
        last = chain.steps[-1].relation
        barred = last if self.no_return == "repeat" else last.reversed
        return [relation for relation in relations if relation != barred]

    async def _pick_relations(self, search: _Search, frontier: Sequence[GroundedPath]) -> list[_Move]:
        """Return the N best of all scored relations to follow, those from unnamed nodes first."""
        chains = [chain for chain in frontier if isinstance(chain.end, str)]
        around = await search.tools.kg.relations(list(dict.fromkeys(chain.entity for chain in chains)))
        offered = [(chain, self._without_last(chain, around[chain.entity])) for chain in chains]
        for entity, relations in around.items():
            here = {relation for chain, offer in offered if chain.entity == entity for relation in offer}
            search.tools.record("cut", by="cap", relations=sorted(set(relations) - here), at=[entity])
        offered = [(chain, relations) for chain, relations in offered if relations]
        scored = await concurrently(self._score_relations(search, *offer) for offer in offered)
        picked: list[_Move] = []
        for (chain, relations), scores in zip(offered, scored, strict=True):
            best = sorted((pair for pair in scores.items() if pair[1] > 0), key=lambda pair: (-pair[1], pair[0]))
            moves = [_Move(chain, relation, score) for relation, score in best[: self.width]]
            cut = [relation for relation, _ in best[self.width :]]
            search.tools.record("cut", by="beam", relations=cut, at=[chain.end])
            search.tools.record(
                "relations_selected",
                entity=chain.end,
                relations=[(*move.relation, move.score) for move in moves],
                offered=len(relations),
            )
            picked += moves
        picked.sort(key=lambda move: (search.is_named(move.chain.end), -move.score))
        for move in picked[self.width :]:
            search.tools.record("cut", by="beam", relations=[move.relation], at=[move.chain.end])
        return picked[: self.width]

    async def _score_relations(
        self, search: _Search, chain: GroundedPath, relations: Sequence[Relation]
    ) -> Mapping[Relation, float]:
        """Return the scores of the relations at the end of one chain; they sum to 1."""
        if self.prune == "llm":
            prompt = RelationScores(search.question, chain, tuple(relations), search.names)
            return await self._ask(search, prompt, self.temperature_explore)
        texts = [as_text(relation.name) for relation in relations]
        scores = await similarity_scores(search.question.text, texts, self.prune, search.tools.retrieval)
        return dict(zip(relations, scores, strict=True))

    # The entity step

    async def _score_entities(self, search: _Search, picked: Sequence[_Move], depth: int) -> list[_Candidate]:
        """Return the chains to all nodes reached. Their score is that of the relation times that of the node."""
        reached = await self._neighbours(search, picked, depth)
        await search.look_up_names(node for nodes in reached for node in nodes)
        productive = [(move, nodes) for move, nodes in zip(picked, reached, strict=True) if nodes]
        with selecting((node for _, nodes in productive for node in nodes), search.tools):
            scores = await concurrently(self._score_nodes(search, move, nodes) for move, nodes in productive)
        return [
            _Candidate(move.chain.then(move.relation, node), move.score * score)
            for (move, nodes), node_scores in zip(productive, scores, strict=True)
            for node, score in zip(nodes, node_scores, strict=True)
        ]

    async def _neighbours(self, search: _Search, picked: Sequence[_Move], depth: int) -> list[tuple[Node, ...]]:
        """Return the nodes that each move reaches, or a seeded sample of them if there are too many (§2.7)."""
        followed = [move for move in picked if not (self.compat and move.relation.direction == "in")]
        hops = list(dict.fromkeys((move.chain.entity, move.relation) for move in followed))
        found = await search.tools.kg.neighbours(hops, search.tools.caps.max_frontier)
        reached = []
        for move in picked:
            hop = move.chain.entity, move.relation
            nodes = found[hop].nodes if hop in found else ()
            ahead = _without_u_turn(move, nodes, search)
            kept = self._sample(search, move, ahead, depth)
            search.tools.record(
                "expanded",
                entity=hop[0],
                relation=tuple(hop[1]),
                found=len(ahead),
                kept=len(kept),
                truncated=hop in found and found[hop].truncated,
            )
            reached.append(kept)
        return reached

    def _sample(self, search: _Search, move: _Move, nodes: tuple[Node, ...], depth: int) -> tuple[Node, ...]:
        """Return the nodes to score. The seed depends on the hop alone: all configurations of a sweep draw the same."""
        if len(nodes) <= self.entity_sample_from:
            return nodes
        rng = search.tools.rng(f"tog.entities|{move.chain.end}|{move.relation.name}|{move.relation.direction}", depth)
        sample = rng.sample(nodes, min(self.entity_sample, len(nodes)))
        search.tools.record("cut", by="sample", nodes=set(nodes).difference(sample))
        return tuple(sorted(sample, key=node_order))

    async def _score_nodes(self, search: _Search, move: _Move, nodes: tuple[Node, ...]) -> tuple[float, ...]:
        if len(nodes) == 1:
            return (1.0,)
        if self.prune == "llm":
            prompt = EntityScores(search.question, move.chain, move.relation, nodes, search.names)
            return await self._ask(search, prompt, self.temperature_explore)
        names = [node_name(node, search.names) or "" for node in nodes]
        return await similarity_scores(search.question.text, names, self.prune, search.tools.retrieval)

    def _best(self, search: _Search, candidates: Sequence[_Candidate]) -> list[GroundedPath]:
        """Return the N best candidates with a positive score, by score and then by id."""
        ranked = sorted(
            (candidate for candidate in candidates if candidate.score > 0),
            key=lambda candidate: (-round(candidate.score, 9), node_order(candidate.chain.end)),
        )
        width = min(self.width, search.tools.caps.max_frontier)
        best = ranked[:width]
        search.tools.record("kept", nodes=[candidate.chain.end for candidate in ranked])
        search.tools.record("cut", by="beam", nodes=[candidate.chain.end for candidate in ranked[width:]])
        search.tools.record(
            "pruned", candidates=len(candidates), kept=[(chain.triples[-1], score) for chain, score in best]
        )
        return [chain for chain, _ in best]

    # Reasoning and answering

    async def _reason(self, search: _Search) -> Answers | None:
        """Return the answers if the chains suffice, else None."""
        prompt = Enough(search.question, search.chains, search.names, self.compat)
        answers = await self._ask(search, prompt, self.temperature_reason)
        search.tools.record("judged", have=answers is not None, chains=len(search.chains))
        return answers

    async def _answer(self, search: _Search) -> Answers:
        """Answer from the chains. Without any, ask the model alone."""
        prompt = (
            AnswerFromChains(search.question, search.chains, search.names, self.compat)
            if search.chains
            else AnswerWithoutChains(search.question)
        )
        return await self._ask(search, prompt, self.temperature_reason, last=True)

    async def _ask(self, search: _Search, prompt: Prompt[T], temperature: float, *, last: bool = False) -> T:
        sampling = Sampling(temperature=temperature, max_tokens=self.max_tokens)
        return await search.tools.llm.ask(prompt, sampling, retries=self.parse_retries, last=last)


class _Move(NamedTuple):
    """A relation to follow from the end of a chain."""

    chain: GroundedPath
    relation: Relation
    score: float


class _Candidate(NamedTuple):
    """A chain that may enter the beam."""

    chain: GroundedPath
    score: float


@plain_dataclass
class _Search:
    """The state of one question's search."""

    question: Question
    tools: Tools
    names: dict[EntityId, str | None]
    kept: dict[GroundedPath, None] = field(default_factory=dict)
    """All chains that were in the beam, in order; an ordered set."""
    exhausted: bool = False

    @property
    def chains(self) -> tuple[GroundedPath, ...]:
        """The chains that were kept, without those that are a prefix of another."""
        prefixes = {chain.first(length) for chain in self.kept for length in range(1, chain.length)}
        return tuple(chain for chain in self.kept if chain not in prefixes)

    def keep(self, frontier: Sequence[GroundedPath]) -> None:
        """Add the chains of a beam to the evidence until its limit is met (§2.5)."""
        for chain in frontier:
            self.kept[chain] = None
            if sum(kept.length for kept in self.chains) > self.tools.caps.max_evidence_triples:
                del self.kept[chain]
                self.exhausted = True
                self.tools.record("cap_hit", cap="max_evidence_triples")
                self.tools.record(
                    "cut", by="evidence", nodes=[chain.end for chain in frontier if chain not in self.kept]
                )
                return

    def is_named(self, node: Node) -> bool:
        return node_name(node, self.names) is not None

    async def look_up_names(self, nodes: Iterable[Node]) -> None:
        """Look up the names of entities that are not known yet."""
        new = sorted({node for node in nodes if isinstance(node, str)}.difference(self.names))
        self.names.update(await self.tools.kg.labels(new))


def _without_u_turn(move: _Move, nodes: tuple[Node, ...], search: _Search) -> tuple[Node, ...]:
    """Return the nodes without the one from which a move from an unnamed node has come (§8.4).

    The name of the relation does not tell: a graph may state the edge by an inverse relation as well.
    """
    chain = move.chain
    if not chain.steps or search.is_named(chain.end):
        return nodes
    return tuple(node for node in nodes if node != chain.nodes[-2])
