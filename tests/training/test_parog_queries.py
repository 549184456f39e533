"""Gold SPARQL is decomposed into operations, or rejected with a reason."""

from __future__ import annotations

import pytest

from pipeline.datasets.gold_paths import Variable
from pipeline.training.parog.decompose import Atom, decompose, plan_type
from pipeline.training.parog.query import Rejected, read_query
from pipeline.types import LiteralNode, Relation

HEAD = "PREFIX ns: <http://rdf.freebase.com/ns/>\nSELECT DISTINCT ?x WHERE {\n"
GUARDS = """FILTER (?x != ns:m.a)
FILTER (!isLiteral(?x) OR lang(?x) = '' OR langMatches(lang(?x), 'en'))
"""
VALUE = "?x ns:r.size ?n .\n"


def query(patterns: str, tail: str = "") -> str:
    """A query in the style of CWQ."""
    return f"{HEAD}{GUARDS}{patterns}}}\n{tail}"


def atoms(sparql: str, *mediators: str) -> tuple[Atom, ...]:
    return decompose(read_query(sparql), [Variable(name) for name in mediators])


def out(*names: str) -> tuple[Relation, ...]:
    return tuple(Relation(name, "out") for name in names)


def back(*names: str) -> tuple[Relation, ...]:
    return tuple(Relation(name, "in") for name in names)


LOOKUP = Atom("lookup", start="m.a", path=out("r.one"))
VALUES = Atom("composition", (1,), path=out("r.size"))


@pytest.mark.parametrize(
    ("sparql", "mediators", "type", "expected"),
    [
        pytest.param(query("ns:m.a ns:r.one ?x ."), "", "linear", [LOOKUP], id="linear"),
        pytest.param(
            query("ns:m.a ns:r.one ?c . ?x ns:r.two ?c ."),
            "",
            "composition",
            [LOOKUP, Atom("composition", (1,), path=back("r.two"))],
            id="composition",
        ),
        pytest.param(
            query("ns:m.a ns:r.one ?x . ?x ns:r.two ns:m.b ."),
            "",
            "conjunction",
            [LOOKUP, Atom("lookup", start="m.b", path=back("r.two")), Atom("conjunction", (1, 2))],
            id="conjunction",
        ),
        pytest.param(
            query(f"ns:m.a ns:r.one ?x . {VALUE} FILTER (xsd:integer(?n) > 5)"),
            "",
            "comparative",
            [
                LOOKUP,
                Atom("composition", (1,), path=out("r.size"), keep="above"),
                Atom("comparative", (1, 2), keep="above", bound="5"),
            ],
            id="comparative",
        ),
        pytest.param(
            query(f"ns:m.a ns:r.one ?x . {VALUE}", "ORDER BY DESC(xsd:integer(?n)) LIMIT 1"),
            "",
            "superlative",
            [
                LOOKUP,
                Atom("composition", (1,), path=out("r.size"), keep="highest"),
                Atom("superlative", (1, 2), keep="highest"),
            ],
            id="superlative",
        ),
        pytest.param(
            query("ns:m.a ns:r.one ?y . ?y ns:r.two ?x ."),
            "y",
            "linear",
            [Atom("lookup", start="m.a", path=out("r.one", "r.two"))],
            id="two patterns over a mediator are one operation",
        ),
        pytest.param(
            query("ns:m.a ns:r.one ?y . ?y ns:r.two ?x . ?y ns:r.title ns:m.b ."),
            "y",
            "conjunction",
            [
                Atom("lookup", start="m.a", path=out("r.one", "r.two")),
                Atom("lookup", start="m.b", path=(Relation("r.title", "in"), Relation("r.two", "out"))),
                Atom("conjunction", (1, 2)),
            ],
            id="a condition on a mediator is a lookup of its own",
        ),
        pytest.param(
            query('ns:m.a ns:r.one ?x . ?x ns:r.code "AD" .'),
            "",
            "conjunction",
            [LOOKUP, Atom("filter", (1,), path=out("r.code"), value=LiteralNode("AD"))],
            id="a literal is a filter",
        ),
        pytest.param(
            query('ns:m.a ns:r.one ?x . ?x ns:r.code ?k . FILTER (str(?k) = "AD")'),
            "",
            "conjunction",
            [LOOKUP, Atom("filter", (1,), path=out("r.code"), value=LiteralNode("AD"))],
            id="a variable that equals a literal is a filter",
        ),
        pytest.param(
            query("ns:m.a ns:r.one ?x . ?x ns:common.topic.notable_types ns:m.0kpv11 ."),
            "",
            "linear",
            [LOOKUP],
            id="classes are boilerplate",
        ),
        pytest.param(
            query("ns:m.a ns:common.topic.notable_types ?x ."),
            "",
            "linear",
            [Atom("lookup", start="m.a", path=out("common.topic.notable_types"))],
            id="classes are kept when they are the answer",
        ),
    ],
)
def test_a_query_is_decomposed(sparql: str, mediators: str, type: str, expected: list[Atom]) -> None:
    decomposed = atoms(sparql, *mediators)
    assert (len(decomposed), set(decomposed)) == (len(expected), set(expected))
    assert decomposed[-1] == expected[-1]
    assert plan_type(decomposed) == type


