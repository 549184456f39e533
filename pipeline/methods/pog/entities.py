"""The prompt `pog.entities`: which of the nodes that a relation leads to should be kept (specification §16.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pipeline.llm.prompt import Template
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.node_labels import NodeLabels, path_label
from pipeline.methods.pog.facts import print_numbered
from pipeline.methods.pog.selection import Listed, SelectionPrompt
from pipeline.methods.rendering import as_question
from pipeline.methods.templates import load_template
from pipeline.types import Question

_ONE, _SEVERAL = load_template(__file__, "entities"), load_template(__file__, "entities_batched")


@dataclass(frozen=True)
class SelectEntities(SelectionPrompt):
    """The nodes to keep of each group: of the nodes that one entity leads to over one relation in one direction."""

    role: ClassVar[str] = "pog.entities"

    question: Question
    groups: tuple[tuple[GroundedPath, ...], ...]
    """The facts of each group, one hop each; all their nodes have labels."""
    labels: NodeLabels
    batched: bool

    @property
    def template(self) -> Template:
        return _SEVERAL if self.batched else _ONE

    @property
    def lists(self) -> tuple[Listed, ...]:
        return tuple(
            Listed(self._heading(facts[0]), tuple(self.labels.label(fact.end) for fact in facts))
            for facts in self.groups
        )

    def inputs(self) -> dict[str, str]:
        question = as_question(self.question.text)
        if self.batched:
            lines = print_numbered(f"{heading}: {'; '.join(names)}" for heading, names in self.lists)
            return {"question": question, "groups": lines}
        ((heading, names),) = self.lists
        return {"question": question, "group": heading, "candidates": "; ".join(names)}

    def _heading(self, fact: GroundedPath) -> str:
        return f"{self.labels.label(fact.start)}, {path_label(step.relation for step in fact.steps)}"
