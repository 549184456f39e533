"""Labels of nodes in PARoG's prompts, and the answers that the names in replies refer to (specification §5.6)."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.methods.node_labels import NodeLabels
from pipeline.methods.parog.subgoal_result import SubgoalAnswer, SubgoalResult


class SubgoalLabels(NodeLabels):
    """Labels that also serve for the answers of sub-goals."""

    def add_answers(self, results: Iterable[SubgoalResult]) -> None:
        """Label the nodes among the answers of sub-goals."""
        self.add(answer.node for result in results for answer in result.answers if answer.node is not None)

    def answer(self, answer: SubgoalAnswer) -> str:
        """Return the text that prompts show for an answer: the label of its node if it is linked to one."""
        return answer.text if answer.node is None else self.label(answer.node)

    def link(self, text: str) -> SubgoalAnswer:
        """Link an answer that a model wrote to the node with that label, else to the first node with that name."""
        node = self.node(text)
        return SubgoalAnswer(text) if node is None else SubgoalAnswer(self.name(node) or self.label(node), node)
