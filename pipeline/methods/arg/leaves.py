"""Answers without another hop: where the model declines to retrieve, and at the end of the search (§4.5, §4.7)."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.methods.arg.answers import AnswerSegment
from pipeline.methods.arg.path_scores import path_score, sequence_score, utility_score
from pipeline.methods.arg.search import Search
from pipeline.methods.arg.tree import Leaf, Node


async def answer_without_retrieval(search: Search, nodes: Sequence[Node]) -> None:
    """Make leaves of the nodes at which the model declined to retrieve."""
    if nodes:
        search.tools.record("retrieval_declined", hop=search.depth, nodes=len(nodes))
        search.leaves += await _forced_leaves(search, nodes, last=False)


async def force_answers(search: Search) -> None:
    """Force an answer at the depth limit; if no leaf has one and no node is left, at the deepest nodes.

    After a limit of the budget was met, one forced answer is allowed, and only if there is no answer yet.
    """
    open_nodes = search.frontier or ([] if search.has_answer else search.deepest)
    if not search.exhausted:
        search.leaves += await _forced_leaves(search, open_nodes, last=False)
    if search.exhausted and not search.has_answer:
        search.leaves += await _forced_leaves(search, (open_nodes or search.deepest)[:1], last=True)


async def _forced_leaves(search: Search, nodes: Sequence[Node], *, last: bool) -> list[Leaf]:
    settings = search.settings
    prompts = [
        AnswerSegment(search.question, settings.prompted, node.transcript, node.walks, search.names) for node in nodes
    ]
    leaves: list[Leaf] = []
    for node, segment in zip(nodes, await search.generate(prompts, last=last), strict=True):
        if segment is not None:
            sequences = (*node.sequence_scores, sequence_score(settings, segment.logprobs))
            score = path_score(settings, node.hop_scores, sequences, is_leaf=True)
            score += utility_score(settings, segment, segment.value.utility)
            leaves.append(Leaf(segment.value, node.walks, score))
    return leaves
