"""What a gold query asks, without its boilerplate: patterns, comparisons, an order, a count (methods.md §7.3, step 1).

Language filters, `?x != …` guards and classes are dropped. Whatever else a plan has no operation for is refused by
name: a plan that leaves it out would answer another question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import rdflib

from pipeline.datasets.gold_paths import CLASS_RELATIONS, Pattern, Variable, algebra, relation_name, term_of
from pipeline.errors import ParseError
from pipeline.methods.parog.plan import Keep

_KEEPS: Mapping[str, Keep] = {">": "above", ">=": "at least", "<": "below", "<=": "at most"}
_ABOUT_LANGUAGE = frozenset({"Builtin_isLITERAL", "Builtin_LANG", "Builtin_LANGMATCHES"})
_TRANSPARENT = frozenset({"SelectQuery", "Project", "Distinct", "Reduced", "ToMultiSet", "Group"})
"""Operators that bind nothing of their own."""
_KEYWORDS = {
    "Union": "UNION",
    "LeftJoin": "OPTIONAL",
    "Graph": "GRAPH",
    "Minus": "MINUS",
    "ServiceGraphPattern": "SERVICE",
}
_EXTREMES: Mapping[str, Keep] = {"Aggregate_Max": "highest", "Aggregate_Min": "lowest"}


class Inexpressible(Exception):
    """A query that no plan expresses; the message names the reason in a few words that many queries share."""


@dataclass(frozen=True, slots=True)
class Pick:
    """Keeping what has a value above or below a bound, or the extreme one."""

    variable: Variable
    """Bound to the values."""
    keep: Keep
    bound: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a query asks."""

    answer: Variable
    patterns: tuple[Pattern, ...]
    """In a fixed order, not the query's; constants stand in for the variables that are bound to them."""
    classes: Mapping[Variable, str] = field(default_factory=dict)
    """The class that each variable is restricted to, such as `film.film`, where the query names one in words."""
    picks: tuple[Pick, ...] = ()
    counts: bool = False
    guarded: frozenset[Variable] = frozenset()
    """The variables that a `!=` tells apart from others."""


def read_query(sparql: str) -> Asked:
    """Read a gold query. Raises Inexpressible for one that cannot be parsed, or holds what no plan expresses."""
    try:
        query = algebra(sparql)
    except (ParseError, RecursionError):
        raise Inexpressible("the query cannot be parsed") from None
    reader = _Reader()
    reader.read(query)
    return reader.asked(query.PV[0])


