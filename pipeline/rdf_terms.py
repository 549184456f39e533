"""Converts ids, relation names and literals of a graph to RDF terms and back, with all escaping.

Percent-encoding turns any id or relation name into a legal IRI, and back into the same string. Freebase ids and
relations need no encoding and look the same as in every other Freebase store. Stores rewrite typed literals in
different ways; `literal_node` converts them to one form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from math import isfinite
from urllib.parse import quote, unquote

from pipeline.types import EntityId, LiteralNode, Node, Triple

FREEBASE = "http://rdf.freebase.com/ns/"
XSD = "http://www.w3.org/2001/XMLSchema#"

MAX_IRI_BYTES = 1880
"""Virtuoso 7.2.5 stores longer IRIs but returns them cut at this length."""

_PLAIN = re.compile(r"[A-Za-z0-9_~.-]*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_LANG = re.compile(r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*")
_DATATYPE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|^`\\]*")
_ESCAPES = {code: f"\\u{code:04X}" for code in (*range(0x20), 0x7F)} | str.maketrans(
    {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
)
"""Includes control characters: RDF allows them unescaped, but Virtuoso fails on some of them before a backslash."""
_FLOATS = {XSD + "double", XSD + "float"}
_DATES = {XSD + "date", XSD + "dateTime", XSD + "gYear", XSD + "gYearMonth"}


@dataclass(frozen=True, slots=True)
class Terms:
    """The RDF terms of one graph's ids, relations and literals."""

    namespace: str = FREEBASE
    """Prefix of every IRI of the graph."""
    opaque_ids: str = r"[mg]\."
    """Pattern at the start of ids that are not names; every other id is a name itself."""
    _opaque: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_opaque", re.compile(self.opaque_ids))

    def to_iri(self, name: str) -> str:
        """Return the IRI of an id or relation name, without angle brackets."""
        return self.namespace + (name if _PLAIN.fullmatch(name) else _encoded(name))

    def from_iri(self, iri: str) -> str | None:
        """Return the id or relation name of an IRI, or None if `to_iri` does not write this IRI."""
        if not iri.startswith(self.namespace):
            return None
        rest = iri[len(self.namespace) :]
        if _PLAIN.fullmatch(rest):
            return rest
        return _decoded(rest)

    def own_name(self, id: EntityId) -> str | None:
        """Return the id if it is a name, or None for an opaque id such as a Freebase MID."""
        return None if self._opaque.match(id) else id

    def storable(self, node: Node) -> bool:
        """Return whether every supported store can hold this id, relation name or literal. If not, no graph has it."""
        if isinstance(node, str):
            return len(node) <= MAX_IRI_BYTES and len(self.to_iri(node)) <= MAX_IRI_BYTES
        return not _SURROGATE.search(node.value)

    def defect(self, triple: Triple) -> str | None:
        """Return why no store can hold this fact, or None."""
        if isinstance(triple.head, LiteralNode):
            return f"the literal {_shown(triple.head.value)} is the head of a fact"
        for node in triple:
            if isinstance(node, LiteralNode):
                if node.lang and not _LANG.fullmatch(node.lang):
                    return f"{_shown(node.lang)} is not a language tag"
                if node.datatype and not _DATATYPE.fullmatch(node.datatype):
                    return f"{_shown(node.datatype)} is not a datatype IRI"
            if not self.storable(node):
                what = (
                    f"is longer than {MAX_IRI_BYTES} bytes as an IRI"
                    if isinstance(node, str)
                    else "is not valid Unicode"
                )
                return f"{_shown(node if isinstance(node, str) else node.value)} {what}"
        return None

    def term(self, node: Node) -> str:
        """Return a node in the syntax shared by N-Triples, Turtle and SPARQL."""
        return f"<{self.to_iri(node)}>" if isinstance(node, str) else literal(node)

    def n_triple(self, triple: Triple) -> str:
        """Return a fact as a line of N-Triples, with its line end."""
        return f"{self.term(triple.head)} <{self.to_iri(triple.relation)}> {self.term(triple.tail)} .\n"

    def node(self, iri: str) -> Node:
        """Return the node of an IRI. An IRI of another namespace, such as a web page, is a literal of type `anyURI`."""
        name = self.from_iri(iri)
        return LiteralNode(iri, XSD + "anyURI") if name is None else name


def literal(node: LiteralNode) -> str:
    """Return a literal in the syntax shared by N-Triples, Turtle and SPARQL."""
    quoted = f'"{node.value.translate(_ESCAPES)}"'
    if node.lang:
        return f"{quoted}@{node.lang}"
    return f"{quoted}^^<{node.datatype}>" if node.datatype and node.datatype != XSD + "string" else quoted


def literal_node(value: str, datatype: str | None, lang: str | None) -> LiteralNode:
    """Return a literal read from a store, in the form that is the same for all stores.

    Virtuoso writes booleans as 0 and 1, prints floating-point numbers with 15 digits, returns long integers as decimals
    and drops the leading zero of the year -0044.
    """
    if lang:
        return LiteralNode(value, lang=lang.lower())
    if not datatype or datatype == XSD + "string":
        return LiteralNode(value)
    if datatype in _FLOATS:
        value = _plain_float(value)
    elif datatype == XSD + "decimal" and "." not in value:
        datatype = XSD + "integer"
    elif datatype == XSD + "boolean":
        value = {"0": "false", "1": "true"}.get(value, value)
    elif datatype in _DATES and value.startswith("-"):
        year, dash, rest = value[1:].partition("-")
        value = f"-{year.zfill(4)}{dash}{rest}"
    return LiteralNode(value, datatype)


@lru_cache(1 << 16)
def _encoded(name: str) -> str:
    return quote(name, safe="", errors="surrogatepass")


@lru_cache(1 << 16)
def _decoded(text: str) -> str | None:
    try:
        name = unquote(text, errors="strict")
    except UnicodeDecodeError:
        return None
    return name if _encoded(name) == text else None


def _plain_float(value: str) -> str:
    try:
        number = float(value)
    except ValueError:
        return value
    return f"{number:.15g}" if isfinite(number) else value


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}…")
