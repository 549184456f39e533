"""The search from one topic entity: its rounds of retrieving, judging and editing, and what they found (§3.4, §3.9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pipeline.methods.grounded_path import GroundedPath, Path
from pipeline.methods.rendering import Names
from pipeline.methods.srp.evidence import Evidence, all_chains, longest_chains, without_beginnings
from pipeline.methods.srp.instantiation import Instantiation
from pipeline.methods.srp.judge import Verdict
from pipeline.types import Entity, Node


@dataclass
class EditBudget:
    """Counts the edits of one topic entity, or of several that share a budget."""

    limit: int
    discard_from: int | None = None
    """Readi's budget (§3.8): this edit ends the search, and its path is discarded. At `limit`, no search starts."""
    spent: int = 0

    @property
    def may_search(self) -> bool:
        """Whether the search from another topic entity may start."""
        return self.discard_from is None or self.may_edit

    @property
    def may_edit(self) -> bool:
        return self.spent < self.limit

    def spend(self) -> bool:
        """Count one edit. Return whether its path may be retrieved."""
        self.spent += 1
        return self.discard_from is None or self.spent < self.discard_from


@dataclass
class Round:
    """The paths that were retrieved and judged together: the initial ones, or one edited path."""

    found: Sequence[Instantiation]
    """The instances of each path, at least one."""
    shown: tuple[GroundedPath, ...] = ()
    """The sequences to judge."""
    verdict: Verdict = field(default_factory=lambda: Verdict(have=False))

    @property
    def names(self) -> Names:
        """The names of all entities in the instances."""
        return {id: name for found in self.found for id, name in found.names.items()}

    @property
    def ends(self) -> list[Node]:
        """The nodes that were reached."""
        return [chain.end for found in self.found for chain in all_chains(found)]

    @property
    def to_edit(self) -> Instantiation:
        """The path of which the judge kept most; of equal ones the first."""
        return max(self.found, key=self._kept)

    def _kept(self, instances: Instantiation) -> int:
        pruned = self.verdict.pruned
        chains = (*instances.complete, *instances.partial)
        return max((pruned[chain].length for chain in chains if chain in pruned), default=0)


@dataclass
class EntitySearch:
    """What was tried from one topic entity."""

    entity: Entity
    rounds: list[Round] = field(default_factory=list)
    exhausted: bool = False
    """Whether a limit ended the search."""

    @property
    def tried(self) -> list[Path]:
        """The paths of all rounds, in order."""
        return [instances.path for each in self.rounds for instances in each.found]

    def evidence(self, *, pruned: bool) -> Evidence:
        """Return the evidence of the search. With `pruned`, prefer what the judge kept to what was retrieved (§3.9)."""
        have = bool(self.rounds) and self.rounds[-1].verdict.have
        chains = self._supporting(pruned=pruned) if have else self._unsatisfying(pruned=pruned)
        names = {id: name for each in self.rounds for id, name in each.names.items()}
        return Evidence(tuple(chains), names, self.exhausted)

    def _supporting(self, *, pruned: bool) -> tuple[GroundedPath, ...]:
        """Return what the judge kept of the last round, where it has the answer, then what it kept before."""
        *earlier, last = self.rounds
        if not pruned:
            return tuple(dict.fromkeys(chain for found in last.found for chain in all_chains(found)))
        return without_beginnings((*(last.verdict.retained or last.shown), *_kept(earlier)))

    def _unsatisfying(self, *, pruned: bool) -> tuple[GroundedPath, ...]:
        """Return what the judge kept, then the longest instances of all rounds, or without `pruned` of the last one."""
        rounds = self.rounds[::-1] if pruned else self.rounds[-1:]
        longest = (chain for each in rounds for found in each.found for chain in longest_chains(found))
        return without_beginnings((*_kept(self.rounds), *longest))


def _kept(rounds: list[Round]) -> Iterator[GroundedPath]:
    """Yield what the judge kept, the last round first."""
    return (chain for each in reversed(rounds) for chain in each.verdict.retained)
