"""Selects the chains of facts to show to the judge and the editor, and to keep as evidence (specification §3.7–3.9).

A chain is a `GroundedPath`: an instance of the relation path that was retrieved.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from pipeline.grouping import grouped
from pipeline.methods.grounded_path import GroundedPath, Path
from pipeline.methods.rendering import Names, node_name
from pipeline.methods.srp.instantiation import Instantiation
from pipeline.methods.srp.judge import Verdict
from pipeline.types import EntityId

ENDS_UNNAMED = "<cvt></cvt> in the end"
EMPTY_PATH = "empty initial path"
NOT_INSTANTIATED = "relation {} not instantiated"

_NUMBER = re.compile(r"\b[0-9]{1,4}\b")

_MANY_CHAINS = 50
"""Without a node that all topic entities share, more chains than this are cut per entity."""
_CHAINS_PER_ENTITY = 30


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence instances from one or more topic entities."""

    chains: tuple[GroundedPath, ...] = ()
    names: Names = field(default_factory=dict)
    exhausted: bool = False
    """Whether a limit ended the search or cut its evidence."""
    left_out: int = 0
    """Chains that were found and cut."""


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


def sequences_to_judge(found: Sequence[Instantiation], names: Names, *, partial: bool) -> tuple[GroundedPath, ...]:
    """Return the chains that end in a named entity or a literal: complete ones and, if wanted, partial ones.

    Of chains that differ in unnamed nodes alone, which look alike to a reader, the first is returned.
    """
    chains = [chain for each in found for chain in each.complete]
    if partial:
        chains += [chain for each in found for chain in each.partial if chain.length]
    first: dict[tuple[object, ...], GroundedPath] = {}
    for chain in chains:
        shown = tuple(None if node_name(node, names) is None else node for node in chain.nodes)
        if shown[-1] is not None:
            first.setdefault((tuple(step.relation for step in chain.steps), shown), chain)
    return tuple(first.values())


def sample_of_each_path(chains: Iterable[GroundedPath], size: int) -> tuple[GroundedPath, ...]:
    """Return the first `size` chains of each relation path, grouped by path."""
    by_path = grouped(chains, lambda chain: chain.path)
    return tuple(chain for group in by_path.values() for chain in group[:size])


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


def kept_first(chains: Iterable[GroundedPath], verdict: Verdict) -> tuple[GroundedPath, ...]:
    """Return the chains in the order in which the editor sees them.

    Those of which the judge kept most come first, then those whose numbers its message names.
    """
    named = {int(number) for number in _NUMBER.findall(verdict.message)}
    numbers = {chain: number for number, chain in enumerate(verdict.pruned, start=1)}

    def rank(chain: GroundedPath) -> tuple[int, bool]:
        kept = verdict.pruned[chain].length if chain in verdict.pruned else 0
        return -kept, numbers.get(chain) not in named

    return tuple(sorted(dict.fromkeys(chains), key=rank))


@dataclass(frozen=True, slots=True)
class Candidates:
    """The relations that the editor is offered."""

    by_path: tuple[tuple[Path, tuple[str, ...]], ...]
    """Those that extend each path, the best first."""
    left_out: int
    """How many more there are."""


def candidate_relations(
    offered: Mapping[Path, Collection[str]], ranking: Sequence[str], per_prefix: int, total: int
) -> Candidates:
    """Select the best relations by `ranking` that extend each path, at most `total` from the first path on (§3.8)."""
    candidates = []
    left_out = 0
    for path, names in offered.items():
        best = [name for name in ranking if name in names][: min(total, per_prefix)]
        total -= len(best)
        left_out += len(names) - len(best)
        if best:
            candidates.append((path, tuple(best)))
    return Candidates(tuple(candidates), left_out)


def merge(parts: Sequence[Evidence], max_facts: int) -> Evidence:
    """Merge the evidence of all topic entities into one, with at most `max_facts` facts (§3.9, §2.5).

    Keep the chains through an entity that all topic entities share. If there is none, cut each group when there are
    many.
    """
    groups = [list(part.chains) for part in parts if part.chains]
    shared = _shared_entities(groups)
    if shared:
        groups = [[chain for chain in group if shared & _entities(chain)] for group in groups]
    found = sum(map(len, groups))
    if len(groups) > 1 and not shared and found > _MANY_CHAINS:
        groups = [group[:_CHAINS_PER_ENTITY] for group in groups]
    groups, cut = _cut(groups, max_facts)
    chains = tuple(chain for group in groups for chain in group)
    return Evidence(
        chains=chains,
        names={id: name for part in parts for id, name in part.names.items()},
        exhausted=cut or any(part.exhausted for part in parts),
        left_out=found - len(chains),
    )


def _trim(chain: GroundedPath, instances: Instantiation) -> GroundedPath:
    """Cut a chain after its last named node."""
    length = chain.length
    while length and not instances.is_named(chain.nodes[length]):
        length -= 1
    return chain.first(length)


def _shared_entities(groups: Sequence[Sequence[GroundedPath]]) -> set[EntityId]:
    """Return the entities that a chain of every group passes; none for a single group."""
    if len(groups) < 2:
        return set()
    return set.intersection(*({node for chain in group for node in _entities(chain)} for group in groups))


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
