"""PoG, Plan-on-Graph: `method` holds the algorithm, `search` the state of a question, the others its prompts."""

from pipeline.methods.pog.method import PoG

__all__ = ["PoG"]
