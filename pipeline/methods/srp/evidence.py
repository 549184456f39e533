"""Which instances are shown to whom, and what is left of them as evidence (methods.md §3.7–3.9)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.methods.instance import Instance, Path
from pipeline.methods.rendering import Names
from pipeline.methods.srp.instantiation import Instantiation
from pipeline.types import EntityId

ENDS_UNNAMED = "<cvt></cvt> in the end"
EMPTY_PATH = "empty initial path"
NOT_INSTANTIATED = "relation {} not instantiated"

_MANY = 50
"""Chains of several topic entities without a common node above which each entity is cut to its share."""
_SHARE = 30


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the exploration of one or more topic entities has come to."""

    instances: tuple[Instance, ...] = ()
    names: Names = field(default_factory=dict)
    exhausted: bool = False
    """Whether a cap ended the exploration, or cut its evidence."""


def structural_findings(found: Instantiation) -> tuple[str, ...]:
    """What can be said of a path without reading its facts: findings (a) to (c) of §3.7."""
    longest = [instance for instance in (*found.complete, *found.partial) if instance.length == found.grounded > 0]
    findings = []
    if any(not found.is_named(instance.end) for instance in longest):
        findings.append(ENDS_UNNAMED)
    if not found.path:
        findings.append(EMPTY_PATH)
    if found.grounded < len(found.path):
        findings.append(NOT_INSTANTIATED.format(found.path[found.grounded]))
    return tuple(findings)


def sequences_to_judge(found: Instantiation, per_path: int | None = None) -> tuple[Instance, ...]:
    """Complete instances that end in a named entity or a literal, at most `per_path` of each relation path."""
    groups: dict[Path, list[Instance]] = {}
    for instance in found.complete:
        if found.is_named(instance.end):
            groups.setdefault(instance.path, []).append(instance)
    return tuple(instance for group in groups.values() for instance in group[:per_path])


def all_instances(found: Instantiation) -> tuple[Instance, ...]:
    """Everything that a path has grounded, partial chains included."""
    return tuple(instance for instance in (*found.complete, *found.partial) if instance.length)


def longest_instances(found: Instantiation) -> tuple[Instance, ...]:
    """The longest instances without the unnamed nodes at their ends, and without repeats (§3.9)."""
    trimmed = (_trim(instance, found) for instance in all_instances(found) if instance.length == found.grounded)
    return tuple(dict.fromkeys(instance for instance in trimmed if instance.length))


def candidate_relations(
    offered: Mapping[Path, Collection[str]], ranking: Sequence[str], per_prefix: int, total: int
) -> tuple[tuple[Path, tuple[str, ...]], ...]:
    """Of the relations behind each path the best by `ranking`; the first paths are served first (§3.8)."""
    candidates = []
    for path, names in offered.items():
        best = [name for name in ranking if name in names][: min(total, per_prefix)]
        total -= len(best)
        if best:
            candidates.append((path, tuple(best)))
    return tuple(candidates)


def merge(found: Sequence[Evidence], cap: int) -> Evidence:
    """One body of evidence from that of each topic entity, at most `cap` facts of it (§3.9, §2.5)."""
    groups = _select([list(evidence.instances) for evidence in found if evidence.instances])
    kept, cut = _cut(groups, cap)
    everything = join(found)
    return Evidence(
        tuple(instance for group in kept for instance in group), everything.names, everything.exhausted or cut
    )


def join(found: Iterable[Evidence]) -> Evidence:
    """All of it, without repeats."""
    parts = list(found)
    return Evidence(
        instances=tuple(dict.fromkeys(instance for evidence in parts for instance in evidence.instances)),
        names={id: name for evidence in parts for id, name in evidence.names.items()},
        exhausted=any(evidence.exhausted for evidence in parts),
    )


def _trim(instance: Instance, found: Instantiation) -> Instance:
    length = instance.length
    while length and not found.is_named(instance.nodes[length]):
        length -= 1
    return instance.first(length)


def _select(groups: list[list[Instance]]) -> list[list[Instance]]:
    """Keep what meets in an entity that all groups contain; without one, cut each group when there are many."""
    if len(groups) < 2:
        return groups
    shared = set.intersection(*({node for instance in group for node in _entities(instance)} for group in groups))
    if shared:
        return [[instance for instance in group if shared & _entities(instance)] for group in groups]
    if sum(map(len, groups)) > _MANY:
        return [group[:_SHARE] for group in groups]
    return groups


def _cut(groups: list[list[Instance]], cap: int) -> tuple[list[list[Instance]], bool]:
    """Take instances from the groups in turn until the next would pass `cap` facts; say whether any was left."""
    kept: list[list[Instance]] = [[] for _ in groups]
    left = cap
    for place in range(max(map(len, groups), default=0)):
        for group, taken in zip(groups, kept, strict=True):
            if place < len(group):
                left -= group[place].length
                if left < 0:
                    return kept, True
                taken.append(group[place])
    return kept, False


def _entities(instance: Instance) -> set[EntityId]:
    return {node for node in instance.nodes if isinstance(node, str)}
