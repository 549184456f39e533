"""Selects the chains of facts to show to the judge and the editor, and to keep as evidence (specification §3.7–3.9).

A chain is a `GroundedPath`: an instance of the relation path that was retrieved.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from pipeline.methods.grounded_path import GroundedPath, Path
from pipeline.methods.rendering import Names
from pipeline.methods.srp.instantiation import Instantiation
from pipeline.types import EntityId

ENDS_UNNAMED = "<cvt></cvt> in the end"
EMPTY_PATH = "empty initial path"
NOT_INSTANTIATED = "relation {} not instantiated"

_MANY_CHAINS = 50
"""Without a node that all topic entities share, more chains than this are cut per entity."""
_CHAINS_PER_ENTITY = 30


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence instances from one or more topic entities."""

    chains: tuple[GroundedPath, ...] = ()
    names: Names = field(default_factory=dict)
    exhausted: bool = False
    """Whether a cap ended the search or cut its evidence."""


def structural_findings(instances: Instantiation) -> tuple[str, ...]:
    """Return the defects of a path that show without reading its facts: findings (a) to (c) of §3.7."""
    longest = [chain for chain in (*instances.complete, *instances.partial) if chain.length == instances.max_length > 0]
    findings = []
    if any(not instances.is_named(chain.end) for chain in longest):
        findings.append(ENDS_UNNAMED)
    if not instances.path:
        findings.append(EMPTY_PATH)
    if instances.max_length < len(instances.path):
        findings.append(NOT_INSTANTIATED.format(instances.path[instances.max_length]))
    return tuple(findings)


def sequences_to_judge(instances: Instantiation, per_path: int | None = None) -> tuple[GroundedPath, ...]:
    """Return complete chains that end in a named entity or a literal, at most `per_path` of each relation path."""
    by_path: dict[Path, list[GroundedPath]] = {}
    for chain in instances.complete:
        if instances.is_named(chain.end):
            by_path.setdefault(chain.path, []).append(chain)
    return tuple(chain for chains in by_path.values() for chain in chains[:per_path])


def all_chains(instances: Instantiation) -> tuple[GroundedPath, ...]:
    """Return all chains that have a fact, partial ones included."""
    return tuple(chain for chain in (*instances.complete, *instances.partial) if chain.length)


def longest_chains(instances: Instantiation) -> tuple[GroundedPath, ...]:
    """Return the distinct longest chains, each cut after its last named node (§3.9)."""
    trimmed = (_trim(chain, instances) for chain in all_chains(instances) if chain.length == instances.max_length)
    return tuple(dict.fromkeys(chain for chain in trimmed if chain.length))


def without_beginnings(chains: Collection[GroundedPath]) -> tuple[GroundedPath, ...]:
    """Return the distinct chains in their order, without those that another one begins with."""
    beginnings = {chain.first(length) for chain in chains for length in range(chain.length)}
    return tuple(chain for chain in dict.fromkeys(chains) if chain not in beginnings)


def kept_first(chains: Sequence[GroundedPath], pruned: Mapping[GroundedPath, GroundedPath]) -> tuple[GroundedPath, ...]:
    """Return the chains in the order in which the editor sees them: those of which the judge kept most come first."""
    return tuple(sorted(chains, key=lambda chain: -pruned[chain].length if chain in pruned else 0))


def candidate_relations(
    offered: Mapping[Path, Collection[str]], ranking: Sequence[str], per_prefix: int, total: int
) -> tuple[tuple[Path, tuple[str, ...]], ...]:
    """Return the best relations by `ranking` that extend each path, at most `total` from the first path on (§3.8)."""
    candidates = []
    for path, names in offered.items():
        best = [name for name in ranking if name in names][: min(total, per_prefix)]
        total -= len(best)
        if best:
            candidates.append((path, tuple(best)))
    return tuple(candidates)


def merge(parts: Sequence[Evidence], max_facts: int) -> Evidence:
    """Merge the evidence of all topic entities into one, with at most `max_facts` facts (§3.9, §2.5)."""
    kept, cut = _cut(_select([list(part.chains) for part in parts if part.chains]), max_facts)
    union = join(parts)
    return Evidence(tuple(chain for group in kept for chain in group), union.names, union.exhausted or cut)


def join(parts: Sequence[Evidence]) -> Evidence:
    """Return the union of all evidence."""
    return Evidence(
        chains=tuple(dict.fromkeys(chain for part in parts for chain in part.chains)),
        names={id: name for part in parts for id, name in part.names.items()},
        exhausted=any(part.exhausted for part in parts),
    )


def _trim(chain: GroundedPath, instances: Instantiation) -> GroundedPath:
    """Cut a chain after its last named node."""
    length = chain.length
    while length and not instances.is_named(chain.nodes[length]):
        length -= 1
    return chain.first(length)


def _select(groups: list[list[GroundedPath]]) -> list[list[GroundedPath]]:
    """Keep the chains through an entity that all groups share. If there is none, cut each group when there are many."""
    if len(groups) < 2:
        return groups
    shared = set.intersection(*({node for chain in group for node in _entities(chain)} for group in groups))
    if shared:
        return [[chain for chain in group if shared & _entities(chain)] for group in groups]
    if sum(map(len, groups)) > _MANY_CHAINS:
        return [group[:_CHAINS_PER_ENTITY] for group in groups]
    return groups


def _cut(groups: list[list[GroundedPath]], max_facts: int) -> tuple[list[list[GroundedPath]], bool]:
    """Take chains from the groups in turn until the next would exceed `max_facts`; return whether any was left out."""
    kept: list[list[GroundedPath]] = [[] for _ in groups]
    for turn in zip_longest(*groups):
        for chain, taken in zip(turn, kept, strict=True):
            if chain is None:
                continue
            max_facts -= chain.length
            if max_facts < 0:
                return kept, True
            taken.append(chain)
    return kept, False


def _entities(chain: GroundedPath) -> set[EntityId]:
    return {node for node in chain.nodes if isinstance(node, str)}
