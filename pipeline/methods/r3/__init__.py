"""R3-Cycle. `method` is the algorithm; the other modules are its prompts, graph tools and memory."""

from pipeline.methods.r3.method import R3

__all__ = ["R3"]
