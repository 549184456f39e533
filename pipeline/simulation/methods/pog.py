"""Simulators of PoG's prompts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from random import Random

from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.node_labels import NodeLabels
from pipeline.methods.pog.answer import AnswerAlone, AnswerFromTriples
from pipeline.methods.pog.entities import SelectEntities
from pipeline.methods.pog.evaluate import Evaluate
from pipeline.methods.pog.facts import ShownFacts
from pipeline.methods.pog.memory import NOTHING, UpdateStatus
from pipeline.methods.pog.plan import MakePlan
from pipeline.methods.pog.reflect import ChooseBack, Reflect
from pipeline.methods.pog.relations import RelationOffer, SelectRelations
from pipeline.methods.rendering import names_of
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.gold_paths import next_gold_relations, sample_one, sufficient_answers
from pipeline.simulation.methods.answering import UNKNOWN, right_or_wrong
from pipeline.simulation.parog_plan import perfect_plan
from pipeline.simulation.registry import Simulator, simulates
from pipeline.simulation.similarity import ends_of_most_similar_path, rank_names, rank_relations
from pipeline.types import Node, Question

_MAX_PICKED = 5
"""The largest number of names that the similarity policy picks from a list, and that a note names."""


@simulates(MakePlan)
class MakePlanSimulator(Simulator[MakePlan]):
    """Divides the question along its gold paths."""

    def write_as_oracle(self, prompt: MakePlan, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Write one sub-objective per part of the gold paths; on error, only the last one."""
        objectives = [step.subgoal.goal for step in perfect_plan(gold_context)] or [prompt.question.text]
        return _write(objectives[-1:] if error_rng else objectives)

    def write_by_similarity(self, prompt: MakePlan, encoder: LexicalEncoder) -> str:
        """Write the question as its only sub-objective."""
        return _write([prompt.question.text])


