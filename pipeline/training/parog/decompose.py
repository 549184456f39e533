"""Decomposes a query into operations from its constants to its answer (specification §7.3, steps 2 to 4)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from pipeline.datasets.gold_paths import Pattern, Term, Variable
from pipeline.methods.parog.plan import Keep, Operator
from pipeline.training.parog.query import ParsedQuery, Rejected, ValueCondition
from pipeline.types import EntityId, LiteralNode, Relation, RelationPath

PlanType: TypeAlias = Literal["conjunction", "composition", "linear", "superlative", "comparative"]
PLAN_TYPES: tuple[PlanType, ...] = get_args(PlanType)


@dataclass(frozen=True, slots=True)
class Atom:
    """One operation of a decomposition. Its number is its position, counted from 1."""

    op: Operator
    uses: tuple[int, ...] = ()
    start: EntityId | None = None
    """The constant of the query that a lookup starts from."""
    path: RelationPath = ()
    """The relations to follow, over mediators if there are several. Empty for a set operation."""
    about: str | None = None
    """The class of the nodes that it leads to, such as `film.film`; None if the query names none."""
    value: LiteralNode | None = None
    """The value that the path of a filter must lead to."""
    keep: Keep | None = None
    bound: str | None = None

    @property
    def is_value(self) -> bool:
        """Whether this looks up the values for a comparative or a superlative."""
        return self.op == "composition" and self.keep is not None


def plan_type(atoms: Sequence[Atom]) -> PlanType:
    """Return the type of a training pair: the first that applies (step 4). A filter makes it a conjunction."""
    ops = {atom.op for atom in atoms if not atom.is_value}
    if "superlative" in ops:
        return "superlative"
    if "comparative" in ops:
        return "comparative"
    if ops & {"conjunction", "filter"}:
        return "conjunction"
    return "composition" if "composition" in ops else "linear"


def decompose(query: ParsedQuery, mediators: Collection[Variable]) -> tuple[Atom, ...]:
    """Return the operations of a query, each after those that it uses. The last one answers the query.

    A mediator with several conditions is passed once per condition, and a conjunction follows at its other side: a plan
    cannot name a mediator. Raises Rejected for patterns that are not a tree over the answer.
    """
    tree = _QueryTree(query, mediators)
    last = tree.atoms_of(query.answer)
    if last is None:
        raise Rejected("no constant to start from")
    if len(tree.used) < len(query.patterns):
        raise Rejected("patterns that are not connected")
    if tree.conditions:
        raise Rejected("a comparison of something that is not a value of the answers")
    if query.counts:
        tree.atoms.append(Atom("count", uses=(last,)))
    return tuple(tree.atoms)


def possible_mediators(query: ParsedQuery) -> list[Variable]:
    """Return the variables of several patterns that are neither the answer nor compared values."""
    compared = {condition.variable for condition in query.conditions}
    ends = [term for pattern in query.patterns for term in (pattern.subject, pattern.object)]
    shared = dict.fromkeys(term for term in ends if isinstance(term, Variable) and ends.count(term) > 1)
    return [term for term in shared if term != query.answer and term not in compared]


@dataclass(frozen=True, slots=True)
class _Branch:
    """A relation path, over mediators, from a variable to a constant or to another variable."""

    path: RelationPath
    """From the variable to the end."""
    end: Term

    @property
    def back(self) -> RelationPath:
        """The path from the end to the variable."""
        opposite: Mapping[str, Literal["out", "in"]] = {"out": "in", "in": "out"}
        return tuple(Relation(relation.name, opposite[relation.direction]) for relation in reversed(self.path))


class _QueryTree:
    """The patterns of a query as a tree over the answer, and the operations made from it so far."""

    def __init__(self, query: ParsedQuery, mediators: Collection[Variable]) -> None:
        self.atoms: list[Atom] = []
        self.used: set[Pattern] = set()
        self.conditions = list(query.conditions)
        """The conditions on values that have no operation yet."""
        self._query = query
        self._mediators = mediators
        self._seen: set[Variable] = {query.answer}

    def atoms_of(self, variable: Variable) -> int | None:
        """Append the operations that lead to a variable. Return the number of the last; None if there are none."""
        branches = self._branches(variable)
        by_variable = {condition.variable: condition for condition in self.conditions}
        compared = [branch for branch in branches if branch.end in by_variable]
        filters = [branch for branch in branches if isinstance(branch.end, LiteralNode)]
        others = [branch for branch in branches if branch not in compared and branch not in filters]
        found = [last for branch in others if (last := self._follow(branch, variable)) is not None]
        if len(found) < len(others) or not found:
            if found or filters or compared:
                raise Rejected("a condition that only requires something to exist")
            return None
        current = self._add(Atom("conjunction", uses=tuple(dict.fromkeys(found)))) if len(set(found)) > 1 else found[0]
        for branch in filters:
            assert isinstance(branch.end, LiteralNode)
            current = self._add(Atom("filter", uses=(current,), path=branch.path, value=branch.end))
        conditions = [(by_variable[branch.end], branch) for branch in compared if isinstance(branch.end, Variable)]
        for condition, branch in sorted(conditions, key=lambda pair: pair[0].bound is None):  # superlatives last
            current = self._select(current, condition, branch)
        return current

    def _follow(self, branch: _Branch, variable: Variable) -> int | None:
        """Append the operations that lead over a branch to its variable. Return the number of the last, or None."""
        about = self._query.classes.get(variable)
        if isinstance(branch.end, str):
            return self._add(Atom("lookup", start=branch.end, path=branch.back, about=about))
        assert isinstance(branch.end, Variable)
        source = self.atoms_of(branch.end)
        return None if source is None else self._add(Atom("composition", (source,), path=branch.back, about=about))

    def _select(self, entities: int, condition: ValueCondition, branch: _Branch) -> int:
        """Append the lookup of the values of `entities`, and the selection by them. Return its number."""
        self.conditions = [one for one in self.conditions if one is not condition]
        values = self._add(Atom("composition", (entities,), path=branch.path, keep=condition.keep))
        op: Operator = "superlative" if condition.bound is None else "comparative"
        return self._add(Atom(op, (entities, values), keep=condition.keep, bound=condition.bound))

    def _add(self, atom: Atom) -> int:
        """Append an operation unless there is an equal one. Return its number."""
        if atom not in self.atoms:
            self.atoms.append(atom)
        return self.atoms.index(atom) + 1

    def _branches(self, here: Variable) -> list[_Branch]:
        """Return the branches of a variable over patterns that are not used yet. Raises Rejected for a cycle."""
        branches: list[_Branch] = []
        for relation, there in self._steps(here):
            if not isinstance(there, Variable):
                branches.append(_Branch((relation,), there))
                continue
            if there in self._seen:
                raise Rejected("patterns that form a cycle")
            self._seen.add(there)
            if there in self._mediators:
                beyond = self._branches(there)
                if not beyond:
                    raise Rejected("a condition that only requires something to exist")
                branches += [_Branch((relation, *branch.path), branch.end) for branch in beyond]
            else:
                branches.append(_Branch((relation,), there))
        return branches

    def _steps(self, here: Variable) -> list[tuple[Relation, Term]]:
        steps: list[tuple[Relation, Term]] = []
        for pattern in self._query.patterns:
            if pattern in self.used or here not in (pattern.subject, pattern.object):
                continue
            self.used.add(pattern)
            outwards = pattern.subject == here
            steps.append((Relation(pattern.relation, "out" if outwards else "in"), pattern[2 if outwards else 0]))
        return steps
