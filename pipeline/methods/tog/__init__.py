"""ToG, beam search over a graph: `method` is the algorithm, the other modules are its prompts."""

from pipeline.methods.tog.method import ToG

__all__ = ["ToG"]