ALTERNATIVE = Atom("lookup", start="m.b", path=out("r.two", "r.three"))


@pytest.mark.parametrize("extra", ["", " UNION {ns:m.c ns:r.one ?x .}"])
def test_the_alternatives_of_a_union_are_looked_up_and_put_together(extra: str) -> None:
    sparql = query("{ns:m.a ns:r.one ?x .} UNION {ns:m.b ns:r.two ?y . ?y ns:r.three ?x .}" + extra)
    lookups = [LOOKUP, ALTERNATIVE, *([Atom("lookup", start="m.c", path=out("r.one"))] if extra else [])]
    union = Atom("union", tuple(range(1, len(lookups) + 1)))
    assert list(atoms(sparql, "y")) == [*lookups, union]
    both = query("?x ns:r.kind ns:m.d . {ns:m.a ns:r.one ?x .} UNION {ns:m.b ns:r.two ?y . ?y ns:r.three ?x .}")
    decomposed = atoms(both, "y")
    assert [atom.op for atom in decomposed] == ["lookup", "lookup", "lookup", "union", "conjunction"]
    assert plan_type(decomposed) == plan_type(atoms(sparql, "y")) == "conjunction"


def test_a_condition_on_values_that_may_be_missing_is_a_filter() -> None:
    """CWQ restricts offices and memberships to a year in this way."""
    year = """FILTER (NOT EXISTS {?y ns:r.from ?sk0} || EXISTS {?y ns:r.from ?sk1 .
    FILTER (xsd:datetime(?sk1) <= "2009-12-31"^^xsd:dateTime) })"""
    decomposed = atoms(query(f"ns:m.a ns:r.one ?y . ?y ns:r.two ?x . {year}"), "y")
    path = (Relation("r.two", "in"), Relation("r.from", "out"))
    assert decomposed == (
        Atom("lookup", start="m.a", path=out("r.one", "r.two")),
        Atom("filter", (1,), path=path, keep="at most", bound="2009-12-31"),
    )


@pytest.mark.parametrize(("filter", "keep"), [("?n < ?end", "below"), ("?end < ?n", "above")])
def test_a_value_is_compared_with_one_that_is_looked_up(filter: str, keep: str) -> None:
    decomposed = atoms(query(f"ns:m.a ns:r.one ?x . {VALUE} ns:m.b ns:r.end ?end . FILTER ({filter})"))
    assert decomposed == (
        LOOKUP,
        Atom("composition", (1,), path=out("r.size"), keep=keep),  # type: ignore[arg-type]
        Atom("lookup", start="m.b", path=out("r.end")),
        Atom("comparative", (1, 2, 3), keep=keep, bound="#3"),  # type: ignore[arg-type]
    )


def test_operations_follow_those_that_they_use() -> None:
    decomposed = atoms(query("ns:m.a ns:r.one ?c . ?x ns:r.two ?c . ?x ns:r.three ?d . ?d ns:r.four ns:m.b ."))
    assert all(used <= index for index, atom in enumerate(decomposed) for used in atom.uses)
    assert [atom.op for atom in decomposed].count("composition") == 2
    assert decomposed[-1] == Atom("conjunction", decomposed[-1].uses)


GRAILQA = """PREFIX : <http://rdf.freebase.com/ns/>
SELECT (?x0 AS ?value) WHERE { SELECT DISTINCT ?x0 WHERE {
?x0 :type.object.type :law.court .
{ SELECT (MIN(?y1) AS ?x1) WHERE { ?y0 :type.object.type :law.court . VALUES ?y2 { :m.a }
  ?y0 :law.court.founded ?y1 . ?y2 :law.court.inferior_courts ?y0 . FILTER ( ?y0 != ?y1 && ?y1 != ?y2 ) } }
VALUES ?x2 { :m.a } ?x0 :law.court.founded ?x1 . ?x2 :law.court.inferior_courts ?x0 .
FILTER ( ?x0 != ?x1 && ?x0 != ?x2 && ?x1 != ?x2 ) } }"""


def test_a_sub_query_for_an_extreme_value_is_a_superlative() -> None:
    decomposed = atoms(GRAILQA)
    assert decomposed[0] == Atom("lookup", start="m.a", path=out("law.court.inferior_courts"), about="law.court")
    assert decomposed[-1] == Atom("superlative", (1, 2), keep="lowest")
    assert plan_type(decomposed) == "superlative"


def test_a_count_query_ends_with_a_count() -> None:
    sparql = f"{HEAD.replace('DISTINCT ?x', '(COUNT(?x) AS ?value)')} ns:m.a ns:r.one ?x }}"
    assert atoms(sparql) == (LOOKUP, Atom("count", (1,)))


