"""The order of the tails of a relation, of which only the first are shown, in the search and in training texts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from pipeline.kg.interface import Hop
from pipeline.types import EntityId, Node, Relation

TailOrder: TypeAlias = Literal["connected", "id"]
Relations: TypeAlias = Mapping[EntityId, Sequence[Relation]]
"""The relations at each entity."""


async def ordered_tails(
    tails_of: Mapping[Hop, Sequence[Node]],
    order: TailOrder,
    look_up: Callable[[Iterable[EntityId]], Awaitable[Relations]],
    *,
    shown: int,
    is_last: bool,
) -> Mapping[Hop, Sequence[Node]]:
    """Order the tails of each hop by how many relations lead on from them, if some will be hidden.

    The next hop needs the relations that this looks up. So the last hop, after which nobody needs them, keeps the order
    of the ids, as all hops do with `order="id"`.
    """
    some_are_hidden = any(len(tails) > shown for tails in tails_of.values())
    if order == "id" or is_last or not some_are_hidden:
        return tails_of
    relations = await look_up(end for tails in tails_of.values() for end in tails if isinstance(end, str))
    return {
        hop: sorted(tails, key=lambda end: -len(relations.get(end, ())) if isinstance(end, str) else 0)
        for hop, tails in tails_of.items()
    }
