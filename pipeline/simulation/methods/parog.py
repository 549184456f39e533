"""Simulators of PARoG's prompts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

from pipeline.methods.node_labels import relation_label
from pipeline.methods.parog.aggregate import Aggregate
from pipeline.methods.parog.entities import SelectEntities
from pipeline.methods.parog.plan import SubGoal, whole_question, write_plan
from pipeline.methods.parog.planning import MakePlan
from pipeline.methods.parog.refine import Align, Correct, FactsPrompt, Read, Refine, Refinement, Suffice
from pipeline.methods.parog.relations import Offer, SelectRelations
from pipeline.methods.parog.subgoal_result import SubgoalAnswer, last_answers
from pipeline.methods.parog.tentative import AnswerTentatively
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.retrieval.relations import as_text
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.gold_paths import sample_one
from pipeline.simulation.methods.answering import UNKNOWN
from pipeline.simulation.parog_plan import (
    GoldStep,
    answers_of_steps,
    answers_question,
    gold_among,
    is_computed,
    perfect_plan,
    steps_for,
)
from pipeline.simulation.registry import Simulator, simulates
from pipeline.simulation.similarity import most_similar_path, rank_relations
from pipeline.types import Relation

F = TypeVar("F", bound=FactsPrompt[Any])


@simulates(MakePlan)
class MakePlanSimulator(Simulator[MakePlan]):
    """Plans along the gold paths. The trained planner and the prompted one err on the same questions."""

    seed_excluded_inputs = frozenset({"max_subgoals"})

    def write_as_oracle(self, prompt: MakePlan, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Plan one sub-goal per leg of each gold path, then the operation of the gold SPARQL on their ends.

        On error, leave out the last sub-goal, or replace the only one.
        """
        plan = [step.subgoal for step in perfect_plan(gold_context)] or list(whole_question(prompt.question))
        if error_rng and len(plan) == 1:
            topic = error_rng.choice(["a namesake", "the origin", "an example"])
            plan = [SubGoal(1, f"Find {topic} of what is asked about")]
        elif error_rng:
            plan.pop()
        return write_plan(plan)

    def write_by_similarity(self, prompt: MakePlan, encoder: LexicalEncoder) -> str:
        """Plan the question as its only sub-goal."""
        return write_plan(whole_question(prompt.question))


