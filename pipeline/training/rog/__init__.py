"""Training data for RoG's planner and reader: `collection` finds gold relation paths, `rows` writes the prompts."""

from pipeline.training.rog.collection import RoGCollection

__all__ = ["RoGCollection"]
