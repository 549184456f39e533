"""The vocabulary of a graph: how its IRIs, names, types, mediators and redirects are recognised (specification §8.9).

The presets are in `conf/kg/vocabulary`: Freebase's, Wikidata's, and that of graphs with `rdfs:label`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from pipeline.rdf_terms import Terms

_NOT_IN_IRIS = re.compile(r"[\x00-\x20<>\"{}|^`\\]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")

_BEFORE_VOCABULARIES: Mapping[str, object] = {
    "names": ("type.object.name",),
    "aliases": ("common.topic.alias",),
    "languages": ("en",),
    "relation_labels": False,
    "types": "type.object.type",
    "mediator_flag": "freebase.type_hints.mediator",
    "mediator_ids": None,
    "unnamed_mediators": True,
    "inverses": "type.property.reverse_property",
    "redirects": None,
    "hidden": ("type.", "common.", "freebase.", "kg.", "wikipedia.", "dataworld.", "user."),
}
"""How every graph was read before it had a vocabulary. What still has these values leaves its fingerprint as it was."""
_IN_THE_FACTS = frozenset({"namespace", "opaque_ids", "relations", "statements", "percent_encoded"})
"""They decide how facts are written, and with that the fingerprint already."""


def _predicate(text: str) -> str:
    """Refuse what is neither an IRI nor the name of a relation: it would change the meaning of a query."""
    if not text or ("://" in text and _NOT_IN_IRIS.search(text)):
        raise ValueError(f"{text!r} is neither an IRI nor the name of a relation")
    return text


def _namespace(text: str) -> str:
    if _NOT_IN_IRIS.search(text) or (text and not _SCHEME.match(text)):
        raise ValueError(f"{text!r} is not the start of an IRI")
    return text


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return text


def _language(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8})*", text):
        raise ValueError(f"{text!r} is not a language tag, such as en or pt-br")
    return text.lower()


Predicate = Annotated[str, AfterValidator(_predicate)]
Namespace = Annotated[str, AfterValidator(_namespace)]
Word = Annotated[str, Field(pattern=r"^\w+$")]
Pattern = Annotated[str, AfterValidator(_pattern)]
Language = Annotated[str, AfterValidator(_language)]


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class GraphVocabulary:
    """How a graph is read. The fields are described in `conf/kg/vocabulary/freebase.yaml`.

    A predicate is the name of a relation, or an IRI.
    """

    namespace: Namespace
    opaque_ids: Pattern
    percent_encoded: bool
    relations: Namespace | None
    statements: Mapping[Word, Namespace] | None
    relation_labels: bool
    hidden: tuple[str, ...]
    names: tuple[Predicate, ...]
    aliases: tuple[Predicate, ...]
    languages: Annotated[tuple[Language, ...], Field(min_length=1)]
    types: Predicate | None
    mediator_flag: Predicate | None
    mediator_ids: Pattern | None
    unnamed_mediators: bool
    inverses: Predicate | None
    redirects: Predicate | None

    @model_validator(mode="after")
    def _check(self) -> GraphVocabulary:
        prefixes = (self.namespace, self.relations, *(self.statements or {}).values())
        if self.percent_encoded and "" in prefixes:
            raise ValueError("with percent_encoded=true, no prefix of namespace, relations and statements may be empty")
        return self

    @property
    def terms(self) -> Terms:
        """The RDF terms of the graph's ids and relations."""
        forms = {} if self.relations is None else {"{}": self.relations}
        further = {f"{{}} ({word})": namespace for word, namespace in (self.statements or {}).items()}
        return Terms(self.namespace, self.opaque_ids, forms | further, self.percent_encoded)

    @property
    def meta_predicates(self) -> tuple[str, ...]:
        """The predicates that say how a node is named, typed or redirected. They are never offered as relations."""
        single = (self.mediator_flag, self.inverses, self.redirects)
        return (*self.names, *self.aliases, *(each for each in single if each is not None))

    def marks(self) -> Iterator[str]:
        """Yield a line for each part of the vocabulary that belongs to the fingerprint of a graph.

        None for a graph that is read as all graphs were read before they had vocabularies.
        """
        for name in sorted(field.name for field in fields(self)):
            value = getattr(self, name)
            if name not in _IN_THE_FACTS and _BEFORE_VOCABULARIES.get(name) != value:
                yield f"vocabulary\t{name}\t{value}"