@simulates(AnswerTentatively)
class AnswerTentativelySimulator(Simulator[AnswerTentatively]):
    """Gives no answer: simulated models know only the facts in a prompt, and this prompt has none."""

    def write_as_oracle(self, prompt: AnswerTentatively, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Answer nothing; on error, a topic entity or something else that is wrong."""
        if error_rng:
            topics = [entity.name for entity in prompt.question.topic_entities]
            wrong = [name for name in topics if not gold_context.is_answer(name)]
            return write_object(answers=[error_rng.choice([*wrong, "something else"])], confidence="high")
        return write_object(answers=[], confidence="low")

    def write_by_similarity(self, prompt: AnswerTentatively, encoder: LexicalEncoder) -> str:
        """Answer nothing."""
        return write_object(answers=[], confidence="low")


@simulates(SelectRelations)
class SelectRelationsSimulator(Simulator[SelectRelations]):
    """Selects the relations of the gold paths."""

    def write_as_oracle(self, prompt: SelectRelations, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Select the relations that the sub-goal's step follows; on error, one other relation per offer.

        For a sub-goal that is not in the oracle's plan, select the relations that its sentence names, else the first.
        """
        steps = _steps_from_frontier(prompt, gold_context)
        right = {offer.text: _right_relations(prompt, offer, steps) for offer in prompt.offers}
        if error_rng is None:
            return _write_relations(right)
        wrong = {
            offer.text: [relation for relation in offer.relations if relation not in right[offer.text]]
            for offer in prompt.offers
        }
        return _write_relations({text: sample_one(others, error_rng) for text, others in wrong.items()})

    def write_by_similarity(self, prompt: SelectRelations, encoder: LexicalEncoder) -> str:
        """Select the relation of each offer that is most like the sub-goal."""
        best = {}
        for offer in prompt.offers:
            ranked = rank_relations([relation.name for relation in offer.relations], prompt.subgoal.goal, encoder)[:1]
            best[offer.text] = [relation for relation in offer.relations if relation.name in ranked]
        return _write_relations(best)


@simulates(SelectEntities)
class SelectEntitiesSimulator(Simulator[SelectEntities]):
    """Selects the nodes on the gold paths."""

    def write_as_oracle(self, prompt: SelectEntities, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Select the ends of the sub-goal's step; on error, one candidate per group that is right in none.

        For a sub-goal that is not in the oracle's plan, select everything.
        """
        steps = steps_for(gold_context, prompt.subgoal)
        right = [
            [(text, fact.end) for text, fact in group.facts if not steps or any(step.is_answer(fact) for step in steps)]
            for group in prompt.groups
        ]
        if error_rng is None:
            return _write_groups([[text for text, _ in kept] for kept in right])
        ends = {end for kept in right for _, end in kept} if steps else set()
        wrong = [[text for text, fact in group.facts if fact.end not in ends] for group in prompt.groups]
        return _write_groups([sample_one(others, error_rng) for others in wrong])

    def write_by_similarity(self, prompt: SelectEntities, encoder: LexicalEncoder) -> str:
        """Select all candidates of the groups whose relations are most like the sub-goal."""
        scores = encoder.similarities(prompt.subgoal.goal, [as_text(group.relations) for group in prompt.groups])
        best = max(scores, default=0.0)
        return _write_groups(
            [
                [text for text, _ in group.facts] if score == best else []
                for group, score in zip(prompt.groups, scores, strict=True)
            ]
        )


class RefinementSimulator(Simulator[F]):
    """Base of the simulators of a refinement, which decide alike and write what their prompt asks for."""

    def write(self, refinement: Refinement) -> str:
        """Write the part of a decision that the prompt asks for."""
        raise NotImplementedError

    def write_as_oracle(self, prompt: F, gold_context: GoldContext, error_rng: Random | None) -> str:
        return self.write(_refine_as_oracle(prompt, gold_context, error_rng))

    def write_by_similarity(self, prompt: F, encoder: LexicalEncoder) -> str:
        return self.write(_refine_by_similarity(prompt, encoder))


@simulates(Align)
class AlignSimulator(RefinementSimulator[Align]):
    """Answers the first question of a refinement: whether the facts are about the sub-goal."""

    def write(self, refinement: Refinement) -> str:
        return write_object(aligned=refinement.aligned)


@simulates(Correct)
class CorrectSimulator(RefinementSimulator[Correct]):
    """Answers the second question: the answers by the facts."""

    def write(self, refinement: Refinement) -> str:
        return write_object(answers=refinement.answers)


@simulates(Suffice)
class SufficeSimulator(RefinementSimulator[Suffice]):
    """Answers the third question: whether the sub-goal is done, and the question answered."""

    def write(self, refinement: Refinement) -> str:
        final = refinement.final
        return write_object(done=refinement.done, question_answered=bool(final), final=final)


@simulates(Refine)
class RefineSimulator(RefinementSimulator[Refine]):
    """Answers all three questions."""

    def write(self, refinement: Refinement) -> str:
        return write_object(
            aligned=refinement.aligned,
            answers=refinement.answers,
            done=refinement.done,
            question_answered=bool(refinement.final),
            final=refinement.final,
        )


@simulates(Read)
class ReadSimulator(Simulator[Read]):
    """Reads the answers of a sub-goal off its facts."""

    def write_as_oracle(self, prompt: Read, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Answer as in a refinement; on error, or if the facts show no answer, another end of the facts."""
        right = _refine_as_oracle(prompt, gold_context, None).answers
        ends = dict.fromkeys(prompt.labels.label(fact.end) for fact in prompt.facts)
        wrong = [text for text in ends if text not in right] or [prompt.labels.label(prompt.facts[0].start)]
        return write_object(answers=[error_rng.choice(wrong)] if error_rng else right or wrong[:1])

    def write_by_similarity(self, prompt: Read, encoder: LexicalEncoder) -> str:
        """Answer with the ends of the most similar path."""
        return write_object(answers=_refine_by_similarity(prompt, encoder).answers)


@simulates(Aggregate)
class AggregateSimulator(Simulator[Aggregate]):
    """Combines the results of the sub-goals."""

    def write_as_oracle(self, prompt: Aggregate, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Answer with what the oracle's plan gives for the answers and facts shown; on error, another node shown."""
        right = _aggregate_as_oracle(prompt, gold_context)
        if error_rng:
            shown = set(_texts(prompt, (answer for result in prompt.results for answer in result.answers)))
            shown.update(prompt.labels.label(fact.end) for fact in prompt.facts)
            return write_object(answers=[error_rng.choice(sorted(shown.difference(right)) or [UNKNOWN])])
        return write_object(answers=right)

    def write_by_similarity(self, prompt: Aggregate, encoder: LexicalEncoder) -> str:
        """Answer with the answers of the last sub-goal that has any."""
        return write_object(answers=_texts(prompt, last_answers(prompt.results)))


def write_object(**fields: object) -> str:
    """Return a reply that is a JSON object."""
    return json.dumps(fields, ensure_ascii=False)


def _steps_from_frontier(prompt: SelectRelations, gold_context: GoldContext) -> tuple[GoldStep, ...]:
    """Return the step of the sub-goal alone if it can start in the frontier; else also the steps that lead there."""
    steps = steps_for(gold_context, prompt.subgoal)
    can_start = any(_relations_of_step(prompt, offer, step) for step in steps[-1:] for offer in prompt.offers)
    is_whole_question = prompt.subgoal.goal == gold_context.question.text
    return steps[-1:] if can_start and not is_whole_question else steps


def _right_relations(prompt: SelectRelations, offer: Offer, steps: Sequence[GoldStep]) -> list[Relation]:
    if steps:
        followed = {relation for step in steps for relation in _relations_of_step(prompt, offer, step)}
        return [relation for relation in offer.relations if relation in followed]
    named = [relation for relation in offer.relations if as_text(relation.name) in prompt.subgoal.goal]
    return named or list(offer.relations[:1])


def _relations_of_step(prompt: SelectRelations, offer: Offer, step: GoldStep) -> set[Relation]:
    return {relation for id in offer.entities for relation in step.relations_from(id, prompt.labels.names.get(id))}


def _refine_as_oracle(prompt: FactsPrompt[Any], gold_context: GoldContext, error_rng: Random | None) -> Refinement:
    """Answer with the ends of the sub-goal's step that the facts show; on error, claim the opposite."""
    steps = steps_for(gold_context, prompt.subgoal)
    is_last = answers_question(gold_context, prompt.subgoal)
    answers = answers_of_steps(steps, prompt.facts, prompt.labels.names)
    if is_last and not is_computed(gold_context):
        answers = gold_among(answers, gold_context) or answers
    ends = list(dict.fromkeys(prompt.labels.label(fact.end) for fact in prompt.facts))
    texts = list(map(prompt.labels.answer, answers)) if steps else ends
    if error_rng:
        texts = [] if texts else error_rng.sample(ends, 1)
    aligned = bool(texts) or (not error_rng and any(step.is_on_path(fact) for step in steps for fact in prompt.facts))
    is_final = bool(texts) and (is_last or bool(error_rng))
    return Refinement(aligned, tuple(texts), bool(texts), tuple(texts) if is_final else ())


def _refine_by_similarity(prompt: FactsPrompt[Any], encoder: LexicalEncoder) -> Refinement:
    """Answer with the ends of the paths whose relations are most like the question, and finish."""
    best = most_similar_path([fact.path for fact in prompt.facts], prompt.question.text, encoder)
    ends = tuple(dict.fromkeys(prompt.labels.label(fact.end) for fact in prompt.facts if fact.path == best))
    return Refinement(True, ends, True, ends)


def _aggregate_as_oracle(prompt: Aggregate, gold_context: GoldContext) -> list[str]:
    """Return what the plan gives for the answers and facts shown.

    If the plan computes no set operation on them, the gold answers among all answers shown come first.
    """
    target = next((result for result in prompt.results if result.subgoal.id == prompt.target), prompt.results[-1])
    plan = perfect_plan(gold_context)
    if prompt.target is not None:
        goals = [step.subgoal.goal for step in plan]
        plan = plan[: goals.index(target.subgoal.goal) + 1] if target.subgoal.goal in goals else ()
    shown = target.answers if answers_question(gold_context, target.subgoal) else ()
    planned = shown or answers_of_steps(plan, prompt.facts, prompt.labels.names)
    if planned and is_computed(gold_context):
        return _texts(prompt, planned)
    candidates = (planned, *(result.answers for result in reversed(prompt.results)))
    gold = next(filter(None, (gold_among(answers, gold_context) for answers in candidates)), ())
    return _texts(prompt, gold or planned or last_answers(prompt.results))


def _texts(prompt: Aggregate, answers: Iterable[SubgoalAnswer]) -> list[str]:
    return list(dict.fromkeys(map(prompt.labels.answer, answers)))


def _write_relations(selected: Mapping[str, Iterable[Relation]]) -> str:
    return json.dumps(
        {text: list(map(relation_label, chosen)) for text, chosen in selected.items()}, ensure_ascii=False
    )


def _write_groups(selected: Iterable[Iterable[str]]) -> str:
    return json.dumps({str(id): list(texts) for id, texts in enumerate(selected, start=1)}, ensure_ascii=False)
