"""The simulator of RAG's prompt with nodes; that with facts is answered as every prompt with facts."""

from __future__ import annotations

from random import Random

from pipeline.methods.rag.read import ReadNodes
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.methods.answering import UNKNOWN
from pipeline.simulation.registry import Simulator, simulates


@simulates(ReadNodes)
class ReadNodesSimulator(Simulator[ReadNodes]):
    """Copies features of the nodes that the prompt shows."""

    def write_as_oracle(self, prompt: ReadNodes, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Write the gold answers among the features. If there are none, or as an error, write another feature."""
        values = dict.fromkeys(value for node in prompt.nodes for value in node.values)
        right = [value for value in values if gold_context.is_answer(value)]
        wrong = [value for value in values if value not in right] or [UNKNOWN]
        if error_rng:
            return error_rng.choice(wrong)
        return ", ".join(right or wrong[:1])

    def write_by_similarity(self, prompt: ReadNodes, encoder: LexicalEncoder) -> str:
        """Write the name of the node whose line is most similar to the question, of those behind the first."""
        named = [(node.name, node.lines[-1]) for node in prompt.nodes if node.name]
        candidates = named[1:] or named or [(UNKNOWN, UNKNOWN)]
        scores = encoder.similarities(prompt.question.text, [line for _, line in candidates])
        return candidates[scores.index(max(scores))][0]
