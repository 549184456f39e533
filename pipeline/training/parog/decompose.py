"""Decomposes a query into operations from its constants to its answer (specification §7.3, steps 2 to 4)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
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
    """The value that the path of a filter must lead to; None for a filter with a bound."""
    keep: Keep | None = None
    bound: str | None = None
    """`#3` for the answer of operation 3."""

    @property
    def is_value(self) -> bool:
        """Whether this looks up the values for a comparative or a superlative."""
        return self.op == "composition" and self.keep is not None


def plan_type(atoms: Sequence[Atom]) -> PlanType:
    """Return the type of a training pair: the first that applies (step 4). Filters and unions make it a conjunction."""
    ops = {atom.op for atom in atoms if not atom.is_value}
    if "superlative" in ops:
        return "superlative"
    if "comparative" in ops:
        return "comparative"
    if ops & {"conjunction", "filter", "union"}:
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
    if len(tree.used) < len(query.patterns) or tree.unions:
        raise Rejected("patterns that are not connected")
    if tree.conditions:
        raise Rejected("a comparison of something that is not a value of the answers")
    if query.counts:
        tree.atoms.append(Atom("count", uses=(last,)))
    return tuple(tree.atoms)


def possible_mediators(query: ParsedQuery) -> list[Variable]:
    """Return the variables of several patterns that are neither the answer nor compared values."""
    compared = {condition.variable for condition in query.conditions}
    ends = [term for pattern in query.all_patterns for term in (pattern.subject, pattern.object)]
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
        return tuple(relation.reversed for relation in reversed(self.path))


class _QueryTree:
    """The patterns of a query as a tree over the answer, and the operations made from it so far."""

    def __init__(self, query: ParsedQuery, mediators: Collection[Variable]) -> None:
        self.atoms: list[Atom] = []
        self.used: set[Pattern] = set()
        self.conditions = list(query.conditions)
        """The conditions on values that have no operation yet."""
        self.unions = list(query.unions)
        """The unions that have no operation yet."""
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
        unions = self._follow_unions(variable)
        if len(found) < len(others) or not (found or unions):
            if found or unions or filters or compared:
                raise Rejected("a condition that only requires something to exist")
            return None
        found += unions
        current = self._add(Atom("conjunction", uses=tuple(dict.fromkeys(found)))) if len(set(found)) > 1 else found[0]
        for branch in filters:
            assert isinstance(branch.end, LiteralNode)
            current = self._add(Atom("filter", uses=(current,), path=branch.path, value=branch.end))
        conditions = [(by_variable[branch.end], branch) for branch in compared if isinstance(branch.end, Variable)]
        for condition, branch in sorted(conditions, key=lambda pair: pair[0].is_extreme):  # superlatives last
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

    def _follow_unions(self, variable: Variable) -> list[int]:
        """Append the operations of the unions whose alternatives all lead to a variable. Return their numbers."""
        here = [union for union in self.unions if all(_has(variable, branch) for branch in union)]
        self.unions = [union for union in self.unions if union not in here]
        return [
            self._add(Atom("union", uses=tuple(self._follow_alternative(branch, variable) for branch in union)))
            for union in here
        ]

    def _follow_alternative(self, patterns: tuple[Pattern, ...], variable: Variable) -> int:
        query = replace(self._query, answer=variable, patterns=patterns, unions=(), conditions=())
        tree = _QueryTree(query, self._mediators)
        tree.atoms = self.atoms
        last = tree.atoms_of(variable)
        if last is None or len(tree.used) < len(patterns):
            raise Rejected("a UNION whose alternatives do not start from a constant")
        return last

    def _select(self, entities: int, condition: ValueCondition, branch: _Branch) -> int:
        """Append the lookup of the values of `entities`, and the selection by them. Return its number."""
        self.conditions = [one for one in self.conditions if one is not condition]
        keep, bound = condition.keep, condition.bound
        if condition.is_filter:
            return self._add(Atom("filter", (entities,), path=branch.path, keep=keep, bound=bound))
        values = self._add(Atom("composition", (entities,), path=branch.path, keep=keep))
        if condition.bound_of is not None:
            looked_up = self._add(_lookup(condition.bound_of))
            return self._add(Atom("comparative", (entities, values, looked_up), keep=keep, bound=f"#{looked_up}"))
        op: Operator = "superlative" if condition.is_extreme else "comparative"
        return self._add(Atom(op, (entities, values), keep=keep, bound=bound))

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


def _has(variable: Variable, patterns: tuple[Pattern, ...]) -> bool:
    return any(variable in (pattern.subject, pattern.object) for pattern in patterns)


def _lookup(pattern: Pattern) -> Atom:
    """Return the operation from the constant of a pattern to its variable."""
    if isinstance(pattern.subject, str):
        return Atom("lookup", start=pattern.subject, path=(Relation(pattern.relation, "out"),))
    assert isinstance(pattern.object, str), "one end of the pattern is an entity"
    return Atom("lookup", start=pattern.object, path=(Relation(pattern.relation, "in"),))
