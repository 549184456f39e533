"""Simulators of ArG's prompts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from random import Random
from typing import ClassVar

from pipeline.methods.arg.answers import AnswerSegment, write_answers
from pipeline.methods.arg.entities import EntitySegment
from pipeline.methods.arg.relations import HypotheticalRelations, RelationSegment, write_relations
from pipeline.methods.arg.retrieval import RetrievalToken
from pipeline.methods.arg.tokens import (
    CLASSES,
    FULLY_REASONABLE,
    FULLY_RELEVANT,
    FULLY_USEFUL,
    NOT_USEFUL,
    PARTIALLY_REASONABLE,
    PARTIALLY_RELEVANT,
    RETRIEVE_RELATION,
    UNREASONABLE,
    UNRELEVANT,
    find_tokens,
)
from pipeline.methods.arg.transcript import UNKNOWN_ENTITY, TokenChoice
from pipeline.methods.rendering import names_of, one_line
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.simulation.arg_paths import all_next, best_next, has_arrived, sought_tails, tails_leading_on
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.gold_paths import answers_shown
from pipeline.simulation.methods.answering import UNKNOWN
from pipeline.simulation.registry import P, Simulator, simulates, write_as_oracle, write_by_similarity
from pipeline.simulation.similarity import rank_relations
from pipeline.types import Node

_WRONG_RELATION = "common.topic.image"
"""A hypothetical relation that leads to no answer."""


class SegmentSimulator(Simulator[P]):
    """The base of the simulators of all segments: the model decides among the tokens of a class."""

    alternatives: ClassVar[Sequence[Sequence[str]]] = tuple(CLASSES.values())


@simulates(RetrievalToken)
class RetrievalTokenSimulator(SegmentSimulator[RetrievalToken]):
    """Always retrieves. No published training text declines, so this is not among the oracle's errors."""

    def write_as_oracle(self, prompt: RetrievalToken, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Write `[Retrieve Relation]`."""
        return RETRIEVE_RELATION

    def write_by_similarity(self, prompt: RetrievalToken, encoder: LexicalEncoder) -> str:
        """Write `[Retrieve Relation]`."""
        return RETRIEVE_RELATION


@simulates(HypotheticalRelations)
class HypotheticalRelationsSimulator(SegmentSimulator[HypotheticalRelations]):
    """Writes the next relations of the gold paths."""

    def write_as_oracle(
        self, prompt: HypotheticalRelations, gold_context: GoldContext, error_rng: Random | None
    ) -> str:
        """Write the next relations of the best gold paths; as an error, another relation of the gold paths."""
        relations = best_next(prompt.walks, gold_context)
        if error_rng:
            known = {relation.name for paths in gold_context.paths.values() for path in paths for relation in path}
            relations = [error_rng.choice(sorted(known.difference(relations)) or [_WRONG_RELATION])]
        return write_relations((relation, FULLY_RELEVANT) for relation in relations or [_WRONG_RELATION])

    def write_by_similarity(self, prompt: HypotheticalRelations, encoder: LexicalEncoder) -> str:
        """Write the question itself as a relation."""
        return write_relations([(one_line(prompt.question.text), FULLY_RELEVANT)])


@simulates(RelationSegment)
class RelationSegmentSimulator(SegmentSimulator[RelationSegment]):
    """Labels the offered relations by the gold paths, or by similarity to the question."""

    def write_as_oracle(self, prompt: RelationSegment, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Write the labels of `relations_as_oracle`."""
        return prompt.render(relations_as_oracle(prompt, gold_context, error_rng))

    def write_by_similarity(self, prompt: RelationSegment, encoder: LexicalEncoder) -> str:
        """Write the labels of `relations_by_similarity`."""
        return prompt.render(relations_by_similarity(prompt, encoder))


def relations_as_oracle(
    offered: RelationSegment, gold_context: GoldContext, error_rng: Random | None
) -> dict[str, str]:
    """Label the best next relations fully relevant and other next ones partially; as an error, a wrong one."""
    following = all_next(offered.walks, gold_context)
    if error_rng:
        wrong = [relation for relation in offered.group if relation not in following]
        return label_relevance(offered.group, wrong and [error_rng.choice(wrong)])
    return label_relevance(offered.group, best_next(offered.walks, gold_context), following)


def relations_by_similarity(offered: RelationSegment, encoder: LexicalEncoder) -> dict[str, str]:
    """Label the relation most similar to the question fully relevant, and the second one partially."""
    ranking = rank_relations(offered.group, offered.question.text, encoder)
    return label_relevance(offered.group, ranking[:1], ranking[1:2])


def label_relevance(names: Iterable[str], fully: Collection[str], partially: Collection[str] = ()) -> dict[str, str]:
    """Label the names in `fully` fully relevant, those only in `partially` partially, and all others unrelevant."""
    return {
        name: FULLY_RELEVANT if name in fully else PARTIALLY_RELEVANT if name in partially else UNRELEVANT
        for name in names
    }


@simulates(EntitySegment)
class EntitySegmentSimulator(SegmentSimulator[EntitySegment]):
    """Labels the shown tails by the gold paths, and answers as soon as the walk has arrived."""

    def write_as_oracle(self, prompt: EntitySegment, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Label the tails from which gold paths go on; if there is none, label the sought tails and answer.

        With `error_rng`, label a wrong tail. If no shown tail is wrong, call the path unreasonable and end it.
        """
        leading_on = tails_leading_on(prompt, gold_context)
        relevant = leading_on or sought_tails(prompt, gold_context)
        if error_rng:
            return _write_wrong_tails(prompt, relevant, error_rng)
        if leading_on:
            return _write_tails(prompt, leading_on, FULLY_REASONABLE, None)
        if not relevant:
            return _write_tails(prompt, (), UNREASONABLE, _write_unknown())
        arrived = any(has_arrived(tail, gold_context) for name in relevant for tail in prompt.shown_tails[name])
        rationality = FULLY_REASONABLE if arrived else PARTIALLY_REASONABLE
        return _write_tails(
            prompt, relevant, rationality, _write_useful(answers_shown(_named_tails(prompt), gold_context))
        )

    def write_by_similarity(self, prompt: EntitySegment, encoder: LexicalEncoder) -> str:
        """Label all tails relevant, and answer with them as soon as one has a name."""
        names = [name for name in prompt.shown_tails if name != UNKNOWN_ENTITY]
        answers = _write_useful(names, utility=3) if names else None
        return _write_tails(prompt, prompt.shown_tails, FULLY_REASONABLE, answers)


def _named_tails(prompt: EntitySegment) -> dict[Node, str]:
    return {tail.end: name for name, tails in prompt.shown_tails.items() if name != UNKNOWN_ENTITY for tail in tails}


def _write_tails(prompt: EntitySegment, relevant: Collection[str], rationality: str, answers: str | None) -> str:
    return prompt.render(label_relevance(prompt.shown_tails, relevant), rationality, answers)


def _write_wrong_tails(prompt: EntitySegment, right: Collection[str], error_rng: Random) -> str:
    wrong = [name for name in prompt.shown_tails if name not in right]
    if not wrong:
        return _write_tails(prompt, (), UNREASONABLE, _write_unknown())
    chosen = error_rng.choice(wrong)
    ends = error_rng.random() < 0.5 and chosen != UNKNOWN_ENTITY
    return _write_tails(prompt, [chosen], FULLY_REASONABLE, _write_useful([chosen]) if ends else None)


@simulates(AnswerSegment)
class AnswerSegmentSimulator(SegmentSimulator[AnswerSegment]):
    """Answers with the ends of the walks."""

    def write_as_oracle(self, prompt: AnswerSegment, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Answer with the sought ends of the walks, or sought names before; as an error, answer with another end."""
        ends = _named_ends(prompt)
        right = answers_shown(ends, gold_context) or answers_shown(_named_nodes(prompt), gold_context)
        if error_rng:
            right = [error_rng.choice([name for name in ends.values() if name not in right] or [UNKNOWN])]
        return f" {_write_useful(right)}"

    def write_by_similarity(self, prompt: AnswerSegment, encoder: LexicalEncoder) -> str:
        """Answer with all ends of the walks."""
        return f" {_write_useful(_named_ends(prompt).values(), utility=3)}"


def _named_ends(prompt: AnswerSegment) -> dict[Node, str]:
    return names_of((walk.end for walk in prompt.walks if walk.length), prompt.names)


def _named_nodes(prompt: AnswerSegment) -> dict[Node, str]:
    return names_of((node for walk in prompt.walks if walk.length for node in walk.nodes), prompt.names)


@simulates(TokenChoice)
class TokenChoiceSimulator(Simulator[TokenChoice]):
    """Chooses the token at the same index of its class in what the simulated model writes for the segment."""

    def write_as_oracle(self, prompt: TokenChoice, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Choose the token that the oracle writes there, or the written one if it writes none."""
        return _same_token(prompt, write_as_oracle(prompt.segment, gold_context, error_rng))

    def write_by_similarity(self, prompt: TokenChoice, encoder: LexicalEncoder) -> str:
        """Choose the token that the similarity policy writes there, or the written one if it writes none."""
        return _same_token(prompt, write_by_similarity(prompt.segment, encoder))


def _same_token(prompt: TokenChoice, text: str) -> str:
    position = (prompt.token.kind, prompt.token.index)
    same = (token.text for token in find_tokens(text) if (token.kind, token.index) == position)
    return next(same, prompt.token.text)


def _write_useful(texts: Iterable[str], *, utility: int = 5) -> str:
    """Render answers as fully useful; without answers, render `unknown`."""
    usefulness = dict.fromkeys(texts, FULLY_USEFUL)
    return write_answers(usefulness, f"[Utility:{utility}]") if usefulness else _write_unknown()


def _write_unknown() -> str:
    return write_answers({UNKNOWN: NOT_USEFUL}, "[Utility:1]")
