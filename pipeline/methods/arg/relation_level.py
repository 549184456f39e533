"""The relation level of a hop: retrieve relations, have them judged in groups, and keep a beam (§4.5.1, §4.5.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pipeline.methods.arg.generation import GeneratedSegment
from pipeline.methods.arg.leaves import answer_without_retrieval
from pipeline.methods.arg.relations import HypotheticalRelations, RelationJudgement, RelationSegment
from pipeline.methods.arg.scores import graded_score, mean_logprob
from pipeline.methods.arg.search import Search
from pipeline.methods.arg.tokens import RETRIEVE_ENTITY, RETRIEVE_RELATION, UNRELEVANT
from pipeline.methods.arg.tree import Node, relation_beam
from pipeline.methods.concurrency import concurrently
from pipeline.methods.rendering import node_name
from pipeline.retrieval.relations import as_text


async def judge_relations(search: Search) -> list[Node]:
    """Offer each node its retrieved relations, in groups; return the beam of nodes with a relevant relation.

    A group after which the model declines to retrieve is not followed: the model answers there.
    """
    settings = search.settings
    await search.look_up_relations(entity for node in search.frontier for entity in node.walk_to)
    retrieved = await _retrieve(search)
    offers = [
        (node, segment)
        for node, relations in zip(search.frontier, retrieved, strict=True)
        for segment in _offers(search, node, relations)
    ]
    segments = await search.generate([segment for _, segment in offers])
    judged = [(node, segment) for (node, _), segment in zip(offers, segments, strict=True) if segment]
    declined = [_declined(node, segment) for node, segment in judged if _declines(search, segment)]
    nodes = [_judged(node, segment) for node, segment in judged if not _declines(search, segment)]
    relevant = (node for node in nodes if node.relations)
    beam = relation_beam(relevant, settings.width, settings.relation_rank, settings.score)
    for node in nodes:
        if node not in beam:
            search.tools.record("cut", by="beam", relations=list(node.relations), at=list(node.walk_to))
    search.tools.record(
        "relations_selected",
        hop=search.depth,
        offered=retrieved,
        relevant=[dict(node.relations) for node in nodes],
        kept=[list(node.relations) for node in beam],
    )
    await answer_without_retrieval(search, declined)
    return beam


def _offers(search: Search, node: Node, relations: Sequence[str]) -> list[RelationSegment]:
    size = search.settings.group_size
    groups = [tuple(relations[start : start + size]) for start in range(0, len(relations), size)]
    return [
        RelationSegment(
            search.question, search.settings.prompted, node.transcript, group, node.walks, (number, len(groups))
        )
        for number, group in enumerate(groups, start=1)
    ]


async def _retrieve(search: Search) -> list[list[str]]:
    """Return at most 2K relations for each node of the frontier: the naive retriever's, then the hypothetical."""
    hypothetical: Sequence[tuple[str, ...]] = [()] * len(search.frontier)
    if search.settings.hypo:
        segments = await search.generate(
            [
                HypotheticalRelations(search.question, search.settings.prompted, node.transcript, node.walks)
                for node in search.frontier
            ]
        )
        hypothetical = [segment.value if segment else () for segment in segments]
    retrieved = await concurrently(
        _retrieve_for(search, node, relations) for node, relations in zip(search.frontier, hypothetical, strict=True)
    )
    search.tools.record("relations_listed", hop=search.depth, hypothetical=hypothetical, retrieved=retrieved)
    return retrieved


async def _retrieve_for(search: Search, node: Node, hypothetical: Sequence[str]) -> list[str]:
    queries = list(_queries(search, node, hypothetical))
    candidates = sorted({relation.name for entity in node.walk_to for relation in search.relations.get(entity, ())})
    found = [relation for query in queries for relation in await _nearest(search, query, candidates)]
    cut = set(candidates).difference(found)
    search.tools.record("cut", by="similarity", relations=cut, at=list(node.walk_to))
    allowed = {relation.name for relations in search.relations_to_follow(node).values() for relation in relations}
    return [relation for relation in dict.fromkeys(found) if relation in allowed or not candidates]


def _queries(search: Search, node: Node, hypothetical: Sequence[str]) -> Iterable[str]:
    """Yield the naive query, the question with the names of the entities reached, and the hypothetical relations."""
    if search.settings.naive_retriever:
        names = [node_name(entity, search.names) for entity in node.walk_to] if node.hop_scores else []
        yield " ".join([search.question.text, *filter(None, names)])
    if hypothetical:
        yield " ".join(map(as_text, hypothetical))


async def _nearest(search: Search, query: str, candidates: Sequence[str]) -> list[str]:
    """Return the K candidates nearest to a query; without candidates, the K nearest relations of the graph."""
    k, retrieval = search.settings.retrieve_k, search.tools.retrieval
    if not candidates:
        return await retrieval.relations(query, k, hybrid=False)
    ranking = await retrieval.rank(query, list(map(as_text, candidates)))
    return [candidates[index] for index in ranking[:k]]


def _declines(search: Search, segment: GeneratedSegment[RelationJudgement]) -> bool:
    return search.settings.retrieval == "model" and segment.value.declines


def _declined(node: Node, segment: GeneratedSegment[RelationJudgement]) -> Node:
    return replace(node, transcript=segment.transcript_ending_with(RETRIEVE_RELATION))


def _judged(node: Node, segment: GeneratedSegment[RelationJudgement]) -> Node:
    relevant = {
        pair.name: graded_score(segment.weights(pair.token))
        for pair in segment.value.labelled
        if pair.token.text != UNRELEVANT
    }
    transcript = segment.transcript_ending_with(RETRIEVE_ENTITY)
    return replace(node, transcript=transcript, relations=relevant, mean_logprob=mean_logprob(segment.logprobs))
