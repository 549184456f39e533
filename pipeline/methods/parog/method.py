"""PARoG: plan sub-goals, answer each tentatively, explore, refine by what was found, aggregate (methods.md §5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import field, replace
from typing import Literal, TypeVar

from pydantic import ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.errors import BudgetExhausted
from pipeline.llm.prompt import Prompt, Sampling
from pipeline.methods.concluding import entity_names
from pipeline.methods.concurrency import concurrently
from pipeline.methods.instance import Instance, within
from pipeline.methods.parog.aggregate import Aggregate, aggregate_tentatively, last_answers
from pipeline.methods.parog.entities import Candidates, SelectEntities
from pipeline.methods.parog.exploration import TAILS, Group, reach
from pipeline.methods.parog.outcome import Found, Outcome
from pipeline.methods.parog.plan import Plan, SubGoal, under_set_operations, waves, whole_question
from pipeline.methods.parog.planning import MakePlan
from pipeline.methods.parog.refine import Align, Correct, Read, Refine, Suffice, Verdict
from pipeline.methods.parog.relations import Offer, SelectRelations
from pipeline.methods.parog.sets import execute, is_executable
from pipeline.methods.parog.showing import Showing, label, path_label
from pipeline.methods.parog.tentative import AnswerTentatively
from pipeline.methods.port import Tools
from pipeline.methods.rendering import Names
from pipeline.retrieval.relations import as_text
from pipeline.types import Answer, EntityId, LiteralNode, Node, Prediction, Question, Relation, Status

T = TypeVar("T")

_NAMESAKES = 5
"""Entities that an answer may stand for which the search itself has not met."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class PARoG:
    """Plan-Answer-Refine-on-Graph. Its hyper-parameters are described in `conf/method/parog.yaml`."""

    name: str = "parog"
    temperature: NonNegativeFloat = 0.3
    planner: Literal["finetuned", "prompted", "none"] = "finetuned"
    max_subgoals: PositiveInt = 6
    max_rounds: NonNegativeInt = 3
    max_refines: NonNegativeInt = 3
    width: NonNegativeInt = 5
    max_relations: PositiveInt = 5
    per_entity: bool = False
    expand_cvt: bool = True
    entity_prefilter: PositiveInt = 70
    unnamed_sample: PositiveInt = 10
    seed_entities: Literal["topic+deps", "topic"] = "topic+deps"
    refine: bool = True
    split_refine: bool = False
    fallback_to_tentative: bool = True
    stop_on_question_answered: bool = True
    parse_retries: NonNegativeInt = 2
    max_tokens: PositiveInt = 2048

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Pursue the sub-goals of a plan, and answer from what they come to (§5.3)."""
        case = _Case(question, tools, whole_question(question))
        try:
            case.plan = await self._make_plan(case)
        except BudgetExhausted:
            return await self._aggregate(case, exhausted=True)
        for wave in waves(case.plan):
            found = await concurrently(self._pursue(case, subgoal) for subgoal in wave)
            case.outcomes.update({outcome.subgoal.id: outcome for outcome in found})
            answering = next((outcome for outcome in found if outcome.final), None)
            if answering and self.stop_on_question_answered:
                return self._stop(case, answering)
            if any(outcome.exhausted for outcome in found):
                return await self._aggregate(case, exhausted=True)
        return await self._aggregate(case)

    async def _make_plan(self, case: _Case) -> Plan:
        plan = whole_question(case.question)
        if self.planner != "none":
            prompt = MakePlan(case.question, self.planner == "finetuned", self.max_subgoals)
            plan = await self._ask(case, prompt)
        is_whole = plan == whole_question(case.question)
        case.tools.record("plan", subgoals=plan, planner=self.planner, whole_question=is_whole)
        return plan

    async def _pursue(self, case: _Case, subgoal: SubGoal) -> Outcome:
        """Execute a set operation on answers that are there already; explore for anything else (§5.5)."""
        used = [case.outcomes[id] for id in subgoal.uses]
        try:
            if is_executable(subgoal, used):
                return await self._combine(case, subgoal, used)
        except BudgetExhausted:
            return Outcome(subgoal, exhausted=True)
        return await self._explore(case, subgoal, used)

    async def _combine(self, case: _Case, subgoal: SubGoal, used: Sequence[Outcome]) -> Outcome:
        """Execute a set operation: in code, else by the model; the last one is then left to the final answer."""
        answers, by = execute(subgoal, used), "code"
        if answers is None and any(subgoal.id in later.uses for later in case.plan):
            prompt = self._aggregation(case, subgoal)
            reply = await self._ask(case, prompt)
            answers, by = tuple(map(prompt.showing.found, reply.texts)), "model"
        names = {id: name for outcome in used for id, name in outcome.names.items()}
        case.tools.record("step", subgoal=subgoal.id, op=subgoal.op, by=by, answers=_texts(answers or ()))
        return Outcome(subgoal, answers or (), names=names)

    # Tentative – explore – refine (§5.3)

    async def _explore(self, case: _Case, subgoal: SubGoal, used: Sequence[Outcome]) -> Outcome:
        pursuit = _Pursuit(subgoal, tuple(used), case.showing(used))
        try:
            if self.refine:
                await self._answer_tentatively(case, pursuit)
            await self._search(case, pursuit)
            if not self.refine and pursuit.facts:
                await self._read(case, pursuit)
        except BudgetExhausted:
            pursuit.exhausted = True
        return pursuit.outcome()

    async def _answer_tentatively(self, case: _Case, pursuit: _Pursuit) -> None:
        guess = await self._ask(case, AnswerTentatively(case.question, pursuit.subgoal, pursuit.used, pursuit.showing))
        pursuit.tentative = guess.answers
        pursuit.answers = tuple(map(Found, guess.answers))
        case.tools.record("tentative", subgoal=pursuit.subgoal.id, answers=guess.answers, confidence=guess.confidence)

    async def _search(self, case: _Case, pursuit: _Pursuit) -> None:
        """Explore round by round until the sub-goal is done, nothing new turns up, or the rounds are spent (§5.7)."""
        frontier = await self._start_entities(case, pursuit) if self.max_rounds else []
        for number in range(1, self.max_rounds + 1):
            if not frontier:
                return
            new = await self._round(case, pursuit, frontier, number)
            is_refined = self.refine and bool(pursuit.facts) and number <= self.max_refines
            if is_refined and await self._refine(case, pursuit, number):
                return
            frontier = self._next_frontier(case, pursuit, new)

    async def _start_entities(self, case: _Case, pursuit: _Pursuit) -> list[EntityId]:
        """The topic entities, and those behind the answers that this sub-goal depends on (§5.4)."""
        starts = [entity.id for entity in case.question.topic_entities]
        if self.seed_entities == "topic+deps":
            starts += await self._linked_answers(case, pursuit)
        starts = list(dict.fromkeys(starts))[: case.tools.caps.max_frontier]
        pursuit.visited.update(starts)
        return starts

    async def _linked_answers(self, case: _Case, pursuit: _Pursuit) -> list[EntityId]:
        """The entities behind the answers that a sub-goal depends on: as met there, else looked up by name."""
        unlinked = [found.text for outcome in pursuit.used for found in outcome.answers if found.node is None]
        named = await case.tools.kg.find_by_name(list(dict.fromkeys(unlinked)), _NAMESAKES) if unlinked else {}
        linked: list[EntityId] = []
        for outcome in pursuit.used:
            ids = (id for found in outcome.answers for id in ([found.id] if found.id else named.get(found.text, ())))
            linked += self._at_most(case, pursuit.subgoal, list(dict.fromkeys(ids)))
        pursuit.showing.learn({id: text for text, ids in named.items() for id in ids})
        return linked

    async def _round(
        self, case: _Case, pursuit: _Pursuit, frontier: Sequence[EntityId], number: int
    ) -> tuple[Instance, ...]:
        """Select relations, follow them, select among what they lead to; returns the facts that are new."""
        hops = await self._select_relations(case, pursuit, frontier, number)
        limit = min(TAILS, case.tools.caps.max_frontier)
        reached = await reach(hops, case.tools.kg, limit=limit, expand_cvt=self.expand_cvt)
        pursuit.showing.learn(reached.names)
        case.tools.record(
            "expanded",
            subgoal=pursuit.subgoal.id,
            round=number,
            hops=len(hops),
            candidates=sum(len(group.facts) for group in reached.groups),
            truncated=reached.truncated,
        )
        selected = await self._select_entities(case, pursuit, reached.groups, number)
        new = tuple(fact for fact in dict.fromkeys(selected) if fact not in pursuit.facts)
        pursuit.facts.update(dict.fromkeys(new))
        return new

    def _next_frontier(self, case: _Case, pursuit: _Pursuit, facts: Sequence[Instance]) -> list[EntityId]:
        """The entities that are new in this round, `width` of them."""
        ends = dict.fromkeys(fact.end for fact in facts if isinstance(fact.end, str))
        unvisited = [end for end in ends if end not in pursuit.visited]
        frontier = self._at_most(case, pursuit.subgoal, unvisited)[: case.tools.caps.max_frontier]
        pursuit.visited.update(frontier)
        return frontier

    def _at_most(self, case: _Case, subgoal: SubGoal, entities: Sequence[EntityId]) -> list[EntityId]:
        """The first `width` entities.

        All of them without a width, and below a set operation, which half a set would make wrong.
        """
        is_whole = not self.width or subgoal.id in under_set_operations(case.plan)
        return list(entities if is_whole else entities[: self.width])

    # Selection (§5.6)

    async def _select_relations(
        self, case: _Case, pursuit: _Pursuit, frontier: Sequence[EntityId], number: int
    ) -> list[tuple[EntityId, Relation]]:
        """The hops to make from the frontier."""
        around = await case.tools.kg.relations(frontier)
        offers = [offer for offer in self._offers(case, pursuit, frontier, around) if offer.relations]
        case.tools.record(
            "relations_listed",
            subgoal=pursuit.subgoal.id,
            round=number,
            frontier=frontier,
            relations=sum(len(offer.relations) for offer in offers),
        )
        calls = [(offer,) for offer in offers] if self.per_entity else [tuple(offers)] if offers else []
        picked = await concurrently(self._pick_relations(case, pursuit, call) for call in calls)
        chosen = {text: relations for one in picked for text, relations in one.items()}
        case.tools.record(
            "relations_selected",
            subgoal=pursuit.subgoal.id,
            round=number,
            relations={text: list(map(label, relations)) for text, relations in chosen.items()},
        )
        hops = (
            (id, relation)
            for offer in offers
            for id in offer.entities
            for relation in chosen.get(offer.text, ())
            if relation in around[id]
        )
        return list(dict.fromkeys(hops))

    def _offers(
        self,
        case: _Case,
        pursuit: _Pursuit,
        frontier: Sequence[EntityId],
        around: Mapping[EntityId, Sequence[Relation]],
    ) -> list[Offer]:
        """A line for each entity; of a frontier wider than `width` the entities that are no topics share one line."""
        topics = {entity.id for entity in case.question.topic_entities}
        others = [id for id in frontier if id not in topics]
        shared = others if self.width and len(others) > self.width else []
        single = [id for id in frontier if id not in shared]
        offers = [Offer(pursuit.showing.text(id), (id,), tuple(sorted(around[id]))) for id in single]
        if shared:
            together = {relation for id in shared for relation in around[id]}
            examples = tuple(map(pursuit.showing.text, shared[: self.width]))
            offers.append(Offer(f"all {len(shared)} others", tuple(shared), tuple(sorted(together)), examples))
        return offers

    async def _pick_relations(
        self, case: _Case, pursuit: _Pursuit, offers: tuple[Offer, ...]
    ) -> Mapping[str, Sequence[Relation]]:
        names = pursuit.showing.names
        prompt = SelectRelations(case.question, pursuit.subgoal, case.plan, offers, names, self.max_relations)
        picked = await self._ask(case, prompt)
        if picked is not None:
            return picked
        return {
            offer.text: (await self._rank_relations(case, pursuit, offer))[: self.max_relations] for offer in offers
        }

    async def _rank_relations(self, case: _Case, pursuit: _Pursuit, offer: Offer) -> list[Relation]:
        texts = [as_text(relation.name) for relation in offer.relations]
        return [offer.relations[place] for place in await case.tools.retrieval.rank(pursuit.subgoal.goal, texts)]

    async def _select_entities(
        self, case: _Case, pursuit: _Pursuit, groups: Sequence[Group], number: int
    ) -> list[Instance]:
        """The facts that end in what is worth keeping; there is no call where there is nothing to choose."""
        kept: list[Instance] = []
        open_groups: list[Candidates] = []
        rng = case.tools.rng(f"parog.entities.{pursuit.subgoal.id}", number)
        for group in groups:
            unnamed = [fact for fact in group.facts if pursuit.showing.name(fact.end) is None]
            if len(unnamed) == len(group.facts):
                places = sorted(rng.sample(range(len(unnamed)), min(self.unnamed_sample, len(unnamed))))
                kept += [unnamed[place] for place in places]
            elif _leaves_no_choice(group):
                kept += group.facts
            else:
                open_groups.append(await self._prefilter(case, pursuit, group))
        picked: Sequence[Instance] = ()
        if open_groups:
            prompt = SelectEntities(case.question, pursuit.subgoal, tuple(open_groups))
            reply = await self._ask(case, prompt)
            picked = reply if reply is not None else await self._most_similar(case, pursuit, open_groups)
        case.tools.record(
            "pruned",
            subgoal=pursuit.subgoal.id,
            round=number,
            offered=sum(len(group.facts) for group in open_groups),
            picked=len(picked),
            unasked=len(kept),
        )
        return [*kept, *picked]

    async def _prefilter(self, case: _Case, pursuit: _Pursuit, group: Group) -> Candidates:
        """Of many candidates those whose names are most like the sub-goal."""
        facts = [(pursuit.showing.text(fact.end), fact) for fact in group.facts]
        if len(facts) > self.entity_prefilter:
            ranking = await case.tools.retrieval.rank(pursuit.subgoal.goal, [text for text, _ in facts])
            facts = [facts[place] for place in sorted(ranking[: self.entity_prefilter])]
        return Candidates(pursuit.showing.text(group.source), path_label(group.path), tuple(facts))

    async def _most_similar(self, case: _Case, pursuit: _Pursuit, groups: Sequence[Candidates]) -> list[Instance]:
        """The `width` candidates that the encoder finds most like the sub-goal, whatever their group."""
        facts = [pair for group in groups for pair in group.facts]
        ranking = await case.tools.retrieval.rank(pursuit.subgoal.goal, [text for text, _ in facts])
        return [facts[place][1] for place in (ranking[: self.width] if self.width else ranking)]

    # Refinement

    async def _refine(self, case: _Case, pursuit: _Pursuit, number: int) -> bool:
        """Correct the tentative answer by the facts, and say whether the sub-goal has ended.

        Trust is asymmetric: facts that are beside the point leave the tentative answer as it was.
        """
        verdict = await self._judge(case, pursuit)
        pursuit.is_grounded = verdict.aligned or not self.fallback_to_tentative
        if pursuit.is_grounded:
            pursuit.answers = tuple(map(pursuit.showing.found, verdict.answers))
        else:
            pursuit.answers = tuple(map(Found, pursuit.tentative))
        pursuit.final, pursuit.raw = tuple(map(pursuit.showing.found, verdict.final)), verdict.raw
        case.tools.record(
            "refined",
            subgoal=pursuit.subgoal.id,
            round=number,
            aligned=verdict.aligned,
            done=verdict.done,
            answers=_texts(pursuit.answers),
            final=verdict.final,
        )
        return verdict.done or (bool(verdict.final) and self.stop_on_question_answered)

    async def _judge(self, case: _Case, pursuit: _Pursuit) -> Verdict:
        """The three questions after a round: in one call, or one by one."""
        subgoal, facts = pursuit.subgoal, self._shown(case, pursuit.facts)
        about = (case.question, subgoal, facts, pursuit.showing, pursuit.used, pursuit.tentative)
        if not self.split_refine:
            return await self._ask(case, Refine(*about))
        aligned = (await self._ask(case, Align(*about))).aligned
        answers = (await self._ask(case, Correct(*about))).answers
        return replace(await self._ask(case, Suffice(*about)), aligned=aligned, answers=answers)

    async def _read(self, case: _Case, pursuit: _Pursuit) -> None:
        """Without self-refinement: answer from the facts alone (§5.8)."""
        facts = self._shown(case, pursuit.facts)
        texts = await self._ask(case, Read(case.question, pursuit.subgoal, facts, pursuit.showing, pursuit.used))
        pursuit.answers = tuple(map(pursuit.showing.found, texts))
        case.tools.record("step", subgoal=pursuit.subgoal.id, op="read", answers=texts)

    def _shown(self, case: _Case, facts: Mapping[Instance, None] | Sequence[Instance]) -> tuple[Instance, ...]:
        """As many facts as a prompt may show (§2.5)."""
        shown = within(facts, case.tools.caps.max_evidence_triples)
        if len(shown) < len(facts):
            case.tools.record("cap_hit", cap="max_evidence_triples")
        return shown

    # Answering

    def _stop(self, case: _Case, outcome: Outcome) -> Answer:
        """A refinement has found the question answered: its answers are final."""
        facts = self._shown(case, outcome.facts)
        return self._answer(case, outcome.final, facts, outcome.names, raw=outcome.raw, status="ok")

    async def _aggregate(self, case: _Case, *, exhausted: bool = False) -> Answer:
        """Answer from what the sub-goals have come to: the one call that is made after a cap was hit, too."""
        prompt = self._aggregation(case)
        reply = await self._ask(case, prompt, last=True)
        found = tuple(map(prompt.showing.found, reply.texts)) or last_answers(prompt.outcomes)
        status: Status = "ok" if prompt.facts else "no_evidence"
        if exhausted:
            status = "budget_exhausted"
        elif not case.question.topic_entities:
            status = "no_topic_entity"
        return self._answer(case, found, prompt.facts, prompt.showing.names, raw=reply.raw, status=status)

    def _aggregation(self, case: _Case, target: SubGoal | None = None) -> Aggregate:
        """The prompt for the question, or for a sub-goal in the middle of the plan."""
        ordered = tuple(case.outcomes.get(subgoal.id, Outcome(subgoal)) for subgoal in case.plan)
        showing = case.showing(ordered)
        facts = dict.fromkeys(fact for outcome in ordered if outcome.is_grounded for fact in _key_facts(outcome))
        return Aggregate(case.question, ordered, self._shown(case, facts), showing, target.id if target else None)

    def _answer(
        self, case: _Case, found: Sequence[Found], facts: Sequence[Instance], names: Names, *, raw: str, status: Status
    ) -> Answer:
        case.tools.record("answered", answers=_texts(found), evidence=len(facts), status=status)
        evidence = tuple(fact.triples for fact in facts)
        return Answer(
            predictions=_predictions(found),
            raw=raw,
            evidence=evidence,
            names=entity_names(evidence, names),
            status=status,
            initial=self._initial(case, found),
        )

    def _initial(self, case: _Case, final: Sequence[Found]) -> tuple[Prediction, ...] | None:
        """The answers without refinement (§9.5); None where there is none.

        One that reads like a final answer is that one: what has not changed must not be judged as if it had.
        """
        if not (self.refine and self.max_rounds and self.max_refines):
            return None
        tentative = aggregate_tentatively(case.plan, case.outcomes)
        return _predictions([next(filter(found.is_same, final), found) for found in tentative])

    async def _ask(self, case: _Case, prompt: Prompt[T], *, last: bool = False) -> T:
        sampling = Sampling(temperature=self.temperature, max_tokens=self.max_tokens)
        return await case.tools.llm.ask(prompt, sampling, retries=self.parse_retries, last=last)


@plain_dataclass
class _Case:
    """A question, and all there is to work on it with."""

    question: Question
    tools: Tools
    plan: Plan
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    """What has become of the sub-goals so far, by their ids."""

    def showing(self, outcomes: Sequence[Outcome]) -> Showing:
        """A fresh place to print nodes in, which knows the topic entities and what outcomes have met."""
        showing = Showing({entity.id: entity.name for entity in self.question.topic_entities})
        for outcome in outcomes:
            showing.learn(outcome.names)
        return showing


@plain_dataclass
class _Pursuit:
    """The state of one sub-goal that is being explored."""

    subgoal: SubGoal
    used: tuple[Outcome, ...]
    showing: Showing
    tentative: tuple[str, ...] = ()
    answers: tuple[Found, ...] = ()
    facts: dict[Instance, None] = field(default_factory=dict)
    """In the order found."""
    visited: set[EntityId] = field(default_factory=set)
    is_grounded: bool = True
    final: tuple[Found, ...] = ()
    raw: str = ""
    exhausted: bool = False

    def outcome(self) -> Outcome:
        return Outcome(
            subgoal=self.subgoal,
            answers=self.answers,
            facts=tuple(self.facts),
            names=dict(self.showing.names),
            is_grounded=self.is_grounded,
            final=self.final,
            raw=self.raw,
            tentative=self.tentative,
            exhausted=self.exhausted,
        )


def _key_facts(outcome: Outcome) -> Sequence[Instance]:
    """The facts that end in the answers of a sub-goal; all of them where none does."""
    answers = {found.node for found in outcome.answers}
    return [fact for fact in outcome.facts if fact.end in answers] or outcome.facts


def _leaves_no_choice(group: Group) -> bool:
    """Whether a selected relation leads to one node, or to numbers only (§5.6).

    What lies behind a mediator is chosen all the same: nobody has selected its second relation yet.
    """
    if len(group.path) > 1:
        return False
    return len(group.facts) == 1 or all(_is_number(fact.end) for fact in group.facts)


def _is_number(node: Node) -> bool:
    return isinstance(node, LiteralNode) and node.value.isascii() and node.value.isdigit()


def _predictions(answers: Iterable[Found]) -> tuple[Prediction, ...]:
    return tuple(Prediction(found.text, found.id) for found in answers)


def _texts(answers: Iterable[Found]) -> list[str]:
    return [found.text for found in answers]
