"""Checks whether answers are supported by the graph facts that a method retrieved (specification §9.5)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pipeline.evaluation.matching import AnswerCandidate, GoldGroups
from pipeline.normalisation import normalise
from pipeline.types import Answer, EntityId, LiteralNode, Node


@dataclass(frozen=True, slots=True)
class Evidence:
    """The entities and literals in an answer's evidence."""

    ids: Collection[EntityId]
    names: Collection[str]
    """The names, normalised by `normalise`. An unnamed entity is represented by its id, a literal by its text."""

    def contains(self, candidate: AnswerCandidate) -> bool:
        """Return whether a predicted answer is in the evidence, by id or by name."""
        return candidate.name in self.names or any(id in self.ids for id in candidate.ids)

    def contains_gold(self, gold: GoldGroups) -> bool:
        """Return whether any gold answer is in the evidence ("searching success")."""
        return any(id in self.ids for id in gold.by_id) or any(name in self.names for name in gold.by_name)

    def faithfulness(self, candidates: Sequence[AnswerCandidate]) -> float | None:
        """Return the share of predicted answers in the evidence, correct or not; None without predictions."""
        return sum(map(self.contains, candidates)) / len(candidates) if candidates else None


def collect_evidence(answer: Answer, *, strip_accents: bool = True) -> Evidence:
    """Collect the head and tail nodes of every fact in an answer's evidence."""
    ids = {_text(node) for chain in answer.evidence for fact in chain for node in (fact.head, fact.tail)}
    return Evidence(ids, {normalise(answer.names.get(id) or id, strip_accents=strip_accents) for id in ids})


def _text(node: Node) -> str:
    return node.value if isinstance(node, LiteralNode) else node
