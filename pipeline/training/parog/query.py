"""Reads a gold query: its patterns, comparisons, order and count, without boilerplate (specification §7.3, step 1).

Language filters, `?x != …` guards and classes are dropped. Any other part without an operation in plans rejects the
query, because a plan without that part would answer another question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import rdflib

from pipeline.datasets.gold_paths import Pattern, Variable, algebra, relation_name, term_of
from pipeline.datasets.query_types import is_of_class
from pipeline.errors import ParseError
from pipeline.methods.parog.plan import Keep

_KEEPS: Mapping[str, Keep] = {">": "above", ">=": "at least", "<": "below", "<=": "at most"}
_ABOUT_LANGUAGE = frozenset({"Builtin_isLITERAL", "Builtin_LANG", "Builtin_LANGMATCHES"})
_PASS_THROUGH = frozenset({"SelectQuery", "Project", "Distinct", "Reduced", "ToMultiSet", "Group"})
"""Operators without an effect on the set of answers."""
_KEYWORDS = {
    "LeftJoin": "OPTIONAL",
    "Graph": "GRAPH",
    "Minus": "MINUS",
    "ServiceGraphPattern": "SERVICE",
}
_OPPOSITE: Mapping[Keep, Keep] = {"above": "below", "at least": "at most", "below": "above", "at most": "at least"}
"""The condition on the other of two values."""
_EXTREMES: Mapping[str, Keep] = {"Aggregate_Max": "highest", "Aggregate_Min": "lowest"}


class Rejected(Exception):
    """A question that makes no training pair. The message is a short reason that many questions share."""


@dataclass(frozen=True, slots=True)
class ValueCondition:
    """A condition on a value: above or below a bound, or the extreme one."""

    variable: Variable
    """The variable of the values."""
    keep: Keep
    bound: str | None = None
    bound_of: Pattern | None = None
    """The pattern that leads from a constant to the bound, if the query looks the bound up."""
    is_filter: bool = False
    """Whether the query keeps nodes without a value, too: `NOT EXISTS {…} || EXISTS {… FILTER (…)}`."""

    @property
    def is_extreme(self) -> bool:
        """Whether the extreme value is wanted."""
        return self.bound is None and self.bound_of is None


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A query without boilerplate."""

    answer: Variable
    patterns: tuple[Pattern, ...]
    """In a fixed order, which need not be the query's. Variables bound to a constant are replaced by it."""
    classes: Mapping[Variable, str] = field(default_factory=dict)
    """The class that each variable is restricted to, such as `film.film`, if the query gives its name."""
    unions: tuple[tuple[tuple[Pattern, ...], ...], ...] = ()
    """The patterns of each alternative of each UNION."""
    conditions: tuple[ValueCondition, ...] = ()
    counts: bool = False
    guarded: frozenset[Variable] = frozenset()
    """The variables in a `!=` filter."""

    @property
    def all_patterns(self) -> tuple[Pattern, ...]:
        """The patterns, with those of unions."""
        return (*self.patterns, *(pattern for union in self.unions for branch in union for pattern in branch))


def read_query(sparql: str) -> ParsedQuery:
    """Read a gold query. Raises Rejected if it cannot be parsed, or has parts that plans cannot express."""
    try:
        query = algebra(sparql)
    except (ParseError, RecursionError):
        raise Rejected("the query cannot be parsed") from None
    reader = _Reader()
    reader.read(query)
    return reader.parsed_query(query.PV[0])


