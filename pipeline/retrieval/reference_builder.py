"""Builds a reference base from training questions: clusters them, draws some, solves them (specification §7.1)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

import numpy as np
from scipy.cluster.vq import kmeans2

from pipeline.kg.fit_to_graph import fit_to_graph
from pipeline.kg.interface import KnowledgeGraph
from pipeline.kg.paths import gold_paths
from pipeline.normalisation import normalise
from pipeline.retrieval.interface import Encoder, Reference, Vectors
from pipeline.retrieval.references import ReferenceBase, mask
from pipeline.types import Example

MAX_HOPS = 4
MAX_ANSWERS = 10
HELD_OUT = "held out"
"""The reason of `BuildReport.rejected` for questions that must not be references."""


@dataclass(slots=True)
class BuildReport:
    """How many training questions were used, and why others were rejected."""

    questions: int = 0
    eligible: int = 0
    """Questions with a topic entity and an answer that are not held out. Paths are searched only for drawn ones."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Reason → number of questions."""
    clusters: int = 0


async def build_references(
    examples: Iterable[Example],
    kg: KnowledgeGraph,
    encoder: Encoder,
    *,
    held_out: Collection[str] = (),
    clusters: int = 50,
    per_cluster: int = 2,
    masked: bool = False,
    seed: int = 0,
    on_drawn: Callable[[Reference | None], None] = lambda _: None,
) -> tuple[ReferenceBase, BuildReport]:
    """Cluster the eligible questions and draw the same number of solvable ones from each cluster.

    With `masked`, names of topic entities do not count in the clustering.
    Questions equal to one of `held_out` after normalisation are never drawn. Relation paths are searched only for drawn
    questions, until enough are solved. `on_drawn` is called for each drawn question, with None if it was not solved.
    """
    report = BuildReport()
    excluded = {normalise(text) for text in held_out}
    eligible = []
    for example in examples:
        report.questions += 1
        if reason := _ineligible(example, excluded):
            report.rejected[reason] += 1
        else:
            eligible.append(example)
    report.eligible = len(eligible)
    eligible = await asyncio.gather(*(fit_to_graph(example, kg.for_question(example.question)) for example in eligible))

    async def solve(position: int) -> Reference | None:
        reference = await solve_question(eligible[position], kg)
        if reference is None:
            report.rejected["no path to an answer"] += 1
        on_drawn(reference)
        return reference

    questions = [example.question for example in eligible]
    texts = [mask(each.text, each.topic_entities) if masked else each.text for each in questions]
    groups = await asyncio.to_thread(group_similar, await encoder.encode(texts), clusters, seed)
    report.clusters = len(groups)
    base = ReferenceBase(await draw(groups, per_cluster, total=clusters * per_cluster, seed=seed, solve=solve))
    await base.vectors(encoder, masked=masked)
    return base, report


async def solve_question(example: Example, kg: KnowledgeGraph) -> Reference | None:
    """Return the question with a verified path from each topic entity that has one; None if none has one."""
    question = example.question
    graph = kg.for_question(question)
    topics = question.topic_entities
    gold = example.gold
    found = await asyncio.gather(
        *(
            gold_paths(graph, topic.id, gold.paths.get(topic.id, ()), gold.answers, max_hops=MAX_HOPS)
            for topic in topics
        )
    )
    paths = {topic.name: paths[0] for topic, paths in zip(topics, found, strict=True) if paths}
    if not paths:
        return None
    return Reference(
        question=question.text,
        masked_question=mask(question.text, topics),
        paths={name: " -> ".join([name, *(relation.name for relation in path)]) for name, path in paths.items()},
        answers=tuple(answer.name for answer in example.gold.answers[:MAX_ANSWERS]),
        topic_entities={topic.id: topic.name for topic in topics},
    )


def group_similar(vectors: Vectors, clusters: int, seed: int) -> list[list[int]]:
    """Cluster by k-means. Return the positions in each non-empty cluster, largest cluster first."""
    if not len(vectors):
        return []
    count = min(clusters, len(np.unique(vectors, axis=0)))
    _, labels = kmeans2(vectors.astype(np.float64), count, iter=25, minit="++", missing="warn", seed=seed)
    groups = [np.flatnonzero(labels == label).tolist() for label in range(count)]
    return sorted(filter(None, groups), key=lambda group: (-len(group), group[0]))


async def draw(
    groups: Sequence[Sequence[int]],
    per_cluster: int,
    *,
    total: int,
    seed: int,
    solve: Callable[[int], Awaitable[Reference | None]],
) -> list[Reference]:
    """Draw `per_cluster` solvable members of each group. Fill up to `total` from the largest groups in turn."""
    random = Random(seed)
    members = [iter(random.sample(group, len(group))) for group in groups]

    async def take(group: int, wanted: int) -> list[Reference]:
        taken: list[Reference] = []
        while len(taken) < wanted and (position := next(members[group], None)) is not None:
            if (reference := await solve(position)) is not None:
                taken.append(reference)
        return taken

    drawn = await asyncio.gather(*(take(group, per_cluster) for group in range(len(groups))))
    references = [reference for taken in drawn for reference in taken]
    open_groups = list(range(len(groups)))
    while open_groups and len(references) < total:
        for group in list(open_groups):
            more = await take(group, 1) if len(references) < total else []
            if not more:
                open_groups.remove(group)
            references += more
    return references


def _ineligible(example: Example, excluded: Collection[str]) -> str | None:
    if not example.question.topic_entities:
        return "no topic entity"
    if not example.gold.answers:
        return "no answer"
    return HELD_OUT if normalise(example.question.text) in excluded else None
