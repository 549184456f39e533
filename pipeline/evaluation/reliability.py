"""Whether answers come from the graph (methods.md §9.5)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from pipeline.evaluation.matching import Candidate, GoldGroups
from pipeline.text import normalise
from pipeline.types import Answer, EntityId, Gold, LiteralNode, Node

_PREDICATE = re.compile(r"""[:/]([a-z]\w*(?:\.\w+){2,})(?=>?\s+[?:<"'\w])""")
"""A Freebase property followed by an object; a type in object position is followed by a full stop instead."""
_BOILERPLATE = {"type.object.type", "type.object.name"}


@dataclass(frozen=True, slots=True)
class Evidence:
    """The entities and literals of the facts that an answer was given from."""

    ids: Collection[EntityId]
    names: Collection[str]
    """Under N; an unnamed entity goes by its id, a literal by its text."""

    def holds(self, candidate: Candidate) -> bool:
        """Whether a predicted answer is among them, by id or by name."""
        return candidate.name in self.names or any(id in self.ids for id in candidate.ids)

    def holds_gold(self, gold: GoldGroups) -> bool:
        """Whether any gold answer is among them: searching success."""
        return any(id in self.ids for id in gold.by_id) or any(name in self.names for name in gold.by_name)

    def share(self, candidates: Sequence[Candidate]) -> float | None:
        """The share of predicted answers among them, correct or not: faithfulness. None when nothing was predicted."""
        return sum(map(self.holds, candidates)) / len(candidates) if candidates else None


def collect_evidence(answer: Answer, *, strip_accents: bool = True) -> Evidence:
    """The nodes at either end of every fact in an answer's evidence."""
    ids = {_text(node) for chain in answer.evidence for fact in chain for node in (fact.head, fact.tail)}
    return Evidence(ids, {normalise(answer.names.get(id) or id, strip_accents=strip_accents) for id in ids})


def gold_relations(gold: Gold) -> frozenset[str]:
    """The relations of the gold query, or of the best gold path per topic entity where there is no query."""
    if gold.sparql:
        return frozenset(_PREDICATE.findall(gold.sparql)) - _BOILERPLATE
    return frozenset(relation.name for paths in gold.paths.values() for relation in (paths[0] if paths else ()))


def relation_recall(gold: Gold, selected: Iterable[str]) -> float | None:
    """The share of gold relations that were selected at any time; None where the gold relations are not known."""
    relations = gold_relations(gold)
    return len(relations.intersection(selected)) / len(relations) if relations else None


def _text(node: Node) -> str:
    return node.value if isinstance(node, LiteralNode) else node
