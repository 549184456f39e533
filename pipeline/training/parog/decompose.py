"""What a query asks, taken apart into operations from its constants to its answer (methods.md §7.3, steps 2 to 4)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from pipeline.datasets.gold_paths import Pattern, Term, Variable
from pipeline.kg.paths import RelationPath
from pipeline.methods.parog.plan import Keep, Operator
from pipeline.training.parog.query import Asked, Inexpressible, Pick
from pipeline.types import EntityId, LiteralNode, Relation

PlanType: TypeAlias = Literal["conjunction", "composition", "linear", "superlative", "comparative"]
PLAN_TYPES: tuple[PlanType, ...] = get_args(PlanType)


@dataclass(frozen=True, slots=True)
class Atom:
    """One operation; its number is its place in the decomposition, from 1 on."""

    op: Operator
    uses: tuple[int, ...] = ()
    start: EntityId | None = None
    """The constant of the query that a lookup sets out from."""
    path: RelationPath = ()
    """What is followed; more than one relation goes through mediators. Empty for a set operation."""
    about: str | None = None
    """The class of what it leads to, such as `film.film`; None where the query does not say."""
    value: LiteralNode | None = None
    """What a filter wants the path to lead to."""
    keep: Keep | None = None
    bound: str | None = None

    @property
    def is_value(self) -> bool:
        """Whether this looks up what a comparative or a superlative picks by."""
        return self.op == "composition" and self.keep is not None


def plan_type(atoms: Sequence[Atom]) -> PlanType:
    """The type of a sample: the first that occurs (step 4). A filter is a second condition, and so a conjunction."""
    ops = {atom.op for atom in atoms if not atom.is_value}
    if "superlative" in ops:
        return "superlative"
    if "comparative" in ops:
        return "comparative"
    if ops & {"conjunction", "filter"}:
        return "conjunction"
    return "composition" if "composition" in ops else "linear"


def decompose(asked: Asked, mediators: Collection[Variable]) -> tuple[Atom, ...]:
    """The operations of a query, each after those that it uses; the last one answers it.

    A mediator on which several conditions lie is gone through once for each of them, and they meet at its other side: a
    plan has no name for it. Raises Inexpressible for patterns that are no tree over the answer.
    """
    tree = _Tree(asked, mediators)
    last = tree.atoms_of(asked.answer)
    if last is None:
        raise Inexpressible("no constant to set out from")
    if len(tree.used) < len(asked.patterns):
        raise Inexpressible("patterns that do not hang together")
    if tree.picks:
        raise Inexpressible("a comparison of what is no value of the answers")
    if asked.counts:
        tree.atoms.append(Atom("count", uses=(last,)))
    return tuple(tree.atoms)


def joints(asked: Asked) -> list[Variable]:
    """The variables where several patterns meet, but for the answer: those that may be mediators."""
    compared = {pick.variable for pick in asked.picks}
    ends = [term for pattern in asked.patterns for term in (pattern.subject, pattern.object)]
    met = dict.fromkeys(term for term in ends if isinstance(term, Variable) and ends.count(term) > 1)
    return [term for term in met if term != asked.answer and term not in compared]


@dataclass(frozen=True, slots=True)
class _Branch:
    """A way out of a variable: over mediators to a constant, or to another variable."""

    path: RelationPath
    """From the variable outwards."""
    end: Term

    @property
    def back(self) -> RelationPath:
        """From its end to the variable."""
        turned: Mapping[str, Literal["out", "in"]] = {"out": "in", "in": "out"}
        return tuple(Relation(relation.name, turned[relation.direction]) for relation in reversed(self.path))


class _Tree:
    """The patterns as a tree over the answer, and the operations that have been read off it."""

    def __init__(self, asked: Asked, mediators: Collection[Variable]) -> None:
        self.atoms: list[Atom] = []
        self.used: set[Pattern] = set()
        self.picks = list(asked.picks)
        """Those without an operation so far."""
        self._asked = asked
        self._mediators = mediators
        self._seen: set[Variable] = {asked.answer}

    def atoms_of(self, variable: Variable) -> int | None:
        """Append the operations that lead to a variable; the number of the last, None where no constant leads there."""
        branches = self._branches(variable)
        by_variable = {pick.variable: pick for pick in self.picks}
        compared = [branch for branch in branches if branch.end in by_variable]
        wanted = [branch for branch in branches if isinstance(branch.end, LiteralNode)]
        others = [branch for branch in branches if branch not in compared and branch not in wanted]
        found = [last for branch in others if (last := self._along(branch, variable)) is not None]
        if len(found) < len(others) or not found:
            if found or wanted or compared:
                raise Inexpressible("a condition that nothing but its existence is said of")
            return None
        current = self._add(Atom("conjunction", uses=tuple(dict.fromkeys(found)))) if len(set(found)) > 1 else found[0]
        for branch in wanted:
            assert isinstance(branch.end, LiteralNode)
            current = self._add(Atom("filter", uses=(current,), path=branch.path, value=branch.end))
        picks = [(by_variable[branch.end], branch) for branch in compared if isinstance(branch.end, Variable)]
        for pick, branch in sorted(picks, key=lambda pair: pair[0].bound is None):  # what is picked by an order, last
            current = self._pick(current, pick, branch)
        return current

    def _along(self, branch: _Branch, variable: Variable) -> int | None:
        """Append the operations that lead over a branch to its variable."""
        about = self._asked.classes.get(variable)
        if isinstance(branch.end, str):
            return self._add(Atom("lookup", start=branch.end, path=branch.back, about=about))
        assert isinstance(branch.end, Variable)
        source = self.atoms_of(branch.end)
        return None if source is None else self._add(Atom("composition", (source,), path=branch.back, about=about))

    def _pick(self, things: int, pick: Pick, branch: _Branch) -> int:
        self.picks = [one for one in self.picks if one is not pick]
        values = self._add(Atom("composition", (things,), path=branch.path, keep=pick.keep))
        op: Operator = "superlative" if pick.bound is None else "comparative"
        return self._add(Atom(op, (things, values), keep=pick.keep, bound=pick.bound))

    def _add(self, atom: Atom) -> int:
        """Append an operation, or find the same one; its number."""
        if atom not in self.atoms:
            self.atoms.append(atom)
        return self.atoms.index(atom) + 1

    def _branches(self, here: Variable) -> list[_Branch]:
        """The ways out of a variable over patterns that no other way has used. Raises Inexpressible for a cycle."""
        branches: list[_Branch] = []
        for relation, there in self._steps(here):
            if not isinstance(there, Variable):
                branches.append(_Branch((relation,), there))
                continue
            if there in self._seen:
                raise Inexpressible("patterns that form a cycle")
            self._seen.add(there)
            if there in self._mediators:
                beyond = self._branches(there)
                if not beyond:
                    raise Inexpressible("a condition that nothing but its existence is said of")
                branches += [_Branch((relation, *branch.path), branch.end) for branch in beyond]
            else:
                branches.append(_Branch((relation,), there))
        return branches

    def _steps(self, here: Variable) -> list[tuple[Relation, Term]]:
        steps: list[tuple[Relation, Term]] = []
        for pattern in self._asked.patterns:
            if pattern in self.used or here not in (pattern.subject, pattern.object):
                continue
            self.used.add(pattern)
            outwards = pattern.subject == here
            steps.append((Relation(pattern.relation, "out" if outwards else "in"), pattern[2 if outwards else 0]))
        return steps
