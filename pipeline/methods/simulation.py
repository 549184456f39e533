"""What prompts share when a simulated model writes their replies: the oracle's gold paths and slips, and similarity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING

from pipeline.methods.instance import Instance, Path
from pipeline.methods.rendering import Names, node_name
from pipeline.retrieval.relations import as_text
from pipeline.types import EntityId, Node, Relation

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder


def gold_paths(truth: Truth, entity: EntityId) -> list[Path]:
    """The paths from an entity to what is sought, without directions, best first."""
    paths = (tuple(relation.name for relation in path) for path in truth.paths.get(entity, ()))
    return list(dict.fromkeys(path for path in paths if path))


def hops_to_answer(instance: Instance, names: Names, truth: Truth) -> int:
    """How many hops lead to the last node of an instance that is sought; 0 when none does."""
    reached = enumerate(instance.nodes[1:], start=1)
    return max((hops for hops, node in reached if truth.is_sought(node, node_name(node, names))), default=0)


def answers_shown(shown: Mapping[Node, str], truth: Truth) -> list[str]:
    """What a perfect reader answers from nodes and their names: gold answers, or how many there are to count."""
    sought = [name for node, name in shown.items() if truth.is_sought(node, name)]
    if truth.counted and sought:
        return [str(len(sought))]
    return list(dict.fromkeys(sought))


def hops_on_track(instance: Instance, truth: Truth) -> int:
    """How many hops of an instance follow a gold path."""
    taken, gold = instance.path, gold_paths(truth, instance.start)
    lengths = range(instance.length, 0, -1)
    return next((hops for hops in lengths if any(path[:hops] == taken[:hops] for path in gold)), 0)


def next_on_gold_paths(chain: Instance, truth: Truth) -> list[Relation]:
    """The relations with which gold paths go on from the end of a chain, directions heeded, the best path's first."""
    walked = tuple(step.relation for step in chain.steps)
    paths = truth.paths.get(chain.start, ())
    ahead = (path[len(walked) :] for path in paths if path[: len(walked)] == walked)
    return list(dict.fromkeys(rest[0] for rest in ahead if rest))


def spoilt(path: Path, pool: Iterable[str], slip: Random) -> Path:
    """The path with one relation replaced by another one of the pool, or its last one repeated when there is none."""
    others = sorted(set(pool).difference(path))
    if not others:
        return path + path[-1:]
    place = slip.randrange(len(path)) if path else 0
    return (*path[:place], slip.choice(others), *path[place + 1 :])


def rank_relations(relations: Sequence[str], question: str, encoder: LexicalEncoder) -> list[str]:
    """The relations, the one whose words are most like the question's first."""
    scores = encoder.similarities(question, [as_text(relation) for relation in relations])
    ranking = sorted(zip(scores, relations, strict=True), key=lambda pair: (-pair[0], pair[1]))
    return [relation for _, relation in ranking]


def most_similar_path(paths: Iterable[Path], question: str, encoder: LexicalEncoder) -> Path | None:
    """The path whose words are most like the question's, the first of equals; None when there is no path."""
    distinct = list(dict.fromkeys(paths))
    scores = encoder.similarities(question, [" ".join(map(as_text, path)) for path in distinct])
    return max(zip(distinct, scores, strict=True), key=lambda pair: pair[1], default=(None, 0.0))[0]
