"""ToG, beam search over a graph: `method` holds the algorithm, the other modules its prompts and its scoring."""

from pipeline.methods.tog.method import ToG

__all__ = ["ToG"]
