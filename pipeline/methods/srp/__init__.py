"""SRP, self-reflective planning: `method` holds the algorithm, the other modules its prompts and its steps."""

from pipeline.methods.srp.method import SRP

__all__ = ["SRP"]
