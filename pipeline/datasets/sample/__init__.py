"""The sample world, the dataset that the project carries: a seeded graph and its questions.

A fixed set of hubs (countries, genres, professions …) and any number of regions, each generated from the seed and its
number alone, make up the graph; questions are drawn region by region. So memory does not grow with the world.
"""

from pipeline.datasets.sample.world import SampleWorld

__all__ = ["SampleWorld"]