@pytest.mark.parametrize(("sign", "keep"), [(">", "above"), (">=", "at least"), ("<", "below"), ("<=", "at most")])
def test_bounds_and_comparisons_are_kept(sign: str, keep: str) -> None:
    decomposed = atoms(query(f'ns:m.a ns:r.one ?x . {VALUE} FILTER (?n {sign} "2001-01-03"^^xsd:dateTime)'))
    assert decomposed[-1] == Atom("comparative", (1, 2), keep=keep, bound="2001-01-03")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sparql", "reason"),
    [
        ("SELECT ?x WHERE {", "cannot be parsed"),
        ("", "cannot be parsed"),
        ("DROP GRAPH <http://rdf.freebase.com/ns/>", "cannot be parsed"),
        ("SELECT ?x WHERE " + "{" * 5000, "cannot be parsed"),
        (query("ns:m.a ns:r.one ?x . FILTER (FROBNICATE(?x))"), "cannot be parsed"),
        (query("ns:m.a ns:r.one ?x . FILTER (bif:contains(?x, 'y'))"), "cannot be parsed"),
        (query("ns:m.a ns:r.one ?x . FILTER (<http://x/f>(?x))"), "a FILTER with the function http://x/f"),
        (query("ns:m.a ns:r.one ?x . FILTER (REGEX(?x, 'y'))"), "a FILTER with REGEX"),
        (query("ns:m.a ns:r.one ?x . FILTER (CONTAINS(STR(?x), 'y') = true)"), "a FILTER with CONTAINS"),
        (query("ns:m.a ns:r.one ?x . FILTER (NOT EXISTS {?x ns:r.two ?y})"), "a FILTER with NOTEXISTS"),
        (query("ns:m.a ns:r.one ?x . ?x ns:r.size ?n . ?x ns:r.age ?o . FILTER (?n > ?o)"), "compares two values"),
        (query(f"ns:m.a ns:r.one ?x . {VALUE} FILTER (?n - 1 > 5)"), "a comparison with AdditiveExpression"),
        (query(f"{{ns:m.a ns:r.one ?x}} UNION {{ns:m.a ns:r.two ?x . {VALUE} FILTER (?n > 5)}}"), "inside UNION"),
        (query("{ns:m.a ns:r.one ?x} UNION {?y ns:r.two ?x}"), "alternatives do not start from a constant"),
        (query("ns:m.a ns:r.one ?x {ns:m.a ns:r.one ?x} UNION {ns:m.a ns:r.two ?y}"), "not connected"),
        (
            query("ns:m.a ns:r.one ?x FILTER (NOT EXISTS {?x ns:r.two ?y} || EXISTS {?x ns:r.three ?z})"),
            "a FILTER with NOTEXISTS",
        ),
        (query("ns:m.a ns:r.one ?x OPTIONAL {?x ns:r.two ?y}"), "OPTIONAL"),
        (query("ns:m.a ns:r.one ?x MINUS {?x ns:r.two ns:m.b}"), "MINUS"),
        (query("SERVICE <http://x/> {ns:m.a ns:r.one ?x}"), "SERVICE"),
        (query("ns:m.a ns:r.one ?x .", "LIMIT 3"), "a LIMIT other than the first"),
        (query("ns:m.a ns:r.one ?x .", "LIMIT 1"), "a LIMIT without an ORDER BY"),
        (query(f"ns:m.a ns:r.one ?x . {VALUE} ?x ns:r.age ?o .", "ORDER BY ?n ?o LIMIT 1"), "several values"),
        (
            query("{SELECT ?x (COUNT(?y) AS ?n) WHERE {ns:m.a ns:r.one ?x . ?x ns:r.two ?y} GROUP BY ?x}", ""),
            "GROUP BY in the query",
        ),
        (query("ns:m.a ns:r.one ?x . {SELECT (COUNT(?y) AS ?n) WHERE {ns:m.a ns:r.two ?y}}"), "not the answer"),
        (query("{SELECT (SUM(?y) AS ?x) WHERE {ns:m.a ns:r.two ?y}}"), "an aggregate other than one count"),
        (query("ns:m.a ?r ?x ."), "a relation that is a variable"),
        (query("ns:m.a <http://elsewhere/r> ?x ."), "another graph's"),
        (query("VALUES ?y {ns:m.a ns:m.b} ?y ns:r.one ?x ."), "VALUES with a choice"),
        (query("?y ns:r.one ?x ."), "no constant to start from"),
        (query("ns:m.a ns:r.one ?x . ?x ns:r.two ?y ."), "only requires something to exist"),
        (query("ns:m.a ns:r.one ?x . ?x ns:r.two ?y . ?y ns:r.three ?x ."), "form a cycle"),
        (query("ns:m.a ns:r.one ?x . ns:m.b ns:r.two ?y ."), "patterns that are not connected"),
        (query("ns:m.a ns:r.one ?x . FILTER (?x > 5)"), "not a value of the answers"),
    ],
)
def test_a_query_that_plans_cannot_express_is_rejected_with_a_reason(sparql: str, reason: str) -> None:
    with pytest.raises(Rejected, match=reason.replace("(", r"\(")):
        atoms(sparql)
