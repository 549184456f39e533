"""Rewrites gold SPARQL over the IRIs of another graph, such as Wikidata's, to the names that its graph backend uses.

Everything that reads gold queries reads Freebase IRIs, in which any name can be written (`Terms`). So a query about
`wdt:P69` becomes one about `<http://rdf.freebase.com/ns/educated%20at>` if the graph shows P69 as `educated at`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from pipeline.rdf_terms import Terms

_NAMES = Terms()

_WELL_KNOWN: Mapping[str, str] = {
    "wd": "http://www.wikidata.org/entity/",
    "wds": "http://www.wikidata.org/entity/statement/",
    "wdt": "http://www.wikidata.org/prop/direct/",
    "p": "http://www.wikidata.org/prop/",
    "ps": "http://www.wikidata.org/prop/statement/",
    "pq": "http://www.wikidata.org/prop/qualifier/",
    "wikibase": "http://wikiba.se/ontology#",
    "bd": "http://www.bigdata.com/rdf#",
    "schema": "http://schema.org/",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "owl": "http://www.w3.org/2002/07/owl#",
    "skos": "http://www.w3.org/2004/02/skos/core#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
"""Prefixes that Wikidata's query service knows, so that queries use them without declaring them."""

_TOKEN = re.compile(
    r"""(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"|PREFIX\s+(?P<declared>[\w.-]*):\s*<(?P<namespace>[^<>\s]*)>"
    r"|<(?P<iri>[^<>\"{}|^`\\\s]+)>"
    r"|(?P<comment>\#[^\n]*)"
    r"|(?<![\w?$@:])(?P<prefix>[A-Za-z][\w-]*)?:(?P<local>\w(?:[\w.%-]*[\w%-])?)",
    re.IGNORECASE,
)


def with_names_of(sparql: str, name_of: Callable[[str], str | None]) -> str:
    """Return a query with the IRIs for which `name_of` has a name replaced by IRIs that hold the name.

    Prefixed names are written out. Texts, comments and the IRIs of other graphs stay as they are.
    """
    declared = dict(_WELL_KNOWN)
    for match in _TOKEN.finditer(sparql):
        if match["namespace"] is not None:
            declared[match["declared"] or ""] = match["namespace"]

    def renamed(match: re.Match[str]) -> str:
        iri = match["iri"]
        if match["local"] is not None:
            namespace = declared.get(match["prefix"] or "")
            iri = None if namespace is None else namespace + match["local"]
        if iri is None:
            return "" if match["namespace"] is not None else match[0]
        name = name_of(iri)
        return f"<{iri if name is None else _NAMES.to_iri(name)}>"

    return _TOKEN.sub(renamed, sparql)
