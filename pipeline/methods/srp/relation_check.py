"""The prompt `srp.relation_check`: which relations of a topic entity to start with (specification §3.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.methods.parsing import LenientPrompt, scored_pairs
from pipeline.methods.rendering import as_question, one_line
from pipeline.methods.srp.references import print_references
from pipeline.methods.templates import load_template
from pipeline.retrieval.interface import Reference
from pipeline.types import Entity, Question

_USE_OF_REFERENCES = "A relation with which one of their paths begins deserves a higher score:"


@dataclass(frozen=True)
class RelationCheck(LenientPrompt[dict[str, float]]):
    """The best relations of one topic entity with their scores, best first."""

    role: ClassVar[str] = "srp.relation_check"
    template = load_template(__file__, "relation_check")

    question: Question
    entity: Entity
    relations: tuple[str, ...]
    """The candidates: sorted, or the best ranked first if some are left out."""
    top_k: int
    """The largest number to pick."""
    left_out: int = 0
    """Candidates that are not shown."""
    references: tuple[Reference, ...] = ()

    def inputs(self) -> dict[str, str]:
        return {
            "references": print_references(self.references, use=_USE_OF_REFERENCES),
            "question": as_question(self.question.text),
            "entity": one_line(self.entity.name),
            "cut": f" (most similar to the question first; {self.left_out} left out)" if self.left_out else "",
            "relations": "; ".join(self.relations),
            "top_k": str(self.top_k),
        }

    def fallback(self, text: str) -> dict[str, float]:
        """Return no relation: the method then ranks the candidates with the sentence encoder."""
        return {}

    def read(self, text: str) -> dict[str, float]:
        scores: dict[str, float] = {}
        for relation, score in scored_pairs(text):
            if relation in self.relations:
                scores.setdefault(relation, score)
        if not scores:
            raise ParseError("there is no ('relation', score) pair with a relation of the list")
        return dict(sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[: self.top_k])
