"""An optional extra: what the oracle and the similarity policy reply to the prompt of neighbour.py."""

from random import Random

from neighbour import PickFacts

from pipeline.methods.rendering import node_name
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.simulation.gold_context import GoldContext
from pipeline.simulation.registry import Simulator, simulates


@simulates(PickFacts)
class PickFactsSimulator(Simulator[PickFacts]):
    def write_as_oracle(self, prompt: PickFacts, gold_context: GoldContext, error_rng: Random | None) -> str:
        """Pick the facts that lead to gold answers; with `error_rng`, another one (`llm=oracle`)."""
        ends = enumerate((fact.end for fact in prompt.facts), start=1)
        right = [number for number, end in ends if gold_context.is_sought(end, node_name(end, prompt.names))]
        wrong = [number for number in range(1, len(prompt.facts) + 1) if number not in right]
        picked = [error_rng.choice(wrong)] if error_rng and wrong else right
        return f"Facts: {', '.join(map(str, picked)) or 'none'}"

    def write_by_similarity(self, prompt: PickFacts, encoder: LexicalEncoder) -> str:
        """Pick the fact whose relation is most similar to the question (`llm=similarity`)."""
        scores = encoder.similarities(prompt.question.text, [fact.path[0] for fact in prompt.facts])
        return f"Facts: {scores.index(max(scores)) + 1}" if scores else "Facts: none"
