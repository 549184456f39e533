"""PARoG's planning data: gold SPARQL taken apart into plans, and the plans checked (methods.md §7.3)."""

from pipeline.training.parog.method import PlanningData

__all__ = ["PlanningData"]
