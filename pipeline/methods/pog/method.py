"""PoG: explores a graph with a width of its own choice, keeps a memory, and can go back (specification §16.3).

A prompting baseline of the PARoG paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import ClassVar, Literal, NamedTuple

from pydantic import ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.errors import BudgetExhausted
from pipeline.llm.prompt import Sampling
from pipeline.methods.answer_linking import entity_names, search_status
from pipeline.methods.concurrency import concurrently
from pipeline.methods.exploration import MAX_TAILS, is_number, reach, selecting
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.interface import Caps, Tools
from pipeline.methods.node_labels import NodeLabels
from pipeline.methods.pog.answer import AnswerAlone, AnswerFromTriples
from pipeline.methods.pog.entities import SelectEntities
from pipeline.methods.pog.evaluate import Evaluate
from pipeline.methods.pog.facts import ShownFacts
from pipeline.methods.pog.memory import NOTHING, UpdateStatus
from pipeline.methods.pog.plan import MakePlan
from pipeline.methods.pog.reflect import ChooseBack, Reflect
from pipeline.methods.pog.relations import RelationOffer, SelectRelations
from pipeline.methods.pog.search import Search, Source
from pipeline.methods.pog.selection import Selection
from pipeline.methods.pog.verdict import Verdict
from pipeline.retrieval.relations import as_text
from pipeline.types import Answer, EntityId, Prediction, Question, Relation

_MOST_WITHOUT_REPLY = 20
"""Nodes kept of a group when no reply could be read and the width is adaptive."""
_ROUND_CALLS = 4
"""Calls of a round beside the choice of relations and entities: memory, evaluation and two of the reflection."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class PoG:
    """Plan-on-Graph. Its hyper-parameters are described in `conf/method/pog.yaml`."""

    prompts: ClassVar = (
        MakePlan,
        SelectRelations,
        SelectEntities,
        UpdateStatus,
        Evaluate,
        Reflect,
        ChooseBack,
        AnswerFromTriples,
        AnswerAlone,
    )
    name: str
    width: NonNegativeInt
    max_depth: PositiveInt
    max_reversals: NonNegativeInt
    readd_once: bool
    guidance: bool
    memory: bool
    reflection: bool
    calls: Literal["per_entity", "batched"]
    no_return: Literal["cvt", "relation", "none"]
    evaluate_on: Literal["round", "all"]
    backtrack_from: Literal["candidates", "expanded"]
    backtrack_candidates: PositiveInt
    reoffer: bool
    on_dead_end: Literal["evidence", "alone"]
    on_depth_limit: Literal["alone", "evidence"]
    max_relations: PositiveInt
    entity_prefilter: PositiveInt
    unnamed_sample: PositiveInt
    frontier_cap: PositiveInt
    group_cap: PositiveInt
    temperature: NonNegativeFloat
    max_tokens: PositiveInt
    parse_retries: NonNegativeInt

    def most_llm_calls(self, question: Question, caps: Caps) -> int:
        """Bound the calls (§16.3): a plan, in each round all choices and the calls that follow them, and the answer."""
        choices = 2 if self.calls == "batched" else self.frontier_cap + self.group_cap
        return (1 + self.parse_retries) * (1 + self.max_depth * (choices + _ROUND_CALLS) + 1)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Explore round by round until the facts suffice to answer, there is a dead end, or the depth is reached."""
        sampling = Sampling(temperature=self.temperature, max_tokens=self.max_tokens)
        labels = NodeLabels({topic.id: topic.name for topic in question.topic_entities})
        search = Search(question, tools, sampling, self.parse_retries, labels)
        try:
            ending = await self._explore(search)
        except BudgetExhausted:
            ending, search.exhausted = _Ending("budget"), True
        return self._result(search, ending if ending.verdict else await self._close(search, ending.source))

    async def _explore(self, search: Search) -> _Ending:
        """Return how the search ended; with a verdict if the facts of a round suffice to answer."""
        frontier = await self._start(search)
        if not frontier:
            return _Ending("alone")
        for search.round in range(1, self.max_depth + 1):
            hops = await self._select_relations(search, frontier)
            kept = await self._select_facts(search, await self._reach(search, hops))
            if not kept:
                return _Ending("dead_end")
            search.keep(kept)
            await self._update_status(search)
            search.tools.record("kept", nodes=[fact.end for fact in kept])  # the next call decides whether they suffice
            facts, verdict = await self._evaluate(search)
            if verdict.sufficient and verdict.answers:
                return _Ending("round", verdict, facts)
            frontier = await self._next_frontier(search)
            if not frontier:
                return _Ending("dead_end")
        search.tools.record("cut", by="depth", nodes=frontier)
        return _Ending("depth_limit")

    async def _start(self, search: Search) -> list[EntityId]:
        """Make the plan, and return the topic entities. Without one, no plan is made."""
        topics = [topic.id for topic in search.question.topic_entities]
        for topic in topics:
            search.start_at(topic)
        search.labels.add(topics)
        if topics and self.guidance:
            search.objectives = await search.ask(MakePlan(search.question))
            search.tools.record("plan", objectives=search.objectives)
        if self.memory:
            search.status = tuple((each, NOTHING) for each in search.objectives or (search.question.text,))
        return await self._within_cap(search, list(dict.fromkeys(topics)))

    # Relation exploration

    async def _select_relations(self, search: Search, frontier: Sequence[EntityId]) -> list[tuple[EntityId, Relation]]:
        """Return the hops from the frontier over the relations that the model picks, in both directions."""
        around = await search.tools.kg.relations(frontier)
        offers = [self._offer(search, entity, around[entity]) for entity in frontier]
        offers = [offer for offer in offers if offer.relations]
        search.record("relations_listed", frontier=frontier, relations=sum(len(offer.names) for offer in offers))
        batches = [tuple(offers)] if self.calls == "batched" and offers else [(offer,) for offer in offers]
        replies = await concurrently(self._ask_relations(search, batch) for batch in batches)
        hops: list[tuple[EntityId, Relation]] = []
        for offer, selection in zip(offers, (each for reply in replies for each in reply), strict=True):
            names = [offer.names[index] for index in selection.picked][: self.width or None]
            search.record("relations_selected", entity=offer.label, relations=names, hallucinated=selection.unknown)
            hops += [
                (offer.entity, relation) for name in names for relation in offer.relations if relation.name == name
            ]
        search.see(frontier)
        for entity in frontier:
            search.expanded.setdefault(entity, set()).update(relation for source, relation in hops if source == entity)
        return hops

    def _offer(self, search: Search, entity: EntityId, relations: Iterable[Relation]) -> RelationOffer:
        """Return the relations to offer of an entity, without those followed before and those that are barred."""
        barred = set() if self.reoffer else set(search.expanded.get(entity, ()))
        if self.no_return == "relation":
            back = {relation.reversed for relation in search.arrivals.get(entity, ())}.intersection(relations)
            search.tools.record("cut", by="cap", relations=sorted(back - barred), at=[entity])
            barred |= back
        offered = tuple(sorted(set(relations) - barred))
        return RelationOffer(entity, search.labels.label(entity), search.paths(entity), offered)

    async def _ask_relations(self, search: Search, offers: tuple[RelationOffer, ...]) -> Sequence[Selection]:
        """Ask which relations to follow. If no reply can be read, take those most similar to the question."""
        prompt = SelectRelations(search.question, search.objectives, offers, self.calls == "batched")
        selections = await search.ask(prompt)
        if selections is not None:
            return selections
        rankings = [await search.rank([as_text(name) for name in offer.names]) for offer in offers]
        return [Selection(tuple(ranking[: self.max_relations])) for ranking in rankings]

    # Entity exploration

    async def _reach(self, search: Search, hops: Sequence[tuple[EntityId, Relation]]) -> list[tuple[GroundedPath, ...]]:
        """Return the facts of each group: to all nodes that an entity leads to over a relation in one direction."""
        limit = min(MAX_TAILS, search.tools.caps.max_frontier)
        reached = await reach(hops, search.tools.kg, limit=limit, expand_cvt=False)
        search.labels.add_names(reached.names)
        groups = [self._without_return(search, group.facts) for group in reached.groups]
        search.retrieve(fact for facts in groups for fact in facts)
        search.record("expanded", hops=len(hops), candidates=sum(map(len, groups)), truncated=reached.truncated)
        return [facts for facts in groups if facts]

    def _without_return(self, search: Search, facts: tuple[GroundedPath, ...]) -> tuple[GroundedPath, ...]:
        """Leave out the way from an unnamed node back to the only node from which it was reached (§8.4)."""
        if self.no_return != "cvt" or search.labels.name(facts[0].start) is not None:
            return facts
        before = search.came_from.get(facts[0].start, set())
        return tuple(fact for fact in facts if before != {fact.end})

    async def _select_facts(self, search: Search, groups: Sequence[tuple[GroundedPath, ...]]) -> list[GroundedPath]:
        """Return the facts to keep. The model is asked about the groups that leave a choice."""
        choices = [index for index, facts in enumerate(groups) if not _leaves_no_choice(facts)]
        choices = await self._most_similar_groups(search, groups, choices)
        offered = [await self._candidates(search, groups[index]) for index in choices]
        search.labels.add(fact.end for facts in offered for fact in facts)
        batches = [tuple(offered)] if self.calls == "batched" and offered else [(facts,) for facts in offered]
        with selecting((fact.end for facts in groups for fact in facts), search.tools):
            replies = await concurrently(self._ask_entities(search, batch) for batch in batches)
        selections = [each for reply in replies for each in reply]
        picked = {
            index: [facts[position] for position in selection.picked[: self.width or None]]
            for index, facts, selection in zip(choices, offered, selections, strict=True)
        }
        decided = {index: facts for index, facts in enumerate(groups) if _leaves_no_choice(facts)}
        kept = [fact for index in range(len(groups)) for fact in picked.get(index, decided.get(index, ()))]
        search.labels.add(fact.end for fact in kept)
        search.tools.record("kept", nodes=[fact.end for fact in kept])
        search.record(
            "pruned",
            asked=len(choices),
            offered=sum(map(len, offered)),
            kept=len(kept),
            hallucinated=[name for selection in selections for name in selection.unknown],
        )
        return kept

    async def _most_similar_groups(
        self, search: Search, groups: Sequence[tuple[GroundedPath, ...]], choices: list[int]
    ) -> list[int]:
        """Return at most `group_cap` of the groups to ask about, in their order."""
        if len(choices) <= self.group_cap:
            return choices
        search.tools.record("cap_hit", cap="group_cap")
        firsts = [groups[index][0] for index in choices]
        texts = [f"{search.labels.name(fact.start) or ''} {as_text(fact.path[0])}" for fact in firsts]
        ranking = await search.rank(texts)
        return sorted(choices[index] for index in ranking[: self.group_cap])

    async def _candidates(self, search: Search, facts: tuple[GroundedPath, ...]) -> tuple[GroundedPath, ...]:
        """Return the facts of a group that a prompt shows, in their order: a sample if unnamed, else the most similar.

        The seed of the sample depends on the group alone: all configurations of a sweep draw the same.
        """
        names = [search.labels.name(fact.end) for fact in facts]
        if len(facts) > self.unnamed_sample and not any(names):
            source, relation = facts[0].start, facts[0].steps[0].relation
            rng = search.tools.rng(f"pog.entities|{source}|{relation.name}|{relation.direction}")
            sample = set(rng.sample(range(len(facts)), self.unnamed_sample))
            return self._without_cut(search, facts, sample, by="sample")
        if len(facts) <= self.entity_prefilter:
            return facts
        search.large.update(dict.fromkeys(fact.end for fact in facts if isinstance(fact.end, str)))
        ranking = await search.rank([name or "" for name in names])
        return self._without_cut(search, facts, set(ranking[: self.entity_prefilter]), by="similarity")

    def _without_cut(
        self, search: Search, facts: tuple[GroundedPath, ...], kept: Set[int], *, by: str
    ) -> tuple[GroundedPath, ...]:
        """Return the facts at some positions, and record what is cut."""
        search.tools.record("cut", by=by, nodes=[fact.end for at, fact in enumerate(facts) if at not in kept])
        return tuple(fact for at, fact in enumerate(facts) if at in kept)

    async def _ask_entities(self, search: Search, groups: tuple[tuple[GroundedPath, ...], ...]) -> Sequence[Selection]:
        """Ask which nodes to keep. If no reply can be read, take those most similar to the question."""
        prompt = SelectEntities(search.question, groups, search.labels, self.calls == "batched")
        selections = await search.ask(prompt)
        if selections is not None:
            return selections
        rankings = [await search.rank([search.labels.label(fact.end) for fact in facts]) for facts in groups]
        return [Selection(tuple(ranking[: self.width or _MOST_WITHOUT_REPLY])) for ranking in rankings]

    # Memory and evaluation

    async def _update_status(self, search: Search) -> None:
        if self.memory:
            facts = await search.shown(search.latest)
            search.status = await search.ask(UpdateStatus(search.question, search.status, facts))
            search.record("remembered", status=dict(search.status))

    async def _evaluate(self, search: Search) -> tuple[ShownFacts, Verdict]:
        """Return the facts on which the round is evaluated, and the verdict."""
        facts = await search.shown(self._remembered(search) if self.evaluate_on == "all" else search.latest)
        verdict = await search.ask(Evaluate(search.question, search.status, facts))
        search.record("judged", sufficient=verdict.sufficient, answers=verdict.answers, reason=verdict.reason)
        return facts, verdict

    def _remembered(self, search: Search) -> tuple[GroundedPath, ...]:
        """Return all kept facts; without a memory, those of the last round."""
        return tuple(search.kept) if self.memory else search.latest

    # Reflection

    async def _next_frontier(self, search: Search) -> list[EntityId]:
        """Return the entities to explore next: those just kept, and those that a reflection adds back."""
        frontier = list(dict.fromkeys(fact.end for fact in search.latest if isinstance(fact.end, str)))
        is_last = search.round == self.max_depth
        if self.reflection and not is_last and search.reversals < self.max_reversals:
            frontier += await self._go_back(search, frontier)
            search.tools.record("kept", nodes=[*frontier, *(fact.end for fact in search.latest)])
        return await self._within_cap(search, frontier)

    async def _go_back(self, search: Search, frontier: Sequence[EntityId]) -> list[EntityId]:
        """Return the earlier entities that a reflection adds back to the frontier; most often none."""
        facts = await search.shown(self._remembered(search))
        reflection = await search.ask(Reflect(search.question, tuple(frontier), search.status, facts))
        back: list[EntityId] = []
        hallucinated: Sequence[str] = ()
        candidates = await self._candidates_to_go_back(search, frontier) if reflection.add else []
        if candidates:
            search.labels.add(candidates)
            selection = await search.ask(
                ChooseBack(search.question, reflection.reason, tuple(candidates), search.status, search.labels)
            )
            back, hallucinated = [candidates[index] for index in selection.picked], selection.unknown
        for entity in back:
            for fact in search.retrieved.get(entity, ()):
                search.arrive_by(fact)
        search.reversals += bool(back)
        search.added_back.update(back)
        search.record(
            "reflected",
            add=reflection.add,
            reason=reflection.reason,
            candidates=len(candidates),
            back=[search.labels.label(entity) for entity in back],
            hallucinated=hallucinated,
        )
        return back

    async def _candidates_to_go_back(self, search: Search, frontier: Sequence[EntityId]) -> list[EntityId]:
        """Return the entities to offer for going back: expanded ones, then named ones by similarity to the question."""
        barred = {*frontier, *(search.added_back if self.readd_once else ())}
        if not self.memory:
            barred |= {entity for entity, number in search.seen_in.items() if number < search.round}
        expanded = [entity for entity in search.expanded if entity not in barred]
        sources = search.retrieved if self.backtrack_from == "candidates" else search.large
        others = [entity for entity in sources if entity not in barred and entity not in search.expanded]
        named = [entity for entity in others if search.labels.name(entity)]
        room = max(self.backtrack_candidates - len(expanded), 0)
        return [*expanded[: self.backtrack_candidates], *await search.most_similar(named, room)]

    async def _within_cap(self, search: Search, frontier: list[EntityId]) -> list[EntityId]:
        """Return at most `frontier_cap` entities, in their order: those with names most similar to the question."""
        if len(frontier) <= self.frontier_cap:
            return frontier
        search.tools.record("cap_hit", cap="frontier_cap")
        kept = set(await search.most_similar(frontier, self.frontier_cap))
        search.tools.record("cut", by="similarity", nodes=[entity for entity in frontier if entity not in kept])
        return [entity for entity in frontier if entity in kept]

    # Answering

    async def _close(self, search: Search, source: Source) -> _Ending:
        """Answer from the kept facts, or by the model alone. This one call is made even at a limit of the budget."""
        endings = {"alone": "alone", "dead_end": self.on_dead_end, "depth_limit": self.on_depth_limit}
        if endings.get(source, "evidence" if search.kept else "alone") == "alone":
            verdict = await search.ask(AnswerAlone(search.question), last=True)
            return _Ending("alone", verdict)
        facts = await search.shown(self._remembered(search))
        verdict = await search.ask(AnswerFromTriples(search.question, facts), last=True)
        return _Ending(source, verdict, facts)

    def _result(self, search: Search, ending: _Ending) -> Answer:
        """Return the answers with the facts from which they were given, and record how the search ended."""
        verdict = ending.verdict or Verdict()
        evidence = tuple(fact.triples for fact in ending.facts.facts) if ending.facts else ()
        status = search_status(search.question, evidence, exhausted=search.exhausted)
        search.tools.record(
            "answered",
            answers=verdict.answers,
            source=ending.source,
            sufficient=verdict.sufficient,
            rounds=search.round,
            reversals=search.reversals,
            evidence=len(evidence),
            status=status,
        )
        return Answer(
            predictions=tuple(_prediction(text, search.labels) for text in verdict.answers),
            raw=verdict.raw,
            evidence=evidence,
            names=entity_names(evidence, search.labels.names),
            status=status,
        )


class _Ending(NamedTuple):
    """How a search ended."""

    source: Source
    verdict: Verdict | None = None
    """None if the answer has still to be asked for."""
    facts: ShownFacts | None = None
    """The facts that the answering call saw."""


def _leaves_no_choice(facts: Sequence[GroundedPath]) -> bool:
    """Whether a relation leads to a single node, or to numbers only."""
    return len(facts) == 1 or all(is_number(fact.end) for fact in facts)


def _prediction(text: str, labels: NodeLabels) -> Prediction:
    """Return an answer, linked to the node that has this label or name."""
    node = labels.node(text)
    if node is None:
        return Prediction(text)
    return Prediction(labels.name(node) or text, node if isinstance(node, str) else None)
