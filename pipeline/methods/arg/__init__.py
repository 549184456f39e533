"""ArG, active self-reflection. `method` is the algorithm; the other modules are its prompts, parsers and scores."""

from pipeline.methods.arg.method import ArG

__all__ = ["ArG"]
