"""The synthetic world, a generated dataset: a seeded graph and its questions.

The graph is a fixed set of hubs (countries, genres, professions …) and any number of regions. Each region is generated
from the seed and its number alone, and questions are drawn region by region, so memory does not grow with the world.
"""

from pipeline.simulation.world.world import SyntheticWorld

__all__ = ["SyntheticWorld"]
