"""DoG, Debate on Graph: `method` holds the loop, `expansion` one hop of the graph, the others its prompts."""

from pipeline.methods.dog.method import DoG

__all__ = ["DoG"]