class _Reader:
    """Collects the parts of a query from its operators."""

    def __init__(self) -> None:
        self._triples: list[tuple[Any, Any, Any]] = []
        self._values: dict[Any, list[Any]] = {}
        self._aliases: dict[Any, Any] = {}
        self._unions: list[list[_Reader]] = []
        self._conditions: list[ValueCondition] = []
        self._compared: list[tuple[Variable, Keep, Variable]] = []
        """The comparisons of two variables."""
        self._equal: dict[Any, Any] = {}
        self._guarded: set[Variable] = set()
        self._counted: dict[Any, Any] = {}
        """The variables that are bound to a count → the variables that are counted."""
        self._is_limited = False
        """Whether a LIMIT 1 applies to the operator that is read next."""

    def parsed_query(self, selected: Any) -> ParsedQuery:
        """Return the parts that were read; `selected` is the variable of the SELECT clause."""
        computed = self._aliases.get(selected, selected)
        if self._counted.keys() - {computed}:
            raise Rejected("a COUNT that is not the answer")
        answer = term_of(self._counted.get(computed, computed))
        patterns = list(dict.fromkeys(self._patterns()))
        if not isinstance(answer, Variable):
            raise Rejected("the query computes its answer")
        boilerplate = [one for one in patterns if is_of_class(one)]
        conditions = [*self._conditions, *(_looked_up(*pair, patterns) for pair in self._compared)]
        bounds = {condition.bound_of for condition in conditions}
        return ParsedQuery(
            answer=answer,
            patterns=tuple(one for one in patterns if one not in boilerplate and one not in bounds),
            classes=_classes(boilerplate),
            unions=tuple(
                tuple(tuple(one for one in branch._patterns() if not is_of_class(one)) for branch in union)
                for union in self._unions
            ),
            conditions=tuple(dict.fromkeys(conditions)),
            counts=bool(self._counted),
            guarded=frozenset(self._guarded),
        )

    def read(self, operator: Any) -> None:
        """Read an operator and those below it. Raises Rejected for one that plans cannot express."""
        if operator.name in _PASS_THROUGH:
            self.read(operator.p)
        elif operator.name in self._HANDLERS:
            self._HANDLERS[operator.name](self, operator)
        else:
            raise Rejected(f"{_KEYWORDS.get(operator.name, operator.name)} in the query")

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

    def _read_union(self, operator: Any) -> None:
        self._is_limited = False
        branches: list[_Reader] = []
        for part in (operator.p1, operator.p2):
            branch = _Reader()
            branch.read(part)
            if branch._conditions or branch._compared or branch._counted:
                raise Rejected("a condition inside UNION")
            if branch._unions and (branch._triples or len(branch._unions) > 1):
                raise Rejected("UNION inside UNION")
            branches += branch._unions[0] if branch._unions else [branch]
            self._guarded |= branch._guarded
        self._unions.append(branches)

    def _read_slice(self, operator: Any) -> None:
        if operator.start or operator.length != 1:
            raise Rejected("a LIMIT other than the first")
        self._is_limited = True
        self.read(operator.p)
        if not any(condition.is_extreme for condition in self._conditions):
            raise Rejected("a LIMIT without an ORDER BY")

    def _read_order(self, operator: Any) -> None:
        """Read an order with a limit as a superlative. Without a limit it does not change the set of answers."""
        if self._is_limited:
            if len(operator.expr) > 1:
                raise Rejected("an ORDER BY of several values")
            keep: Keep = "highest" if operator.expr[0].order == "DESC" else "lowest"
            self._conditions.append(ValueCondition(_value(operator.expr[0].expr), keep))
        self.read(operator.p)

    def _read_filter(self, operator: Any) -> None:
        self._filter(operator.expr)
        self.read(operator.p)

    def _read_alias(self, operator: Any) -> None:
        """Read an alias of a variable. In GrailQA it may be an extreme value, whose sub-query repeats the patterns."""
        below = operator.p
        extremes = [one for one in below.A if one.res == operator.expr] if below.name == "AggregateJoin" else []
        if extremes and extremes[0].name in _EXTREMES:
            self._conditions.append(ValueCondition(Variable(str(operator.var)), _EXTREMES[extremes[0].name]))
            return
        self._aliases[operator.var] = operator.expr
        self.read(below)

    def _read_aggregate(self, operator: Any) -> None:
        counted = [one for one in operator.A if one.name == "Aggregate_Count"]
        others = [one for one in operator.A if one.name not in ("Aggregate_Count", "Aggregate_Sample")]
        if len(counted) != 1 or others or not isinstance(counted[0].vars, rdflib.Variable):
            raise Rejected("an aggregate other than one count")
        if operator.p.expr:
            raise Rejected("GROUP BY in the query")
        self._counted[counted[0].res] = counted[0].vars
        self.read(operator.p)

    _HANDLERS: ClassVar[Mapping[str, Callable[[_Reader, Any], None]]] = {
        "BGP": _read_patterns,
        "values": _read_values,
        "Join": _read_join,
        "Union": _read_union,
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
                raise Rejected("a relation that is a variable, or another graph's")
            for subject in self._constants(head):
                for object in self._constants(tail):
                    yield Pattern(term_of(subject), relation, term_of(object))

    def _constants(self, term: Any) -> list[Any]:
        if len(values := self._values.get(term, [term])) > 1:
            raise Rejected("VALUES with a choice")
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
            case "ConditionalOrExpression" if _is_if_it_exists(expression):
                self._require_if_it_exists(expression)
            case _ if not _is_about_language(expression):
                raise Rejected(f"a FILTER with {_description(expression)}")

    def _compare(self, expression: Any) -> None:
        keep = _KEEPS[expression.op]
        if isinstance(expression.other, rdflib.Literal):
            self._conditions.append(ValueCondition(_value(expression.expr), keep, str(expression.other)))
        else:
            self._compared.append((_value(expression.expr), keep, _value(expression.other)))

    def _require_if_it_exists(self, expression: Any) -> None:
        """Read `NOT EXISTS {s r ?a} || EXISTS {s r ?b …}`: its condition applies to values that exist."""
        absent, present = (_Reader() for _ in range(2))
        absent._read_group(expression.expr.graph)
        present._read_group(expression.other[0].graph)
        same = [triple[:2] for triple in absent._triples] == [triple[:2] for triple in present._triples]
        is_plain = len(present._triples) == 1 and not (absent._conditions or present._compared or present._equal)
        if not (same and is_plain and present._conditions):
            raise Rejected("a FILTER with NOTEXISTS")
        self._triples += present._triples
        self._conditions += [replace(condition, is_filter=True) for condition in present._conditions]

    def _read_group(self, group: Any) -> None:
        """Read the group of an EXISTS, which rdflib translates to operators only in some places."""
        if group.part is None:
            self.read(group)
            return
        for part in group.part:
            if part.name == "TriplesBlock":
                self._triples += [tuple(of[start : start + 3]) for of in part.triples for start in range(0, len(of), 3)]
            elif part.name == "Filter":
                self._filter(part.expr)
            else:
                raise Rejected("a FILTER with NOTEXISTS")

    def _equate(self, expression: Any) -> None:
        value = expression.expr
        if getattr(value, "name", None) == "Builtin_LANG":
            return
        if getattr(value, "name", None) == "Builtin_STR":
            value = value.arg
        if not isinstance(value, rdflib.Variable):
            raise Rejected(f"a FILTER with {_description(value)}")
        self._equal[value] = expression.other


def _looked_up(left: Variable, keep: Keep, right: Variable, patterns: Sequence[Pattern]) -> ValueCondition:
    """Return the condition on one of two variables by the other, which a pattern leads to from a constant.

    Raises Rejected if that is true of both or of neither.
    """
    origins = {variable: _origin(variable, patterns) for variable in (left, right)}
    if (origins[left] is None) == (origins[right] is None):
        raise Rejected("a FILTER that compares two values")
    if origins[right] is not None:
        return ValueCondition(left, keep, bound_of=origins[right])
    return ValueCondition(right, _OPPOSITE[keep], bound_of=origins[left])


def _origin(variable: Variable, patterns: Sequence[Pattern]) -> Pattern | None:
    """Return the only pattern of a variable if its other end is a constant."""
    around = [pattern for pattern in patterns if variable in (pattern.subject, pattern.object)]
    ends = [term for pattern in around for term in (pattern.subject, pattern.object) if isinstance(term, str)]
    return around[0] if len(around) == len(ends) == 1 else None


def _is_if_it_exists(expression: Any) -> bool:
    alternatives = [expression.expr, *expression.other]
    return [getattr(one, "name", None) for one in alternatives] == ["Builtin_NOTEXISTS", "Builtin_EXISTS"]


def _value(expression: Any) -> Variable:
    """Return the variable that is compared, with or without a cast. Raises Rejected for anything else."""
    if getattr(expression, "name", None) == "Function" and str(expression.iri).startswith(str(rdflib.XSD)):
        (expression,) = expression.expr
    if not isinstance(expression, rdflib.Variable):
        raise Rejected(f"a comparison with {_description(expression)}")
    return Variable(str(expression))


def _is_about_language(expression: Any) -> bool:
    builtins = {name for name in _names(expression) if name.startswith(("Builtin_", "Function"))}
    return bool(builtins) and builtins <= _ABOUT_LANGUAGE


def _description(expression: Any) -> str:
    """Return the name of an expression's first function, or of the kind of expression."""
    calls = [name.removeprefix("Builtin_").upper() for name in _names(expression) if name.startswith("Builtin_")]
    if calls:
        return calls[0]
    name = getattr(expression, "name", "a constant")
    return f"the function {expression.iri}" if name == "Function" else str(name)


def _names(expression: Any) -> list[str]:
    return [node.name for node in _nodes(expression)]


def _nodes(expression: Any) -> Iterator[Any]:
    """Yield the parts of an expression that have a name, outermost first."""
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


def _classes(patterns: list[Pattern]) -> dict[Variable, str]:
    """Return the classes with a name such as `film.film`. CWQ gives only their ids."""
    named = ((one.subject, one.object) for one in patterns if isinstance(one.object, str))
    return {
        variable: name
        for variable, name in named
        if isinstance(variable, Variable) and not name.startswith(("m.", "g."))
    }
