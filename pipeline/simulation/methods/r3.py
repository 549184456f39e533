"""Simulators of R3's prompts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import ClassVar

from pipeline.methods.parsing import truncate
from pipeline.methods.r3.domains import describe
from pipeline.methods.r3.environment import print_relation
from pipeline.methods.r3.fallback_answer import FallbackAnswer
from pipeline.methods.r3.memory import listings
from pipeline.methods.r3.reflect import MAX_TEXT, Guidance, Reflect
from pipeline.methods.r3.step_prompts import NextAction, Thought, ThoughtAndAction, Turn
from pipeline.methods.r3.verify import Verify
from pipeline.normalisation import normalise
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.methods.answering import UNKNOWN, write_answers
from pipeline.simulation.r3_policy import (
    gold_relations,
    neighbour_types,
    plan,
    plan_by_similarity,
    plan_wrongly,
    sought_names,
    write_finish,
)
from pipeline.simulation.registry import P, Simulator, simulates


class AgentSimulator(Simulator[P]):
    """The base of the simulators of the agent's prompts. They ignore the memory that an ablation shows, and limits."""

    seed_excluded_inputs: ClassVar[frozenset[str]] = frozenset({"memory", "turns"})


@simulates(Thought)
class ThoughtSimulator(AgentSimulator[Thought]):
    """Writes a fixed thought."""

    def write_as_oracle(self, prompt: Thought, gold_context: GoldContext, error_rng: Random | None) -> str:
        return "I am not sure where to look." if error_rng else "I follow the way to what is asked for."

    def write_by_similarity(self, prompt: Thought, encoder: LexicalEncoder) -> str:
        return "I follow what is most like the question."


@simulates(NextAction)
class NextActionSimulator(AgentSimulator[NextAction]):
    """Acts by `r3_policy`."""

    def write_as_oracle(self, prompt: NextAction, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Write the next actions along the gold paths, or finish; as an error, write a wrong action."""
        return _oracle_actions(prompt.turn, gold_context, error_rng)

    def write_by_similarity(self, prompt: NextAction, encoder: LexicalEncoder) -> str:
        """Follow the relation most similar to the question, and finish."""
        return _similarity_actions(prompt.turn, encoder)


@simulates(ThoughtAndAction)
class ThoughtAndActionSimulator(AgentSimulator[ThoughtAndAction]):
    """Acts as `NextActionSimulator` does, after a fixed thought."""

    def write_as_oracle(self, prompt: ThoughtAndAction, gold_context: GoldContext, error_rng: Random | None) -> str:
        return _after_a_thought(prompt.turn, _oracle_actions(prompt.turn, gold_context, error_rng))

    def write_by_similarity(self, prompt: ThoughtAndAction, encoder: LexicalEncoder) -> str:
        return _after_a_thought(prompt.turn, _similarity_actions(prompt.turn, encoder))


def _oracle_actions(turn: Turn, gold_context: GoldContext, error_rng: Random | None) -> str:
    if error_rng:
        avoided = turn.guidance.avoid if turn.guidance else ()
        return plan_wrongly(turn.question, turn.steps, gold_context, error_rng, avoided=avoided)
    return plan(turn.question, turn.steps, gold_context)


def _similarity_actions(turn: Turn, encoder: LexicalEncoder) -> str:
    types = None if turn.domain == "triples" else neighbour_types(describe(turn.domain).schema)
    return plan_by_similarity(turn.question, turn.steps, encoder, types)


def _after_a_thought(turn: Turn, actions: str) -> str:
    return f"I go on.\nAction {turn.number}: {actions}"


@simulates(Verify)
class VerifySimulator(Simulator[Verify]):
    """Compares the answers with the gold answers."""

    def write_as_oracle(self, prompt: Verify, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Accept correct answers only; as an error, write the opposite verdict."""
        return _write_verdict(accept=_are_gold(prompt.answers, gold_context) != bool(error_rng))

    def write_by_similarity(self, prompt: Verify, encoder: LexicalEncoder) -> str:
        """Accept everything."""
        return _write_verdict(accept=True)


def _are_gold(answers: Sequence[str], gold_context: GoldContext) -> bool:
    """Return whether every answer is gold, or whether the answers joined to one text equal the gold list."""
    if not answers:
        return False
    gold_list = ", ".join(answer.name for answer in gold_context.gold.answers)
    return all(map(gold_context.is_answer, answers)) or normalise(", ".join(answers)) == normalise(gold_list)


def _write_verdict(*, accept: bool) -> str:
    why = "It follows from what was learnt." if accept else "It does not follow from what was learnt."
    return json.dumps({"verdict": "accept" if accept else "reject", "why": why})


@simulates(Reflect)
class ReflectSimulator(Simulator[Reflect]):
    """Advises to follow the gold paths."""

    seed_excluded_inputs: ClassVar[frozenset[str]] = frozenset({"memory"})

    def write_as_oracle(self, prompt: Reflect, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Advise the best gold paths, and to avoid all actions off the gold paths; as an error, give up."""
        if error_rng:
            return _write_guidance(Guidance("The graph does not hold the answer.", "other", retry=False))
        topics = gold_context.topics or prompt.question.topic_entities
        advice = [
            f"From {topic.name} follow {', then '.join(relation.name for relation in paths[0])}."
            for topic in topics
            if (paths := gold_context.paths.get(topic.id))
        ]
        gold = gold_relations(gold_context)
        actions = [observation.action for step in prompt.steps for observation in step.observations]
        avoid = [
            f"{action.tool}[{action.content}]"
            for action in actions
            if action.tool != "RetrieveNode" and not any(action.content.endswith(print_relation(name)) for name in gold)
        ]
        cause, category = "The way to the answer was left.", "budget"
        if prompt.failure == "incorrect" and prompt.answers:
            cause, category = "The answer is not what was asked for.", "misread_question"
            avoid.append(write_finish(prompt.answers))
        return _write_guidance(Guidance(cause, category, tuple(advice), tuple(dict.fromkeys(avoid))))

    def write_by_similarity(self, prompt: Reflect, encoder: LexicalEncoder) -> str:
        """Write no specific advice."""
        return _write_guidance(Guidance("The attempt failed.", advice=("Try another way.",)))


def _write_guidance(guidance: Guidance) -> str:
    fields = {
        "root_cause": truncate(guidance.root_cause, MAX_TEXT),
        "category": guidance.category,
        "advice": guidance.advice,
        "avoid": guidance.avoid,
        "retry": guidance.retry,
    }
    return json.dumps(fields, ensure_ascii=False)


@simulates(FallbackAnswer)
class FallbackAnswerSimulator(Simulator[FallbackAnswer]):
    """Answers with observed nodes."""

    def write_as_oracle(self, prompt: FallbackAnswer, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Answer with the observed nodes that the question asks for; without any, or as an error, with nothing."""
        found = sought_names(prompt.steps, gold_context)
        if gold_context.counted and found:
            found = [str(len(found))]
        return write_answers([UNKNOWN] if error_rng else found or [UNKNOWN])

    def write_by_similarity(self, prompt: FallbackAnswer, encoder: LexicalEncoder) -> str:
        """Answer with the nodes of the last lookup."""
        lookups = [listing for listing in listings(prompt.steps) if listing.via not in {"search", "relations"}]
        return write_answers([item.name or item.text for one in lookups[-1:] for item in one.items] or [UNKNOWN])
