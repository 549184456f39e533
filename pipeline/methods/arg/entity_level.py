"""The entity level of a hop: follow relations, have the tails and the path judged, and keep a beam (§4.5.3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipeline.methods.arg.answers import ParsedAnswers
from pipeline.methods.arg.entities import EntitySegment, TailJudgement
from pipeline.methods.arg.generation import GeneratedSegment
from pipeline.methods.arg.path_scores import hop_score, path_score, sequence_score, utility_score
from pipeline.methods.arg.search import Search
from pipeline.methods.arg.tails import ordered_tails
from pipeline.methods.arg.tokens import RETRIEVE_RELATION
from pipeline.methods.arg.tree import Expansion, Leaf, Node, entity_beam
from pipeline.methods.grounded_path import GroundedPath
from pipeline.types import Node as GraphNode
from pipeline.types import Relation


async def judge_entities(search: Search, nodes: Sequence[Node]) -> None:
    """Follow every relevant relation of the beam; set leaves aside, and make the beam of new nodes the frontier."""
    expansions = await _expand(search, nodes)
    segments = await search.generate([segment for _, segment in expansions])
    outcomes = [
        _outcome(search, expansion, segment)
        for (expansion, _), segment in zip(expansions, segments, strict=True)
        if segment is not None
    ]
    grown = [outcome for outcome in outcomes if isinstance(outcome, Node)]
    search.leaves += [outcome for outcome in outcomes if isinstance(outcome, Leaf)]
    search.advance(entity_beam(grown, search.settings.width))
    unread = [asked for (_, asked), segment in zip(expansions, segments, strict=True) if segment is None]
    search.tools.record("cut", by="cap", nodes=[tail.end for asked in unread for tail in asked.tails])
    search.tools.record("kept", nodes=[walk.end for found in outcomes if found for walk in found.walks])
    search.record_cut("beam", [node for node in grown if node not in search.frontier])
    search.tools.record(
        "expanded",
        hop=search.depth,
        segments=[[str(expansion.source.end), expansion.relation, len(s.tails)] for expansion, s in expansions],
        grown=[node.score for node in grown],
        kept=len(search.frontier),
        leaves=len(search.leaves),
    )


async def _expand(search: Search, nodes: Sequence[Node]) -> list[tuple[Expansion, EntitySegment]]:
    """Return the expansions that reach a tail, with their segments: one batched lookup of tails, one of names."""
    settings, most = search.settings, search.tools.caps.max_frontier
    expansions = [expansion for node in nodes for expansion in _expansions(search, node)]
    hops = list(dict.fromkeys(hop for expansion in expansions for hop in expansion.hops))
    if len(hops) > most:
        search.tools.record("cap_hit", cap="max_frontier")
    found = await search.tools.kg.neighbours(hops[:most], settings.max_tails_fetched)
    await search.look_up_names(end for tails in found.values() for end in tails.nodes if isinstance(end, str))
    tails_of = await ordered_tails(
        {hop: tails.nodes for hop, tails in found.items()},
        settings.tail_order,
        search.look_up_relations,
        shown=settings.max_tails_shown,
        is_last=search.depth == settings.max_hops,
    )
    reached = [
        (expansion, [(hop[1], end) for hop in expansion.hops for end in tails_of.get(hop, ())])
        for expansion in expansions
    ]
    segments = [(expansion, _segment(search, expansion, tails)) for expansion, tails in reached]
    hidden = {tail.end for _, segment in segments for tail in segment.tails} - {
        tail.end for _, segment in segments for tails in segment.shown_tails.values() for tail in tails
    }
    search.tools.record("cut", by="cap", nodes=hidden)
    return [(expansion, segment) for expansion, segment in segments if segment.tails]


def _expansions(search: Search, node: Node) -> Iterable[Expansion]:
    to_follow = search.relations_to_follow(node)
    for entity, source in node.walk_to.items():
        for name in node.relations:
            directed = [relation for relation in to_follow[entity] if relation.name == name]
            if not search.relations.get(entity, ()):  # the relation was retrieved from the whole graph
                directed = [Relation(name, "out"), Relation(name, "in")]
            hops = tuple((entity, relation) for relation in sorted(directed, key=lambda r: r.direction != "out"))
            yield Expansion(node, source, name, hops)


def _segment(search: Search, expansion: Expansion, tails: Iterable[tuple[Relation, GraphNode]]) -> EntitySegment:
    """Return the segment that shows the tails; an explained one does not lead back to where the walk came from.

    A trained generator sees the way back, as in its training texts.
    """
    settings, source = search.settings, expansion.source
    behind = source.nodes if settings.prompted else ()
    return EntitySegment(
        question=search.question,
        prompted=settings.prompted,
        transcript=expansion.node.transcript,
        source=source,
        relation=expansion.relation,
        tails=tuple(source.then(relation, end) for relation, end in tails if end not in behind),
        names=search.names,
        max_shown=settings.max_tails_shown,
        cvt_fanout=settings.cvt_fanout,
        facts=settings.facts,
    )


def _outcome(search: Search, expansion: Expansion, segment: GeneratedSegment[TailJudgement]) -> Leaf | Node | None:
    """Return what one segment leads to: a leaf, a node to extend, or None for a path that is dropped."""
    settings, judgement, node = search.settings, segment.value, expansion.node
    hops = (*node.hop_scores, hop_score(settings, expansion, segment))
    sequences = (*node.sequence_scores, sequence_score(settings, segment.logprobs))
    walks: tuple[GroundedPath, ...] = judgement.relevant or node.walks
    if judgement.answers is not None and not (judgement.is_unreasonable and settings.on_unreasonable == "drop"):
        score = path_score(settings, hops, sequences, is_leaf=True)
        return Leaf(judgement.answers, walks, score + utility_score(settings, segment, judgement.answers.utility))
    if judgement.ends:
        return Leaf(ParsedAnswers(), walks, 0.0)
    if judgement.is_unreasonable or (settings.on_all_unrelevant == "end" and judgement.is_all_unrelevant):
        return None
    return Node(
        transcript=segment.transcript_ending_with(RETRIEVE_RELATION),
        walks=walks,
        hop_scores=hops,
        sequence_scores=sequences,
        score=path_score(settings, hops, sequences, is_leaf=False),
        tried=frozenset() if judgement.relevant else frozenset(relation for _, relation in expansion.hops),
    )
