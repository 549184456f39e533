"""Gold queries are classified into the five types of the PARoG paper, without a graph."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pipeline.datasets.query_types import query_type

HEAD = "PREFIX ns: <http://rdf.freebase.com/ns/> SELECT DISTINCT ?x WHERE {FILTER (?x != ns:m.a) "
CAST = "ns:m.a ns:film.actor.film ?y . ?y ns:film.performance.film ?x ."


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("ns:m.a ns:people.person.nationality ?x .}", "linear"),
        (CAST + "}", "linear"),
        ("ns:m.a ns:film.actor.film ?y . ?x ns:film.film.starring ?y .}", "linear"),
        (CAST + "?x ns:type.object.type ns:film.film .}", "linear"),
        ("ns:m.a ns:people.person.nationality ?c . ?c ns:location.country.capital ?x .}", "composition"),
        (CAST.replace("?x", "?f") + "?f ns:film.film.directed_by ?x .}", "composition"),
        (CAST + "?y ns:film.performance.character ns:m.b .}", "conjunction"),
        (CAST + "?x ns:film.film.year ?n . FILTER (?n = 1999)}", "conjunction"),
        (CAST + "?x ns:film.film.length ?n . FILTER (?n > 90)}", "comparative"),
        (CAST + "?x ns:film.film.length ?n .} ORDER BY DESC(?n) LIMIT 1", "superlative"),
        (CAST + "?x ns:film.film.length ?n .} ORDER BY DESC(?n)", "linear"),
        (CAST + "FILTER (NOT EXISTS {?y ns:a.b.from ?s} || EXISTS {?y ns:a.b.from ?t . FILTER (?t < 9)})}", "linear"),
        ("}}", None),
    ],
)
def test_a_query_has_the_first_type_that_applies(rest: str, expected: str | None) -> None:
    assert query_type(HEAD + rest) == expected


IN_THREADS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pipeline.datasets.query_types import query_type

sys.setswitchinterval(1e-6)
queries = [line for line in sys.stdin]
with ThreadPoolExecutor(6) as pool:
    print(sorted({str(found) for found in pool.map(query_type, queries)}))
"""


def test_queries_are_parsed_in_several_threads() -> None:
    """The writer of traces reads queries in a thread, while simulations read them in another.

    In a process of its own: the parser breaks at its first uses.
    """
    queries = [
        f"{HEAD}{CAST.replace('?x', f'?f{n}')} ?f{n} ns:film.film.directed_by ?x . FILTER (?f{n} = 'a' OR ?x = 'b')}}"
        for n in range(60)
    ]
    ran = subprocess.run(
        [sys.executable, "-c", IN_THREADS], input="\n".join(queries), capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "['conjunction']"
