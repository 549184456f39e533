"""PARoG's planning data: plans made from gold SPARQL, verified on the graph (specification §7.3)."""

from pipeline.training.parog import simulators as simulators  # registers the simulators of the collection's prompts
from pipeline.training.parog.collection import PlanningData

__all__ = ["PlanningData"]
