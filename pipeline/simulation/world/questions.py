"""Question types of the synthetic world: the wording, gold answers and gold SPARQL of each.

A form is a question with an open topic. The gold answers are those that the form's SPARQL returns on the whole graph.
They are computed from one region and the hubs, which hold everything that a route can reach.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, combinations_with_replacement
from random import Random
from typing import Literal, Protocol, TypeAlias, get_args

from pipeline.grouping import grouped
from pipeline.rdf_terms import XSD
from pipeline.simulation.world.facts import Facts, Index, Kind
from pipeline.simulation.world.language import Measure, phrase
from pipeline.simulation.world.phrases import MEASURES, PLURALS, STEPS
from pipeline.simulation.world.routes import Route, routes, sparql_path
from pipeline.types import EntityId, LiteralNode, Node

QuestionType: TypeAlias = Literal[
    "1-hop", "2-hop", "3-hop", "4-hop", "conjunction", "comparison", "superlative", "count"
]
QUESTION_TYPES: tuple[QuestionType, ...] = get_args(QuestionType)

MAX_ANSWERS = 30
MAX_MANY_ANSWERS = 150
"""The limit for one in ten questions."""
MAX_SHARED_ANSWERS = 8
"""The limit for a conjunction, whose branches may have far more."""

_INDEXED = frozenset(
    relation.name for relation in chain(*(s.relations for s in STEPS), *(m.relations for m in MEASURES))
)


class RegionView:
    """The facts that questions about one region use: those of the region and of the hubs."""

    def __init__(self, hubs: Facts, region: Facts, number: int) -> None:
        self.number = number
        self.index = Index((hubs, region), _INDEXED)
        self.names = hubs.names | region.names
        self.aliases = hubs.aliases | region.aliases
        # Each country is a topic in one region only, so that no question about it is repeated.
        self.members: Mapping[Kind, list[EntityId]] = {
            **region.members,
            "country": hubs.members["country"][number : number + 1],
        }


@dataclass(frozen=True, slots=True)
class GeneratedQuestion:
    """A question with its gold, without an id."""

    text: str
    topics: tuple[tuple[EntityId, Route], ...]
    """Each topic with the route from it to the answers, or to the candidates that include them."""
    answers: tuple[Node, ...]
    sparql: str


class Form(Protocol):
    """A question with an open topic."""

    @property
    def domain(self) -> Kind:
        """The kind of the topic."""
        ...

    def generate(self, view: RegionView, topic: EntityId, rng: Random) -> GeneratedQuestion | None:
        """Return the question about a topic; None if it has no suitable answers."""
        ...


@dataclass(frozen=True, slots=True)
class _AboutRoute:
    """Base of the forms about the ends of one route."""

    route: Route

    @property
    def domain(self) -> Kind:
        return self.route.domain


@dataclass(frozen=True, slots=True)
class Lookup(_AboutRoute):
    """Asks for the ends of a route."""

    def generate(self, view: RegionView, topic: EntityId, rng: Random) -> GeneratedQuestion | None:
        answers = self.route.ends(view.index, topic)
        limit = MAX_MANY_ANSWERS if rng.random() < 0.1 else MAX_ANSWERS
        if not 0 < len(answers) <= limit:
            return None
        text = self.route.question(view.names[topic], rng)
        sparql = _select("DISTINCT ?x", self.route.patterns(topic, "y"))
        return GeneratedQuestion(text, ((topic, self.route),), tuple(answers), sparql)


@dataclass(frozen=True, slots=True)
class Conjunction:
    """Asks for the ends that two routes share; neither route alone determines the answers."""

    first: Route
    second: Route

    @property
    def domain(self) -> Kind:
        return self.first.domain

    def generate(self, view: RegionView, topic: EntityId, rng: Random) -> GeneratedQuestion | None:
        candidates = self.first.ends(view.index, topic)
        if len(candidates) < 2:
            return None
        others = self.second.starts(view.index, rng.choice(candidates))
        other = rng.choice(others) if others else None
        if not isinstance(other, str) or not self._may_ask(view, topic, other):
            return None
        second = self.second.ends(view.index, other)
        answers = tuple(node for node in candidates if node in second)
        if not 0 < len(answers) < min(len(candidates), len(second), MAX_SHARED_ANSWERS + 1):
            return None
        topics = ((topic, self.first), (other, self.second))
        patterns = chain(self.first.patterns(topic, "y"), self.second.patterns(other, "z"))
        return GeneratedQuestion(self._text(view, topics, rng), topics, answers, _select("DISTINCT ?x", patterns))

    def _may_ask(self, view: RegionView, topic: EntityId, other: EntityId) -> bool:
        """Whether the topics have different names; two branches of the same route are asked in one order only."""
        return view.names[topic] != view.names[other] and (self.first is not self.second or topic < other)

    def _text(self, view: RegionView, topics: Sequence[tuple[EntityId, Route]], rng: Random) -> str:
        one, other = (route.clause(view.names[topic], rng) for topic, route in rng.sample(topics, 2))
        things, that = _plural(self.first, rng, other=self.first.returns or self.second.returns)
        templates = (
            f"Which {things} {one} and {other}?",
            f"Name the {things} {that} {one} and {other}.",
            f"What {things} {that} {one} also {other}?",
            f"Of the {things} {that} {one}, which {other}?",
        )
        return rng.choice(templates)


@dataclass(frozen=True, slots=True)
class Comparison(_AboutRoute):
    """Asks which ends of a route have a value above (or below) a bound."""

    measure: Measure
    above: bool

    def generate(self, view: RegionView, topic: EntityId, rng: Random) -> GeneratedQuestion | None:
        values = _measured(view, self.route.ends(view.index, topic), self.measure)
        if len(values) < 2:
            return None
        shown, bound = self._bound(rng.choice(list(values.values())))
        limit = _key(bound)
        passes = limit.__lt__ if self.above else limit.__gt__
        answers = tuple(node for node, value in values.items() if passes(_key(value)))
        if not 0 < len(answers) < min(len(values), MAX_ANSWERS + 1):
            return None
        things = self.route.noun(view.names[topic], rng)
        said = phrase(
            self.measure.more if self.above else self.measure.less, shown, plural_thing=False, plural_answer=True
        )
        text = rng.choice(
            (f"Which of {things} {said}?", f"Of {things}, which {said}?", f"Name those of {things} that {said}.")
        )
        sign = ">" if self.above else "<"
        condition = f'FILTER (?v {sign} "{bound}"^^<{XSD}{self.measure.datatype}>)'
        patterns = chain(self.route.patterns(topic, "y"), _measure_patterns(self.measure), (condition,))
        return GeneratedQuestion(text, ((topic, self.route),), answers, _select("DISTINCT ?x", patterns))

    def _bound(self, value: str) -> tuple[str, str]:
        """Return the bound as text and as a value. Dates are compared by whole years."""
        if self.measure.datatype != "date":
            return value, value
        year = value[:4]
        return year, f"{year}-12-31" if self.above else f"{year}-01-01"


@dataclass(frozen=True, slots=True)
class Superlative(_AboutRoute):
    """Asks which end of a route has the highest (or lowest) value."""

    measure: Measure
    highest: bool

    def generate(self, view: RegionView, topic: EntityId, rng: Random) -> GeneratedQuestion | None:
        values = _measured(view, self.route.ends(view.index, topic), self.measure)
        ranked = sorted(values, key=lambda node: _key(values[node]), reverse=self.highest)
        if len(ranked) < 2 or values[ranked[0]] == values[ranked[1]]:
            return None
        things = self.route.noun(view.names[topic], rng)
        said = rng.choice(self.measure.most if self.highest else self.measure.least)
        text = rng.choice(
            (f"Which of {things} {said}?", f"Of {things}, which one {said}?", f"Among {things}, which {said}?")
        )
        order = "DESC(?v)" if self.highest else "?v"
        patterns = chain(self.route.patterns(topic, "y"), _measure_patterns(self.measure))
        sparql = f"{_select('?x', patterns)}\nORDER BY {order} LIMIT 1"
        return GeneratedQuestion(text, ((topic, self.route),), (ranked[0],), sparql)


@dataclass(frozen=True, slots=True)
class Count(_AboutRoute):
    """Asks how many ends a route has."""

    def generate(self, view: RegionView, topic: EntityId, rng: Random) -> GeneratedQuestion | None:
        counted = self.route.ends(view.index, topic)
        if len(counted) < 2:
            return None
        clause = self.route.clause(view.names[topic], rng)
        things, that = _plural(self.route, rng, other=self.route.returns)
        templates = (
            f"How many {things} {clause}?",
            f"What is the number of {things} {that} {clause}?",
            f"Count the {things} {that} {clause}.",
        )
        answer = LiteralNode(str(len(counted)), XSD + "integer")
        sparql = _select("(COUNT(DISTINCT ?x) AS ?count)", self.route.patterns(topic, "y"))
        return GeneratedQuestion(rng.choice(templates), ((topic, self.route),), (answer,), sparql)


class Deck:
    """All forms of one question type, by the kind of their topic."""

    def __init__(self, forms: Iterable[Form]) -> None:
        self._forms = grouped(forms, lambda form: form.domain)

    def size(self, view: RegionView) -> int:
        """Return the number of pairs of a form and a topic."""
        return sum(len(forms) * len(view.members.get(kind, ())) for kind, forms in self._forms.items())

    def pair(self, view: RegionView, number: int) -> tuple[Form, EntityId]:
        """Return pair `number` of a form and a topic."""
        for kind, forms in self._forms.items():
            topics = view.members.get(kind, ())
            if number < len(forms) * len(topics):
                return forms[number // len(topics)], topics[number % len(topics)]
            number -= len(forms) * len(topics)
        raise IndexError(number)


def _decks() -> dict[QuestionType, Deck]:
    all_routes = routes()
    branches = [r for r in all_routes if r.steps[-1].clause and _is_short(r)]
    measured = [(r, m) for r in all_routes for m in MEASURES if r.range == m.kind and r.steps[-1].noun and _is_short(r)]
    pairs = [(r, s) for r, s in combinations_with_replacement(branches, 2) if r.range == s.range]
    return {
        "1-hop": Deck(Lookup(r) for r in all_routes if len(r.relations) == 1),
        "2-hop": Deck(Lookup(r) for r in all_routes if len(r.relations) == 2),
        "3-hop": Deck(Lookup(r) for r in all_routes if len(r.relations) == 3),
        "4-hop": Deck(Lookup(r) for r in all_routes if len(r.relations) == 4),
        "conjunction": Deck(Conjunction(r, s) for r, s in pairs),
        "comparison": Deck(Comparison(r, m, above) for r, m in measured for above in (True, False)),
        "superlative": Deck(Superlative(r, m, highest) for r, m in measured for highest in (True, False)),
        "count": Deck(Count(r) for r in branches),
    }


def _is_short(route: Route) -> bool:
    """Whether a route is short enough for a question that says more than the route."""
    return len(route.steps) <= 2 and len(route.relations) <= 3


def _plural(route: Route, rng: Random, *, other: bool) -> tuple[str, str]:
    """Return a plural noun for the answers of a route, and its relative pronoun."""
    things = rng.choice(PLURALS[route.range])
    return (f"other {things}" if other else things), "who" if route.range == "person" else "that"


def _measured(view: RegionView, candidates: Iterable[Node], measure: Measure) -> dict[Node, str]:
    """Return the value of each candidate that has one; empty if the values are not comparable."""
    values: dict[Node, str] = {}
    for candidate in candidates:
        nodes = [candidate]
        for relation in measure.relations:
            nodes = [value for node in nodes for value in view.index.follow(node, relation)]
        for value in nodes:
            if not isinstance(value, LiteralNode) or value.datatype != XSD + measure.datatype or len(nodes) > 1:
                return {}
            values[candidate] = value.value
    return values


def _key(value: str) -> Decimal:
    """Return the sort key of a value: the number, or the digits of an ISO date as a number."""
    return Decimal(value.replace("-", ""))


def _measure_patterns(measure: Measure) -> Iterator[str]:
    """Yield SPARQL that binds `?v` to the value of `?x`."""
    return sparql_path(measure.relations, ["?x", *(f"?m{i}" for i in range(1, len(measure.relations))), "?v"])


def _select(what: str, patterns: Iterable[str]) -> str:
    lines = "".join(f"  {pattern}\n" for pattern in patterns)
    return f"SELECT {what} WHERE {{\n{lines}}}"


DECKS = _decks()
"""The forms of each question type."""
