"""ArG, active self-reflection: `method` is the algorithm, the other modules are its prompts and its parts."""

from pipeline.methods.arg.method import ArG

__all__ = ["ArG"]
