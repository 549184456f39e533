"""Answers one sub-goal: guess, explore the graph round by round, refine the guess by the facts (specification §5.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pipeline.errors import BudgetExhausted
from pipeline.methods.concurrency import concurrently
from pipeline.methods.exploration import MAX_TAILS, Group, is_number, most_relevant_facts, reach, selecting
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.node_labels import path_label, relation_label
from pipeline.methods.parog.entities import CandidateGroup, SelectEntities
from pipeline.methods.parog.plan import SubGoal, under_set_operations
from pipeline.methods.parog.refine import Align, Correct, FactsInputs, Read, Refine, Refinement, Suffice, SufficeAlone
from pipeline.methods.parog.relations import Offer, SelectRelations
from pipeline.methods.parog.state import QuestionState
from pipeline.methods.parog.subgoal_result import SubgoalAnswer, SubgoalResult
from pipeline.methods.parog.tentative import AnswerTentatively
from pipeline.methods.parsing import match_key
from pipeline.retrieval.relations import as_text
from pipeline.types import EntityId, Node, Relation

if TYPE_CHECKING:
    from pipeline.methods.parog.method import PARoG

_MAX_NAMESAKES = 5
"""Entities to start from for each answer that is known by its name only."""
MOST_SINGLE_OFFERS = 5
"""If there are more entities than this that are not topics, they share one line of a prompt about relations."""


class SubgoalSearch:
    """The search for the answers of one sub-goal, and its state."""

    def __init__(
        self, options: PARoG, state: QuestionState, subgoal: SubGoal, dependencies: Sequence[SubgoalResult]
    ) -> None:
        """Prepare the search; `dependencies` holds the results of the sub-goals that this one uses."""
        self._options = options
        self._state = state
        self._question = state.question
        self._tools = state.tools
        self._subgoal = subgoal
        self._dependencies = tuple(dependencies)
        self._labels = state.node_labels(dependencies)
        is_unlimited = not options.width or subgoal.id in under_set_operations(state.plan)
        self._width = None if is_unlimited else options.width
        """Number of entities to explore further; None for all, because a set operation needs all answers."""
        self._tentative: tuple[str, ...] = ()
        self._answers: tuple[SubgoalAnswer, ...] = ()
        self._facts: dict[GroundedPath, None] = {}
        """The selected facts, in the order in which they were found."""
        self._picked: set[Node] = set()
        """The ends of the facts that the model picked; it was not asked about the others."""
        self._visited: set[EntityId] = set()
        self._is_grounded = True
        self._final: tuple[SubgoalAnswer, ...] = ()
        self._raw = ""

    async def run(self) -> SubgoalResult:
        """Search until the sub-goal is done or the budget is exhausted."""
        exhausted = False
        try:
            if self._options.refine:
                await self._answer_tentatively()
            await self._explore()
            if not self._options.refine and self._facts and not self._stops_the_question():
                await self._read()
        except BudgetExhausted:
            exhausted = True
        return SubgoalResult(
            subgoal=self._subgoal,
            answers=self._answers,
            facts=tuple(self._facts),
            names=dict(self._labels.names),
            is_grounded=self._is_grounded,
            final=self._final,
            raw=self._raw,
            tentative=self._tentative if self._options.refine else None,
            exhausted=exhausted,
        )

    async def _answer_tentatively(self) -> None:
        self._labels.add_answers(self._dependencies)
        prompt = AnswerTentatively(self._question, self._subgoal, self._dependencies, self._labels)
        reply = await self._state.ask(prompt)
        self._tentative = reply.answers
        self._answers = tuple(map(SubgoalAnswer, reply.answers))
        self._record("tentative", answers=reply.answers, confidence=reply.confidence)

    async def _explore(self) -> None:
        """Run rounds until the sub-goal is done, a round finds nothing new, or the rounds are used up (§5.7)."""
        frontier = await self._start_entities() if self._options.max_rounds else []
        for number in range(1, self._options.max_rounds + 1):
            if not frontier:
                return
            new = await self._round(frontier, number)
            if self._facts and number <= self._options.max_refines:
                is_done = await (self._refine(number) if self._options.refine else self._suffices(number))
                if is_done or self._stops_the_question():
                    return
            frontier = await self._next_frontier(new)
        self._tools.record("cut", by="depth", nodes=frontier)

    async def _start_entities(self) -> list[EntityId]:
        """Return the topic entities, and the entities among the answers that this sub-goal depends on (§5.4)."""
        starts = [entity.id for entity in self._question.topic_entities]
        if self._options.seed_entities == "topic+deps":
            starts += await self._dependency_entities()
        frontier = await self._most_relevant(list(dict.fromkeys(starts)))
        self._visited.update(frontier)
        return frontier

    async def _dependency_entities(self) -> list[EntityId]:
        """Return the entities that the dependencies answered with; answers without a node are looked up by name."""
        answers = [answer for result in self._dependencies for answer in result.answers]
        names = list(dict.fromkeys(answer.text for answer in answers if answer.node is None))
        by_name = await self._tools.kg.find_by_name(names, _MAX_NAMESAKES) if names else {}
        self._labels.add_names({id: name for name, ids in by_name.items() for id in ids})
        entities: list[EntityId] = []
        for result in self._dependencies:
            ids = (id for one in result.answers for id in ([one.id] if one.id else by_name.get(one.text, ())))
            entities += await self._most_relevant(list(dict.fromkeys(ids)), self._width)
        return entities

    async def _round(self, frontier: Sequence[EntityId], number: int) -> tuple[GroundedPath, ...]:
        """Select relations, follow them, select among the nodes reached. Return the facts that are new."""
        hops = await self._select_hops(frontier, number)
        limit = min(MAX_TAILS, self._tools.caps.max_frontier)
        reached = await reach(hops, self._tools.kg, limit=limit, expand_cvt=self._options.expand_cvt)
        self._labels.add_names(reached.names)
        self._record(
            "expanded",
            round=number,
            hops=len(hops),
            candidates=sum(len(group.facts) for group in reached.groups),
            truncated=reached.truncated,
        )
        selected = await self._select_facts(reached.groups, number)
        new = tuple(fact for fact in dict.fromkeys(selected) if fact not in self._facts)
        self._facts.update(dict.fromkeys(new))
        return new

    async def _next_frontier(self, facts: Iterable[GroundedPath]) -> list[EntityId]:
        """Return the entities at the ends of new facts that were not explored yet, at most `width`."""
        ends = dict.fromkeys(fact.end for fact in facts if isinstance(fact.end, str))
        unvisited = [end for end in ends if end not in self._visited]
        frontier = await self._most_relevant(unvisited, self._width)
        self._visited.update(frontier)
        return frontier

    async def _most_relevant(self, entities: list[EntityId], width: int | None = None) -> list[EntityId]:
        """Return at most `width` entities, and at most `budget.max_frontier`, in their order.

        Those that the model picked are kept first, then those whose names are most like the sub-goal (§5.2).
        """
        most = self._tools.caps.max_frontier
        limit = most if width is None else min(width, most)
        if len(entities) <= limit:
            return entities
        if limit == most:
            self._record("cap_hit", cap="max_frontier")
        ranking = await self._rank([self._labels.name(entity) or "" for entity in entities])
        ranking.sort(key=lambda index: entities[index] not in self._picked)
        cut = [entities[index] for index in ranking[limit:]]
        self._tools.record("cut", by="cap" if limit == most else "beam", nodes=cut)
        return [entities[index] for index in sorted(ranking[:limit])]

    # Selection of relations (§5.6)

    async def _select_hops(self, frontier: Sequence[EntityId], number: int) -> list[tuple[EntityId, Relation]]:
        """Return the hops from the frontier over the relations that the model selects."""
        relations = await self._tools.kg.relations(frontier)
        offers = [offer for offer in await self._offers(frontier, relations) if offer.relations]
        self._record(
            "relations_listed",
            round=number,
            frontier=frontier,
            relations=sum(len(offer.relations) for offer in offers),
        )
        calls = [(offer,) for offer in offers] if self._options.per_entity else [tuple(offers)] if offers else []
        replies = await concurrently(self._select_relations(call) for call in calls)
        selected = {text: chosen for reply in replies for text, chosen in reply.items()}
        self._record(
            "relations_selected",
            round=number,
            relations={text: list(map(relation_label, chosen)) for text, chosen in selected.items()},
        )
        hops = (
            (id, relation)
            for offer in offers
            for id in offer.entities
            for relation in selected.get(offer.text, ())
            if relation in relations[id]
        )
        return list(dict.fromkeys(hops))

    async def _offers(
        self, frontier: Sequence[EntityId], relations: Mapping[EntityId, Sequence[Relation]]
    ) -> list[Offer]:
        """Return one offer per entity; many entities that are not topics share one offer.

        Entities that the sub-goal names come first, then those that are not topics.
        """
        topics = {entity.id for entity in self._question.topic_entities}
        others = [id for id in frontier if id not in topics]
        shared = others if len(others) > MOST_SINGLE_OFFERS else []
        single = [id for id in frontier if id not in set(shared)]
        shown = shared[:MOST_SINGLE_OFFERS]
        self._labels.add([*single, *shown])
        self._labels.add_answers(self._dependencies)
        offers = [
            await self._offer(self._labels.label(id), (id,), relations[id])
            for id in sorted(single, key=lambda entity: (not self._is_named(entity), entity in topics))
        ]
        if shared:
            together = {relation for id in shared for relation in relations[id]}
            examples = tuple(map(self._labels.label, shown))
            text = f"all {len(shared)} others"
            offers.insert(0, await self._offer(text, shared, together, examples))
        return offers

    def _is_named(self, entity: EntityId) -> bool:
        name = self._labels.name(entity)
        return name is not None and match_key(name) in match_key(self._subgoal.goal)

    async def _offer(
        self, text: str, entities: Sequence[EntityId], relations: Iterable[Relation], examples: tuple[str, ...] = ()
    ) -> Offer:
        """Offer the `relation_prefilter` relations at some entities that are most like the sub-goal, best first."""
        known = sorted(relations)
        ranking = await self._rank([as_text(relation.name) for relation in known])
        best = [known[index] for index in ranking]
        offered, cut = best[: self._options.relation_prefilter], best[self._options.relation_prefilter :]
        self._tools.record("cut", by="similarity", relations=cut, at=entities)
        return Offer(text, tuple(entities), tuple(offered), examples, len(cut))

    async def _select_relations(self, offers: tuple[Offer, ...]) -> Mapping[str, Sequence[Relation]]:
        """Ask which relations to follow, by the text of each offer; if no reply is readable, take the most similar."""
        prompt = SelectRelations(
            self._question,
            self._subgoal,
            self._state.plan,
            self._dependencies,
            offers,
            self._labels,
            max_relations=self._options.max_relations,
        )
        selected = await self._state.ask(prompt)
        if selected is not None:
            return selected
        return {offer.text: offer.relations[: self._options.max_relations] for offer in offers}

    # Selection of nodes (§5.6)

    async def _select_facts(self, groups: Sequence[Group], number: int) -> list[GroundedPath]:
        """Return the facts whose ends are worth keeping, the model's picks first.

        The model is asked only where there is a choice.
        """
        kept: list[GroundedPath] = []
        undecided: list[CandidateGroup] = []
        rng = self._tools.rng(f"parog.entities.{self._subgoal.id}", number)
        for group in groups:
            if all(self._labels.name(fact.end) is None for fact in group.facts):
                size = len(group.facts)
                sample = sorted(rng.sample(range(size), min(self._options.unnamed_sample, size)))
                kept += [group.facts[index] for index in sample]
                cut = [fact.end for index, fact in enumerate(group.facts) if index not in sample]
                self._tools.record("cut", by="sample", nodes=cut)
            elif _leaves_no_choice(group):
                kept += group.facts
            else:
                undecided.append(await self._candidates(group))
        selected: Sequence[GroundedPath] = ()
        if undecided:
            prompt = SelectEntities(self._question, self._subgoal, self._state.plan, tuple(undecided))
            with selecting((fact.end for group in groups for fact in group.facts), self._tools):
                reply = await self._state.ask(prompt)
            selected = await self._most_similar_facts(undecided) if reply is None else reply
        self._record(
            "pruned",
            round=number,
            offered=sum(len(group.facts) for group in undecided),
            picked=len(selected),
            unasked=len(kept),
        )
        self._tools.record("kept", nodes=[fact.end for fact in (*selected, *kept)])
        self._picked.update(fact.end for fact in selected)
        return [*selected, *kept]

    async def _candidates(self, group: Group) -> CandidateGroup:
        """Return the group as the model is shown it; of many facts, those whose ends are most like the sub-goal."""
        self._labels.add([*(fact.end for fact in group.facts), group.source])
        facts = [(self._labels.label(fact.end), fact) for fact in group.facts]
        cut: list[Node] = []
        if len(facts) > self._options.entity_prefilter:
            ranking = await self._rank([text for text, _ in facts])
            cut = [facts[index][1].end for index in ranking[self._options.entity_prefilter :]]
            self._tools.record("cut", by="similarity", nodes=cut)
            facts = [facts[index] for index in sorted(ranking[: self._options.entity_prefilter])]
        return CandidateGroup(self._labels.label(group.source), path_label(group.path), tuple(facts), len(cut))

    async def _most_similar_facts(self, groups: Iterable[CandidateGroup]) -> list[GroundedPath]:
        """Return the `width` facts of all groups whose ends are most like the sub-goal; all without a width."""
        facts = [fact for group in groups for fact in group.facts]
        ranking = await self._rank([text for text, _ in facts])
        return [facts[index][1] for index in ranking[: self._width]]

    async def _rank(self, texts: Sequence[str]) -> list[int]:
        return await self._tools.retrieval.rank(self._subgoal.goal, texts)

    # Refinement (§5.3, §5.8)

    async def _refine(self, number: int) -> bool:
        """Correct the tentative answer by the facts. Return whether the sub-goal is done.

        Irrelevant facts do not change the answer, which stays the tentative one, and do not answer the question.
        """
        refinement = await self._ask_for_refinement()
        trusts_all = not self._options.fallback_to_tentative and bool(refinement.answers)
        self._is_grounded = refinement.aligned or trusts_all
        if self._is_grounded:
            self._answers = tuple(map(self._labels.link, refinement.answers))
        else:
            self._answers = tuple(map(SubgoalAnswer, self._tentative))
        if refinement.aligned:
            self._final, self._raw = tuple(map(self._labels.link, refinement.final)), refinement.raw
        self._record(
            "refined",
            round=number,
            aligned=refinement.aligned,
            done=refinement.done,
            answers=[answer.text for answer in self._answers],
            final=refinement.final,
        )
        return refinement.done

    def _stops_the_question(self) -> bool:
        return bool(self._final) and self._options.stop_on_question_answered

    async def _ask_for_refinement(self) -> Refinement:
        """Ask the three questions of a refinement, in one call or one by one."""
        inputs = await self._facts_inputs()
        ask = self._state.ask
        if not self._options.split_refine:
            return await ask(Refine(**inputs))
        aligned = (await ask(Align(**inputs))).aligned
        answers = (await ask(Correct(**inputs))).answers
        return replace(await ask(Suffice(**inputs)), aligned=aligned, answers=answers)

    async def _suffices(self, number: int) -> bool:
        """Ask whether the facts are enough, and correct nothing (§5.8). Return whether the sub-goal is done."""
        verdict = await self._state.ask(SufficeAlone(**await self._facts_inputs()))
        self._final, self._raw = tuple(map(self._labels.link, verdict.final)), verdict.raw
        self._record("step", op="suffices", round=number, done=verdict.done, final=verdict.final)
        return verdict.done

    async def _read(self) -> None:
        """Answer from the facts alone, without self-refinement (§5.8)."""
        texts = await self._state.ask(Read(**await self._facts_inputs()))
        self._answers = tuple(map(self._labels.link, texts))
        self._record("step", op="read", answers=texts)

    async def _facts_inputs(self) -> FactsInputs:
        """Return the fields of a prompt about the facts, after all nodes that it shows got labels."""
        facts = await most_relevant_facts(list(self._facts), self._subgoal.goal, self._labels.names, self._tools)
        self._labels.add_answers(self._dependencies)
        self._labels.add_facts(facts)
        return FactsInputs(
            question=self._question,
            subgoal=self._subgoal,
            facts=facts,
            labels=self._labels,
            dependencies=self._dependencies,
            tentative=self._tentative,
            left_out=len(self._facts) - len(facts),
        )

    def _record(self, event: str, /, **payload: object) -> None:
        self._tools.record(event, subgoal=self._subgoal.id, **payload)


def _leaves_no_choice(group: Group) -> bool:
    """Whether a selected relation leads to a single node, or to numbers only (§5.6).

    A path over a mediator always leaves a choice: the model has not selected its second relation.
    """
    if len(group.path) > 1:
        return False
    return len(group.facts) == 1 or all(is_number(fact.end) for fact in group.facts)