@simulates(SelectRelations)
class SelectRelationsSimulator(Simulator[SelectRelations]):
    """Follows gold paths."""

    def write_as_oracle(self, prompt: SelectRelations, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Pick the next relations of the gold paths that begin with a walk to the entity; on error, another one."""
        right = [_next_relations(offer, gold_context) for offer in prompt.offers]
        if error_rng is None:
            return _write_lists(right, batched=prompt.batched)
        others = [
            [name for name in offer.names if name not in names]
            for offer, names in zip(prompt.offers, right, strict=True)
        ]
        return _write_lists([sample_one(names, error_rng) for names in others], batched=prompt.batched)

    def write_by_similarity(self, prompt: SelectRelations, encoder: LexicalEncoder) -> str:
        """Pick the relations most similar to the question."""
        best = [rank_relations(offer.names, prompt.question.text, encoder)[:_MAX_PICKED] for offer in prompt.offers]
        return _write_lists(best, batched=prompt.batched)


@simulates(SelectEntities)
class SelectEntitiesSimulator(Simulator[SelectEntities]):
    """Recognises gold answers and the nodes on the way to them."""

    def write_as_oracle(self, prompt: SelectEntities, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Pick the gold answers of each group, else the nodes on the way to them; on error, another node."""
        right = [_good_ends(facts, prompt.labels, gold_context) for facts in prompt.groups]
        nodes = [[fact.end for fact in facts] for facts in prompt.groups]
        if error_rng:
            others = [
                [node for node in of_group if node not in good] for of_group, good in zip(nodes, right, strict=True)
            ]
            right = [sample_one(of_group, error_rng) for of_group in others]
        picked = [list(map(prompt.labels.label, of_group)) for of_group in right]
        return _write_lists(picked, batched=prompt.batched)

    def write_by_similarity(self, prompt: SelectEntities, encoder: LexicalEncoder) -> str:
        """Pick the names most similar to the question."""
        best = [rank_names(names, prompt.question.text, encoder)[:_MAX_PICKED] for _, names in prompt.lists]
        return _write_lists(best, batched=prompt.batched)


@simulates(UpdateStatus)
class UpdateStatusSimulator(Simulator[UpdateStatus]):
    """Notes names of the facts."""

    def write_as_oracle(self, prompt: UpdateStatus, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Note the nodes on the way to gold answers and the answers; on error, that nothing is known."""
        good = _good_ends(prompt.facts.facts, prompt.facts.labels, gold_context)
        return _write_notes(prompt, [] if error_rng else list(map(prompt.facts.labels.label, good)))

    def write_by_similarity(self, prompt: UpdateStatus, encoder: LexicalEncoder) -> str:
        """Note the first names of the facts."""
        return _write_notes(prompt, [prompt.facts.labels.label(fact.end) for fact in prompt.facts.facts])


@simulates(Evaluate)
class EvaluateSimulator(Simulator[Evaluate]):
    """Recognises gold answers in the facts."""

    def write_as_oracle(self, prompt: Evaluate, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Give the gold answers that the facts show, else say that they do not suffice. A count needs all its nodes.

        On error, say that they do not suffice, or give another node if they show no gold answer.
        """
        shown = _shown_names(prompt.facts, prompt.question)
        return _write_verdict(sufficient_answers(shown, gold_context, error_rng))

    def write_by_similarity(self, prompt: Evaluate, encoder: LexicalEncoder) -> str:
        """Give the ends of the facts whose relation is most similar to the question, if they have names."""
        return _write_verdict(_ends_of_best_relation(prompt.facts, prompt.question.text, encoder))


@simulates(Reflect)
class ReflectSimulator(Simulator[Reflect]):
    """Goes back if no entity of the frontier is on a gold path."""

    def write_as_oracle(self, prompt: Reflect, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Go back if no entity of the frontier is on the way to a gold answer; on error, the opposite."""
        is_lost = gold_context.waypoints.isdisjoint(prompt.frontier)
        return _write_reflection(is_lost is not bool(error_rng))

    def write_by_similarity(self, prompt: Reflect, encoder: LexicalEncoder) -> str:
        """Never go back."""
        return _write_reflection(False)


@simulates(ChooseBack)
class ChooseBackSimulator(Simulator[ChooseBack]):
    """Goes back to entities on gold paths."""

    def write_as_oracle(self, prompt: ChooseBack, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Pick nodes on the way to gold answers and topic entities with a gold path; on error, another entity."""
        right = [
            entity for entity in prompt.candidates if entity in gold_context.waypoints or gold_context.paths.get(entity)
        ]
        others = [entity for entity in prompt.candidates if entity not in right]
        return _write(list(map(prompt.labels.label, sample_one(others, error_rng) if error_rng else right)))

    def write_by_similarity(self, prompt: ChooseBack, encoder: LexicalEncoder) -> str:
        """Pick the names most similar to the question."""
        names = list(map(prompt.labels.label, prompt.candidates))
        return _write(rank_names(names, prompt.question.text, encoder)[:_MAX_PICKED])


@simulates(AnswerFromTriples)
class AnswerFromTriplesSimulator(Simulator[AnswerFromTriples]):
    """Answers with nodes of the facts."""

    def write_as_oracle(self, prompt: AnswerFromTriples, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Give the gold answers among the facts. If there are none, or as an error, give another node."""
        shown = _shown_names(prompt.facts, prompt.question)
        return _write_verdict(right_or_wrong(shown, gold_context, error_rng))

    def write_by_similarity(self, prompt: AnswerFromTriples, encoder: LexicalEncoder) -> str:
        """Give the ends of the facts whose relation is most similar to the question."""
        return _write_verdict(_ends_of_best_relation(prompt.facts, prompt.question.text, encoder) or [UNKNOWN])


@simulates(AnswerAlone)
class AnswerAloneSimulator(Simulator[AnswerAlone]):
    """Does not know the answer, so that a search that found nothing never counts as a success."""

    def write_as_oracle(self, prompt: AnswerAlone, gold_context: GoldContext, error_rng: Random | None) -> str:
        return _write_verdict([UNKNOWN])

    def write_by_similarity(self, prompt: AnswerAlone, encoder: LexicalEncoder) -> str:
        return _write_verdict([UNKNOWN])


def _next_relations(offer: RelationOffer, gold_context: GoldContext) -> list[str]:
    """Return the names of the offered relations that go on along a gold path."""
    good = dict.fromkeys(relation for path in offer.paths for relation in next_gold_relations(path, gold_context))
    return list(dict.fromkeys(relation.name for relation in good if relation in offer.relations))


def _good_ends(facts: Sequence[GroundedPath], labels: NodeLabels, gold_context: GoldContext) -> list[Node]:
    """Return the ends of facts that are sought, else those on the way to sought nodes."""
    ends = list(dict.fromkeys(fact.end for fact in facts))
    sought = [node for node in ends if gold_context.is_sought(node, labels.name(node))]
    return sought or [node for node in ends if node in gold_context.waypoints]


def _shown_names(facts: ShownFacts, question: Question) -> dict[Node, str]:
    """Return the names of the nodes that the search has reached. A topic entity is one only if a fact leads to it."""
    topics = {topic.id for topic in question.topic_entities}
    nodes = (node for fact in facts.facts for node in (fact.end, *({fact.start} - topics)))
    return names_of(nodes, facts.labels.names)


def _ends_of_best_relation(facts: ShownFacts, question: str, encoder: LexicalEncoder) -> list[str]:
    return ends_of_most_similar_path(facts.facts, facts.labels.names, question, encoder)


def _write(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _write_lists(lists: Iterable[Sequence[str]], *, batched: bool) -> str:
    """Write a list for each number, or the only list."""
    by_number: Mapping[str, Sequence[str]] = {str(number): names for number, names in enumerate(lists, start=1)}
    return _write(by_number if batched else by_number["1"])


def _write_notes(prompt: UpdateStatus, names: Sequence[str]) -> str:
    note = f"found so far: {', '.join(names[:_MAX_PICKED])}" if names else NOTHING
    return _write({str(number): note for number in range(1, len(prompt.status) + 1)})


def _write_verdict(answers: Sequence[str]) -> str:
    reason = "These are shown." if answers else "What is asked for is not shown."
    return _write({"sufficient": bool(answers), "answers": list(answers), "reason": reason})


def _write_reflection(add: bool) -> str:
    return _write({"add": add, "reason": "No entity leads on." if add else "The entities lead on."})
