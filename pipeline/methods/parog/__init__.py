"""PARoG (plan, answer, refine): `method` runs a plan, `subgoal_search` answers one sub-goal."""

from pipeline.methods.parog.method import PARoG

__all__ = ["PARoG"]
