"""The trail of the gold answers through a question: where they were within reach, and what was made of them.

A trail holds only what concerns the gold answers and the gold paths, so it stays small however much a method looks up.
The engine writes it (`pipeline.engine.gold_trail`), and no method sees it. `pipeline.analysis.losses` reads it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from pipeline.types import EntityId, Gold, Relation, RelationPath

TrailEventName: TypeAlias = Literal[
    "listed",
    "followed",
    "passed",
    "reached",
    "found",
    "unnamed",
    "shown",
    "written",
    "kept",
    "cut",
    "answered",
    "topics",
    "no_way",
]

_MOST_PATHS = 16
"""Gold paths that are followed per question, the best ones of each topic entity first."""


class TrailEvent(NamedTuple):
    """One thing that happened to a gold answer (`edge` is None) or to an edge of a gold path."""

    step: int
    """The step of the question at which it happened; for `kept` and `cut` the last one before it in the same task."""
    event: TrailEventName
    """
    - `listed`: a lookup returned the relations of `of` nodes at which the edge may begin; `number` of these nodes have
      the edge;
    - `followed`: the edge was followed from `number` of the `of` nodes that are known to be where it may begin;
    - `passed`: only other edges were followed from `number` of the `of` nodes at which the edge may begin;
    - `reached`: following it led to `number` nodes;
    - `found`: a lookup returned `number` nodes that are gold answers. A gold answer that was met only where a gold path
      leads on, such as an actor of a film who has directed another one, counts in no event without `edge`;
    - `unnamed`: the graph has no name for the gold answers found so far, which are `number`; 0 once it has one for one;
    - `shown`: the prompt of a model call names the edge, or `number` gold answers. A prompt that names one of the nodes
      at which the edge may begin, and no other, does not count if this node leads to no gold answer. Nor does a gold
      answer that the prompt shows only on the way to others;
    - `written`: the completion names the edge, or gives its number, or names `number` gold answers;
    - `kept`: `number` gold answers, or `number` of the `of` nodes at which the edge may begin, survived a selection;
    - `cut`: code dropped the edge, or `number` gold answers, or `number` of the `of` nodes at which the edge may begin.
      A `cut` by a depth limit is noted even with 0 gold answers, because the limit may have ended the search;
    - `answered`: the answer was read from the completion of this call; `number` is 1 if it stands there, and 0 if this
      is only the last call of a method whose code answers;
    - `topics`: `number` topic entities are in the graph. The engine looks this up after a wrong answer if no lookup of
      the method shows it;
    - `no_way`: the gold path with this last edge leads to no gold answer in the graph. The engine looks this up after a
      wrong answer.
    """
    edge: int | None = None
    """The number of an edge (`number_edges`)."""
    number: int | None = None
    of: int | None = None
    by: str | None = None
    """What cut: `beam`, `cap`, `similarity`, `sample`, `depth`, `plan`, or `evidence` for the facts shown to a call."""


class GoldPath(NamedTuple):
    """A relation path from a topic entity to the gold answers, as the dataset knows it."""

    topic: EntityId
    relations: RelationPath


def gold_paths_of(gold: Gold) -> tuple[GoldPath, ...]:
    """Return the gold paths of a question that are followed in its trail; empty where the dataset knows none."""
    of_topics = [[GoldPath(topic, path) for path in paths if path] for topic, paths in gold.paths.items()]
    best_first = (paths[rank] for rank in range(_MOST_PATHS) for paths in of_topics if rank < len(paths))
    return tuple(path for path, _ in zip(best_first, range(_MOST_PATHS), strict=False))


def print_edge(relation: Relation) -> str:
    """Return a relation as the column `gold_paths` holds it: with a caret if it is followed from object to subject."""
    return relation.name if relation.direction == "out" else f"^{relation.name}"


def number_edges(paths: Iterable[tuple[Hashable, Sequence[Hashable]]]) -> list[list[int]]:
    """Return the numbers of the edges of each path, from 0. Paths with the same beginning share the edges of it."""
    numbers: dict[tuple[Hashable, ...], int] = {}
    return [
        [numbers.setdefault((topic, *relations[: length + 1]), len(numbers)) for length in range(len(relations))]
        for topic, relations in paths
    ]
