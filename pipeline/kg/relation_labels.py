"""The names under which relations are shown where their own names say nothing: `educated at` for Wikidata's P69.

A label comes from the graph and may hold anything. It is shown in one line, and never for two relations.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from pipeline.rdf_terms import Terms
from pipeline.text import printable
from pipeline.types import EntityId

_LONGEST = 80
_END_OF_IRI = re.compile(r"[^/#]+(?=[/#]?\Z)")
_SEPARATORS = re.compile(r"\s*(?:->|→|[;|^`<>{}\[\]\"])+\s*")
"""What separates or encloses relations in prompts and replies."""


def offered_relations(names: Iterable[str], keeps: Callable[[str], bool], terms: Terms) -> list[str]:
    """Return the relations that may be offered, as they are shown, in order. `names` are their plain names."""
    return sorted(terms.relation_labels.get(name, name) for name in names if keeps(name))


def labelled_nodes(names: Iterable[str], terms: Terms) -> dict[str, EntityId]:
    """Return, for each relation by its plain name, the node whose label it is shown by."""
    nodes = {name: terms.labelled_node(terms.relation_iri(name)) for name in names}
    return {name: node for name, node in nodes.items() if node is not None}


def shown_names(nodes: Mapping[str, EntityId], labels: Mapping[EntityId, str | None], terms: Terms) -> dict[str, str]:
    """Return the name under which each relation is shown, by its plain name.

    A relation that is shown by its plain name is not in the result. Two relations with one label are told apart by
    their plain names.
    """
    wanted = {name: _shown(name, labels.get(node), node, terms) for name, node in nodes.items()}
    taken = Counter(wanted.values()) + Counter(nodes.keys())
    shown = {name: text if taken[text] == 1 else f"{text} [{name}]" for name, text in wanted.items() if text != name}
    clashes = Counter(shown.values()) + Counter(nodes.keys())
    return {name: text for name, text in shown.items() if clashes[text] == 1}


def _shown(name: str, label: str | None, node: EntityId, terms: Terms) -> str:
    text = _one_line(label or "") or _end_of(node)
    return terms.relation_form(terms.relation_iri(name)).replace("{}", text)


def _end_of(node: EntityId) -> str:
    """Return the last part of an id that is an IRI; any other id as it is."""
    last = _END_OF_IRI.search(node) if "://" in node else None
    return last[0] if last else node


def _one_line(label: str) -> str:
    """Return a label without line ends, controls, and characters that separate relations in prompts."""
    return printable(" ".join(_SEPARATORS.sub(" ", label).split())[:_LONGEST].strip())
