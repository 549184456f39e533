"""SRP, self-reflective planning: `method` is the algorithm, the other modules are its prompts and its parts."""

from pipeline.methods.srp.method import SRP

__all__ = ["SRP"]
