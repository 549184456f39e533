"""Converts ids, relation names and literals of a graph to RDF terms and back, with all escaping.

Percent-encoding turns any id or relation name into a legal IRI, and back into the same string. Freebase ids and
relations need no encoding and look the same as in every other Freebase store. A graph of others, such as Wikidata, has
its own IRIs, which are taken as they are. Stores rewrite typed literals in different ways; `literal_node` converts them
to one form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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
_IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20\x7f-\x9f<>\"{}|^`\\\ud800-\udfff]+")
_NOT_IN_IRIS = re.compile(r"[\x00-\x20\x7f-\x9f<>\"{}|^`\\\ud800-\udfff]")
_SLOT = "{}"
"""Stands for the local name of a relation in the form of its name."""
_LANG = re.compile(r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*")
_DATATYPE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|^`\\]*")
_ESCAPES = {code: f"\\u{code:04X}" for code in (*range(0x20), 0x7F)} | str.maketrans(
    {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
)
"""Includes control characters: RDF allows them unescaped, but Virtuoso fails on some of them before a backslash."""
_FLOATS = {XSD + "double", XSD + "float"}
_DATES = {XSD + "date", XSD + "dateTime", XSD + "gYear", XSD + "gYearMonth"}
VALUE_TYPES = tuple(sorted({*_FLOATS, *_DATES, XSD + "integer", XSD + "decimal", XSD + "boolean"}))
"""The datatypes of numbers, dates and truth values."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The RDF terms of one graph's ids, relations and literals."""

    namespace: str = FREEBASE
    """Prefix of every IRI of the graph's nodes. An empty one makes every IRI an id."""
    opaque_ids: str = r"[mg]\.[0-9a-z_]+$"
    """Pattern at the start of ids that are not names; every other id is a name itself."""
    relations: Mapping[str, str] = field(default_factory=dict)
    """Form of a relation's name, with `{}` for the local name → namespace. Without any, nodes and relations share one.

    Wikidata's `{} (qualifier)` → `http://www.wikidata.org/prop/qualifier/` names `pq:P580` `P580 (qualifier)`.
    """
    percent_encoded: bool = True
    """Whether ids and names are percent-encoded in IRIs. A graph of others has its own IRIs, which are not."""
    relation_labels: Mapping[str, str] = field(default_factory=dict)
    """Name of a relation → the name under which it is shown, unique among all names."""
    _opaque: re.Pattern[str] = field(init=False, repr=False, compare=False)
    _forms: tuple[tuple[str, str, str], ...] = field(init=False, repr=False, compare=False)
    """The text before and after the local name, and the namespace: the most specific forms first."""
    _namespaces: tuple[tuple[str, str, str], ...] = field(init=False, repr=False, compare=False)
    """The namespace and the text before and after the local name: the longest namespaces first."""
    _shown: Mapping[str, str] = field(init=False, repr=False, compare=False)
    """Relation as shown → its name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_opaque", re.compile(self.opaque_ids))
        forms = [(*form.split(_SLOT), namespace) for form, namespace in self.relations.items()]
        forms.sort(key=lambda form: (-len(form[0]) - len(form[1]), form))
        by_namespace = sorted(((namespace, *form) for *form, namespace in forms), key=lambda each: -len(each[0]))
        object.__setattr__(self, "_forms", tuple(forms))
        object.__setattr__(self, "_namespaces", tuple(by_namespace))
        object.__setattr__(self, "_shown", {shown: name for name, shown in self.relation_labels.items()})

    def to_iri(self, id: str) -> str:
        """Return the IRI of an id, without angle brackets. In a graph of others, an IRI may stand for the id."""
        if self._is_iri(id):
            return self._written(id)
        return self.namespace + (id if _PLAIN.fullmatch(id) else self._written(id))

    def from_iri(self, iri: str) -> str | None:
        """Return the id of an IRI, or None if `to_iri` does not write this IRI."""
        if not iri.startswith(self.namespace):
            return None
        rest = iri[len(self.namespace) :]
        if _PLAIN.fullmatch(rest) or not self.percent_encoded:
            return rest
        return _decoded(rest)

    def relation_iri(self, name: str) -> str:
        """Return the IRI of a relation, by the name under which it is shown or by its own."""
        name = self._shown.get(name, name)
        if self._is_iri(name):
            return self._written(name)
        for before, after, namespace in self._forms:
            if name.startswith(before) and name.endswith(after) and len(name) > len(before) + len(after):
                local = name[len(before) : len(name) - len(after)]
                return namespace + (local if _PLAIN.fullmatch(local) else self._written(local))
        return self.to_iri(name)

    def relation_name(self, iri: str) -> str | None:
        """Return the name under which the relation of an IRI is shown; None if it is no relation of the graph."""
        name = self.plain_relation(iri)
        return None if name is None else self.relation_labels.get(name, name)

    def plain_relation(self, iri: str) -> str | None:
        """Return the name of a relation as made from its IRI; None if it is no relation of the graph."""
        found = self._local(iri)
        return found and f"{found[0]}{found[2]}{found[1]}"

    def labelled_node(self, iri: str) -> EntityId | None:
        """Return the node that has the label of a relation: the one with the same local name, as `P50` of `wdt:P50`."""
        found = self._local(iri)
        return found and found[2]

    def relation_form(self, iri: str) -> str:
        """Return the form of a relation's name, with `{}` for its local name or its label."""
        found = self._local(iri)
        return f"{found[0]}{_SLOT}{found[1]}" if found else _SLOT

    def predicate_iri(self, name: str) -> str:
        """Return the IRI of a predicate that a vocabulary gives as an IRI or as the name of a relation."""
        return name if "://" in name else self.relation_iri(name)

    def predicate_name(self, name: str) -> str:
        """Return the name of a relation that a vocabulary gives as an IRI or by its name; else the IRI."""
        return (self.plain_relation(name) or name) if "://" in name else name

    def _local(self, iri: str) -> tuple[str, str, str] | None:
        """Return the text before and after the local name of a relation, and the local name."""
        if not self._forms:
            name = self.from_iri(iri)
            return None if name is None else ("", "", name)
        for namespace, before, after in self._namespaces:
            if iri.startswith(namespace):
                rest = iri[len(namespace) :]
                local = rest if not self.percent_encoded or _PLAIN.fullmatch(rest) else _decoded(rest)
                # `prop/direct-normalized/P1` is none of the relations of `prop/`.
                return (before, after, local) if local and not (namespace and "/" in rest) else None
        return None

    def _written(self, name: str) -> str:
        """Return an id or a local name as it stands in an IRI; what no IRI may hold is percent-encoded in any case."""
        if self.percent_encoded:
            return _encoded(name)
        return _NOT_IN_IRIS.sub(lambda match: _encoded(match[0]), name)

    def own_name(self, id: EntityId) -> str | None:
        """Return the id if it is a name, or None for an opaque id such as a Freebase MID."""
        return None if self._opaque.match(id) else id

    def storable(self, node: Node) -> bool:
        """Return whether every supported store can hold this id or literal. If not, no graph has it."""
        if not isinstance(node, str):
            return not _SURROGATE.search(node.value)
        if len(node) > MAX_IRI_BYTES:
            return False
        iri = self.to_iri(node)
        return self._is_legal(iri) and (self.percent_encoded or iri == node or self.from_iri(iri) == node)

    def storable_relation(self, name: str) -> bool:
        """Return whether every supported store can hold this relation."""
        if len(name) > MAX_IRI_BYTES:
            return False
        iri = self.relation_iri(name)
        plain = self._shown.get(name, name)
        return self._is_legal(iri) and (self.percent_encoded or iri == plain or self.plain_relation(iri) == plain)

    def defect(self, triple: Triple) -> str | None:
        """Return why no store can hold this fact, or None."""
        head, relation, tail = triple
        if isinstance(head, LiteralNode):
            return f"the literal {_shown(head.value)} is the head of a fact"
        return self.node_defect(head) or self.node_defect(tail) or self.relation_defect(relation)

    def node_defect(self, node: Node) -> str | None:
        """Return why no store can hold this id or literal, or None."""
        if isinstance(node, str):
            return None if self.storable(node) else self._not_legal(node, self.to_iri(node))
        if node.lang and not _LANG.fullmatch(node.lang):
            return f"{_shown(node.lang)} is not a language tag"
        if node.datatype and not _DATATYPE.fullmatch(node.datatype):
            return f"{_shown(node.datatype)} is not a datatype IRI"
        return None if self.storable(node) else f"{_shown(node.value)} is not valid Unicode"

    def relation_defect(self, name: str) -> str | None:
        """Return why no store can hold this relation, or None."""
        return None if self.storable_relation(name) else self._not_legal(name, self.relation_iri(name))

    def _not_legal(self, name: str, iri: str) -> str:
        if self.percent_encoded or len(iri.encode(errors="surrogatepass")) > MAX_IRI_BYTES:
            return f"{_shown(name)} is longer than {MAX_IRI_BYTES} bytes as an IRI"
        blank = ": it is a blank node, which needs an IRI" if name.startswith("_:") else ""
        return f"{_shown(name)} is neither an IRI nor a name of the vocabulary{blank}"

    def _is_iri(self, name: str) -> bool:
        return not self.percent_encoded and "://" in name

    def _is_legal(self, iri: str) -> bool:
        if len(iri if self.percent_encoded else iri.encode(errors="surrogatepass")) > MAX_IRI_BYTES:
            return False
        return self.percent_encoded or _IRI.fullmatch(iri) is not None

    def term(self, node: Node) -> str:
        """Return a node in the syntax shared by N-Triples, Turtle and SPARQL."""
        return f"<{self.to_iri(node)}>" if isinstance(node, str) else literal(node)

    def n_triple(self, triple: Triple) -> str:
        """Return a fact as a line of N-Triples, with its line end."""
        return f"{self.term(triple.head)} <{self.relation_iri(triple.relation)}> {self.term(triple.tail)} .\n"

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
