"""Simulators of DoG's prompts."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from pipeline.methods.dog.debate import Criticise, DebatePrompt, Rewrite, Simplify
from pipeline.methods.dog.enough import Enough
from pipeline.methods.dog.relations import ChooseRelations
from pipeline.methods.rendering import names_of, one_line
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.gold_paths import next_gold_relations, sufficient_answers
from pipeline.simulation.methods.answering import write_yes
from pipeline.simulation.parog_plan import perfect_plan
from pipeline.simulation.registry import Simulator, simulates
from pipeline.simulation.similarity import ends_of_most_similar_path, rank_relations
from pipeline.types import Relation

_MAX_PICKED = 3
"""The largest number of relations that a simulated model picks without gold paths."""

_NO = "{No}"


@simulates(ChooseRelations)
class ChooseRelationsSimulator(Simulator[ChooseRelations]):
    """Follows gold paths."""

    def write_as_oracle(self, prompt: ChooseRelations, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Pick the next relations of gold paths, else the first ones. With `error_rng`: another relation."""
        good = {relation for walk in prompt.walks for relation in next_gold_relations(walk, gold_context)}
        right = [relation for relation in prompt.relations if relation in good]
        wrong = [relation for relation in prompt.relations if relation not in good]
        if error_rng and wrong:
            return _write_numbers(prompt, [error_rng.choice(wrong)])
        return _write_numbers(prompt, right or prompt.relations[:_MAX_PICKED])

    def write_by_similarity(self, prompt: ChooseRelations, encoder: LexicalEncoder) -> str:
        """Pick the relation that is most similar to the question of the turn."""
        ranking = rank_relations([relation.name for relation in prompt.relations], prompt.question.text, encoder)
        return _write_numbers(prompt, [relation for relation in prompt.relations if relation.name == ranking[0]])


@simulates(Enough)
class EnoughSimulator(Simulator[Enough]):
    """Recognises gold answers in the facts of a turn."""

    def write_as_oracle(self, prompt: Enough, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Write Yes with the gold answers that the facts show, else No. A count needs all nodes to be counted.

        With `error_rng`, write No, or Yes with another node if the facts show no gold answer.
        """
        topics = {topic.id for topic in prompt.question.topic_entities}
        ends = [node for chain in prompt.chains for node in reversed(chain.nodes[1:])]
        starts = [chain.start for chain in prompt.chains if chain.start not in topics]
        shown = names_of([*ends, *starts], prompt.names)
        answers = sufficient_answers(shown, gold_context, error_rng)
        return write_yes(answers) if answers else _NO

    def write_by_similarity(self, prompt: Enough, encoder: LexicalEncoder) -> str:
        """Write Yes with the ends of the most similar path."""
        ends = ends_of_most_similar_path(prompt.chains, prompt.names, prompt.question.text, encoder)
        return write_yes(ends)


@simulates(Simplify)
@simulates(Criticise)
@simulates(Rewrite)
class DebateSimulator(Simulator[DebatePrompt]):
    """Proposes the last step of the gold paths as the simpler question."""

    def write_as_oracle(self, prompt: DebatePrompt, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Announce what the last step finds. With `error_rng`, and if no path is known, announce the same question."""
        steps = perfect_plan(gold_context)
        return _announce(steps[-1].subgoal.goal if steps and not error_rng else prompt.question.text)

    def write_by_similarity(self, prompt: DebatePrompt, encoder: LexicalEncoder) -> str:
        """Announce the same question."""
        return _announce(prompt.question.text)


def _write_numbers(prompt: ChooseRelations, relations: Iterable[Relation]) -> str:
    return ", ".join(f"relation_{prompt.relations.index(relation) + 1}" for relation in relations)


def _announce(question: str) -> str:
    return f"The simplified question: {one_line(question)}"