class _Reader:
    """Collects what the operators of a query say."""

    def __init__(self) -> None:
        self._triples: list[tuple[Any, Any, Any]] = []
        self._values: dict[Any, list[Any]] = {}
        self._aliases: dict[Any, Any] = {}
        self._picks: list[Pick] = []
        self._equal: dict[Any, Any] = {}
        self._guarded: set[Variable] = set()
        self._counted: dict[Any, Any] = {}
        """What a number is bound to → what it is the number of."""
        self._is_limited = False
        """Whether only the first solution of what is read next counts."""

    def asked(self, selected: Any) -> Asked:
        """All of it, once read."""
        computed = self._aliases.get(selected, selected)
        if self._counted.keys() - {computed}:
            raise Inexpressible("a COUNT that is not the answer")
        answer = term_of(self._counted.get(computed, computed))
        patterns = list(dict.fromkeys(self._patterns()))
        if not isinstance(answer, Variable):
            raise Inexpressible("the query computes its answer")
        boilerplate = [one for one in patterns if _is_of_class(one)]
        return Asked(
            answer=answer,
            patterns=tuple(one for one in patterns if one not in boilerplate),
            classes=_classes(boilerplate),
            picks=tuple(dict.fromkeys(self._picks)),
            counts=bool(self._counted),
            guarded=frozenset(self._guarded),
        )

    def read(self, operator: Any) -> None:
        """Take in an operator and those below it. Raises Inexpressible for one that no plan expresses."""
        if operator.name in _TRANSPARENT:
            self.read(operator.p)
        elif operator.name in self._HANDLERS:
            self._HANDLERS[operator.name](self, operator)
        else:
            raise Inexpressible(f"{_KEYWORDS.get(operator.name, operator.name)} in the query")

    def _read_patterns(self, operator: Any) -> None:
        self._triples += operator.triples

    def _read_values(self, operator: Any) -> None:
        for row in operator.res:
            for variable, value in row.items():
                self._values.setdefault(variable, []).append(value)

    def _read_join(self, operator: Any) -> None:
        self._is_limited = False
        self.read(operator.p1)
        self.read(operator.p2)

    def _read_slice(self, operator: Any) -> None:
        if operator.start or operator.length != 1:
            raise Inexpressible("a LIMIT other than the first")
        self._is_limited = True
        self.read(operator.p)
        if all(pick.bound is not None for pick in self._picks):
            raise Inexpressible("a LIMIT without an ORDER BY")

    def _read_order(self, operator: Any) -> None:
        """An order with its limit picks; without one it changes no set of answers."""
        if self._is_limited:
            if len(operator.expr) > 1:
                raise Inexpressible("an ORDER BY of several values")
            keep: Keep = "highest" if operator.expr[0].order == "DESC" else "lowest"
            self._picks.append(Pick(_value(operator.expr[0].expr), keep))
        self.read(operator.p)

    def _read_filter(self, operator: Any) -> None:
        self._filter(operator.expr)
        self.read(operator.p)

    def _read_alias(self, operator: Any) -> None:
        """A name for a variable; or, as GrailQA writes it, for the extreme that a sub-query finds again."""
        below = operator.p
        extremes = [one for one in below.A if one.res == operator.expr] if below.name == "AggregateJoin" else []
        if extremes and extremes[0].name in _EXTREMES:
            self._picks.append(Pick(Variable(str(operator.var)), _EXTREMES[extremes[0].name]))
            return
        self._aliases[operator.var] = operator.expr
        self.read(below)

    def _read_aggregate(self, operator: Any) -> None:
        counted = [one for one in operator.A if one.name == "Aggregate_Count"]
        others = [one for one in operator.A if one.name not in ("Aggregate_Count", "Aggregate_Sample")]
        if len(counted) != 1 or others or not isinstance(counted[0].vars, rdflib.Variable):
            raise Inexpressible("an aggregate other than one count")
        if operator.p.expr:
            raise Inexpressible("GROUP BY in the query")
        self._counted[counted[0].res] = counted[0].vars
        self.read(operator.p)

    _HANDLERS: ClassVar[Mapping[str, Callable[[_Reader, Any], None]]] = {
        "BGP": _read_patterns,
        "values": _read_values,
        "Join": _read_join,
        "Slice": _read_slice,
        "OrderBy": _read_order,
        "Filter": _read_filter,
        "Extend": _read_alias,
        "AggregateJoin": _read_aggregate,
    }

    def _patterns(self) -> Iterator[Pattern]:
        for head, predicate, tail in self._triples:
            relation = relation_name(predicate)
            if relation is None:
                raise Inexpressible("a relation that is a variable, or another graph's")
            for subject in self._constants(head):
                for object in self._constants(tail):
                    yield Pattern(term_of(subject), relation, term_of(object))

    def _constants(self, term: Any) -> list[Any]:
        if len(values := self._values.get(term, [term])) > 1:
            raise Inexpressible("VALUES with a choice")
        return [self._equal.get(value, value) for value in values]

    def _filter(self, expression: Any) -> None:
        match getattr(expression, "name", None):
            case "ConditionalAndExpression":
                for part in (expression.expr, *expression.other):
                    self._filter(part)
            case "RelationalExpression" if expression.op == "!=":
                self._guarded.update(_variables(expression.expr), _variables(expression.other))
            case "RelationalExpression" if expression.op in _KEEPS:
                self._compare(expression)
            case "RelationalExpression" if expression.op == "=" and isinstance(expression.other, rdflib.Literal):
                self._equate(expression)
            case _ if not _is_about_language(expression):
                raise Inexpressible(f"a FILTER with {_named(expression)}")

    def _compare(self, expression: Any) -> None:
        if not isinstance(expression.other, rdflib.Literal):
            raise Inexpressible("a FILTER that compares two variables")
        self._picks.append(Pick(_value(expression.expr), _KEEPS[expression.op], str(expression.other)))

    def _equate(self, expression: Any) -> None:
        value = expression.expr
        if getattr(value, "name", None) == "Builtin_LANG":
            return
        if getattr(value, "name", None) == "Builtin_STR":
            value = value.arg
        if not isinstance(value, rdflib.Variable):
            raise Inexpressible(f"a FILTER with {_named(value)}")
        self._equal[value] = expression.other


def _value(expression: Any) -> Variable:
    """The variable that is compared, cast or not. Raises Inexpressible for anything else."""
    if getattr(expression, "name", None) == "Function" and str(expression.iri).startswith(str(rdflib.XSD)):
        (expression,) = expression.expr
    if not isinstance(expression, rdflib.Variable):
        raise Inexpressible(f"a comparison with {_named(expression)}")
    return Variable(str(expression))


def _is_about_language(expression: Any) -> bool:
    builtins = {name for name in _names(expression) if name.startswith(("Builtin_", "Function"))}
    return bool(builtins) and builtins <= _ABOUT_LANGUAGE


def _named(expression: Any) -> str:
    """What an expression is called in SPARQL: its function, or the kind of expression that it is."""
    calls = [name.removeprefix("Builtin_").upper() for name in _names(expression) if name.startswith("Builtin_")]
    if calls:
        return calls[0]
    name = getattr(expression, "name", "a constant")
    return f"the function {expression.iri}" if name == "Function" else str(name)


def _names(expression: Any) -> list[str]:
    return [node.name for node in _nodes(expression)]


def _nodes(expression: Any) -> Iterator[Any]:
    """The parts of an expression that have a name, from the outside in."""
    if hasattr(expression, "name") and hasattr(expression, "values"):
        yield expression
        for value in expression.values():
            yield from _nodes(value)
    elif isinstance(expression, list):
        for item in expression:
            yield from _nodes(item)


def _variables(expression: Any) -> Iterator[Variable]:
    if isinstance(expression, rdflib.Variable):
        yield Variable(str(expression))


def _is_of_class(pattern: Pattern) -> bool:
    """Whether a pattern restricts a variable to a class that the query names."""
    return pattern.relation in CLASS_RELATIONS and not isinstance(pattern.object, Variable)


def _classes(patterns: list[Pattern]) -> dict[Variable, str]:
    """The classes named in words, as `film.film` is: CWQ names them by id."""
    named = ((one.subject, one.object) for one in patterns if isinstance(one.object, str))
    return {
        variable: name
        for variable, name in named
        if isinstance(variable, Variable) and not name.startswith(("m.", "g."))
    }
