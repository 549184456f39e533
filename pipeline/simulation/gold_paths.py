"""Functions with which several simulators write the replies of the oracle: follow gold paths, and corrupt them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, TypeVar

from pipeline.methods.grounded_path import GroundedPath, Path
from pipeline.methods.rendering import Names, node_name
from pipeline.types import EntityId, Node, Relation

if TYPE_CHECKING:
    from pipeline.simulation.gold_context import GoldContext

T = TypeVar("T")


def gold_paths(gold_context: GoldContext, entity: EntityId) -> list[Path]:
    """Return the relation paths from an entity to what the question asks for, without directions, best first."""
    paths = (tuple(relation.name for relation in path) for path in gold_context.paths.get(entity, ()))
    return list(dict.fromkeys(path for path in paths if path))


def answer_hops(chain: GroundedPath, gold_context: GoldContext) -> dict[int, Node]:
    """Return the nodes of a chain that can be answers, by the number of hops to each.

    With foresight these are all but its start. Without it, they are those at the end of a gold path that the chain did
    not visit before: a prompt does not show that a node on the way to the answers is one of them.
    """
    nodes, gold = chain.nodes, gold_context.paths.get(chain.start)
    taken = tuple(step.relation for step in chain.steps)
    return {
        hops: node
        for hops, node in enumerate(nodes[1:], start=1)
        if gold_context.foresight or not gold or (taken[:hops] in gold and node not in nodes[:hops])
    }


def hops_to_answer(grounded: GroundedPath, names: Names, gold_context: GoldContext) -> int:
    """Return the number of hops to the last node that the question asks for; 0 when there is none."""
    reached = answer_hops(grounded, gold_context).items()
    return max((hops for hops, node in reached if gold_context.is_sought(node, node_name(node, names))), default=0)


def answers_shown(shown: Mapping[Node, str], gold_context: GoldContext) -> list[str]:
    """Return the gold answers among nodes with their names; for a question that counts, how many there are."""
    sought = [name for node, name in shown.items() if gold_context.is_sought(node, name)]
    if gold_context.counted and sought:
        return [str(len(sought))]
    return list(dict.fromkeys(sought))


def sufficient_answers(shown: Mapping[Node, str], gold_context: GoldContext, error_rng: Random | None) -> list[str]:
    """Return the gold answers among nodes with their names if they suffice; empty if not. A count needs all its nodes.

    With `error_rng`, return nothing, or another node if no gold answer is among them.
    """
    right = answers_shown(shown, gold_context)
    if error_rng:
        wrong = [name for name in shown.values() if name not in right]
        return [error_rng.choice(wrong)] if not right and wrong else []
    return right if gold_context.counted.issubset(shown) else []


def gold_prefix_length(grounded: GroundedPath, gold_context: GoldContext) -> int:
    """Return the number of first hops that follow a gold path."""
    taken, gold = grounded.path, gold_paths(gold_context, grounded.start)
    lengths = range(grounded.length, 0, -1)
    return next((hops for hops in lengths if any(path[:hops] == taken[:hops] for path in gold)), 0)


def next_gold_relations(chain: GroundedPath, gold_context: GoldContext) -> list[Relation]:
    """Return the next relation of each gold path that begins with this chain, the best path's first."""
    walked = tuple(step.relation for step in chain.steps)
    paths = gold_context.paths.get(chain.start, ())
    remaining = (path[len(walked) :] for path in paths if path[: len(walked)] == walked)
    return list(dict.fromkeys(rest[0] for rest in remaining if rest))


def corrupted(path: Path, pool: Iterable[str], error_rng: Random) -> Path:
    """Replace one relation of the path by another one of the pool. If there is none, repeat the last relation."""
    others = sorted(set(pool).difference(path))
    if not others:
        return path + path[-1:]
    index = error_rng.randrange(len(path)) if path else 0
    return (*path[:index], error_rng.choice(others), *path[index + 1 :])


def sample_one(items: Sequence[T], error_rng: Random) -> list[T]:
    """Draw one item; none if there are none."""
    return error_rng.sample(items, min(1, len(items)))
