"""PARoG, plan-answer-refine: `method` is the algorithm, the other modules are its prompts and its parts."""

from pipeline.methods.parog.method import PARoG

__all__ = ["PARoG"]
