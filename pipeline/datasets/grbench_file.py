"""Streams the official GRBench graph file, a JSON object of gigabytes, with one node in memory at a time.

Layout of `graph.json`, plain or gzipped:
`{"<type>_nodes": {"<id>": {"features": {…}, "neighbors": {"<edge type>": ["<id>", …]}}}}` (specification §10.6).
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TextIO

from pipeline.datasets.files import open_file
from pipeline.datasets.remote import AnyPath, is_file
from pipeline.errors import UserError
from pipeline.text import valid_unicode
from pipeline.types import EntityId, LiteralNode, Triple

_CHUNK = 1 << 20
"""Characters read at a time."""
_LONGEST_TOKEN = 16
"""A parse error at least this far from the end of the buffer is an error of the file, not of a cut-off token."""
_SUFFIX = "_nodes"
_TEXT_FEATURES = {
    "opinion": "plain_text",
    "opinion_cluster": "syllabus",
    "docket": "pacer_case_id",
    "court": "full_name",
}
"""Node type → the feature that names its nodes; every other type has a `name` or a `title`."""
_MORE_FEATURES = {"author": ("organization",), "docket": ("case_name",)}
"""Node type → further features that the published baselines search."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One node of the file."""

    id: EntityId
    type: str
    features: dict[str, Any]
    """Name → text, number, boolean or list of texts; None for NaN and Infinity."""
    neighbors: dict[str, list[EntityId]]
    """Edge type → ids in file order. Ids may repeat, and may be missing from the graph."""

    @property
    def text(self) -> str | None:
        """The feature that names the node and is searched; None if it is empty or missing."""
        return node_text(self.type, self.features)


def find_graph(path: AnyPath, domain: str = "") -> AnyPath:
    """Return the graph file of a domain: `path` itself, or `graph.json[.gz]` in the domain's folder.

    `path` may be the graph file, the domain's folder or the folder above it. A `data.json` counts as its folder. Raises
    UserError if there is no graph.
    """
    if is_file(path) and not path.name.startswith("data.json"):
        return path
    folder = path.parent if is_file(path) else path
    if path.is_dir() and not f"/{path.resolve()}".endswith(f"/{domain}"):
        folder = path / domain
    for name in ("graph.json", "graph.json.gz"):
        if is_file(folder / name):
            return folder / name
    raise UserError(
        f"{folder} holds no graph.json or graph.json.gz: GRBench's graphs are a separate download; put each "
        "one next to the data.json of its domain"
    )


def read_nodes(file: AnyPath) -> Iterator[GraphNode]:
    """Yield the nodes of a graph file. Raises UserError, naming the position, if the file is malformed."""
    with open_file(file) as stream:
        reader = _Reader(io.TextIOWrapper(stream, encoding="utf-8"))
        try:
            for key in reader.members():
                node_type = _node_type(key)
                for id in reader.members():
                    yield _node(id, node_type, reader.value())
            reader.end()
        except _Malformed as error:
            raise UserError(f"{file} is not a GRBench graph: {error}") from None
        except UnicodeDecodeError as error:
            raise UserError(f"{file} cannot be read: {error}") from None


def graph_triples(file: AnyPath) -> Iterator[Triple]:
    """Yield the graph as triples: per node its type and name in Freebase's relations, its features, its neighbours.

    Features become literals: a list one literal per element, NaN none. An edge repeated in the file is repeated here.
    """
    for node in read_nodes(file):
        yield Triple(node.id, "type.object.type", node.type)
        if node.text is not None:
            yield Triple(node.id, "type.object.name", LiteralNode(node.text, lang="en"))
        for feature, value in node.features.items():
            for item in value if isinstance(value, list) else [value]:
                if item is not None:
                    yield Triple(node.id, feature, LiteralNode(_plain(item)))
        for edge_type, targets in node.neighbors.items():
            for target in targets:
                yield Triple(node.id, edge_type, target)


def node_text(node_type: str, features: dict[str, Any]) -> str | None:
    """Return the text of a node: the first feature listed for its type in GRBench's retrieval table."""
    feature = _naming_feature(node_type, features)
    return _plain(features[feature]) or None if feature else None


def labelled_text(node_type: str, features: dict[str, Any]) -> str | None:
    """Return all features of a node that GRBench's baselines search, each as `name: value`; None without any."""
    names = (_naming_feature(node_type, features), *_MORE_FEATURES.get(node_type, ()))
    found = ((name, _plain(features[name])) for name in names if name and features.get(name) is not None)
    return ". ".join(f"{name}: {text}" for name, text in found if text) or None


def _naming_feature(node_type: str, features: dict[str, Any]) -> str | None:
    named = _TEXT_FEATURES.get(node_type)
    known = (named,) if named else ("name", "title")
    return next((feature for feature in known if features.get(feature) is not None), None)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class _Malformed(Exception):
    """Raised for a malformed file; the message names the defect and its position."""


def _node_type(key: str) -> str:
    node_type, suffix, _ = key.partition(_SUFFIX)
    if not suffix or not node_type:
        raise _Malformed(f"top-level key {key!r} should be a node type followed by '{_SUFFIX}'")
    return node_type


def _node(id: str, node_type: str, content: Any) -> GraphNode:
    node = f"{node_type} node {id!r}"
    if not isinstance(content, dict):
        raise _Malformed(f"{node} should be an object with 'features' and 'neighbors'")
    features, neighbors = content.get("features", {}), content.get("neighbors", {})
    if not isinstance(features, dict):
        raise _Malformed(f"'features' of {node} should be an object")
    if not isinstance(neighbors, dict):
        raise _Malformed(f"'neighbors' of {node} should be an object")
    for edge_type, targets in neighbors.items():
        if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
            raise _Malformed(f"neighbors {edge_type!r} of {node} should be a list of node ids (strings)")
    return GraphNode(id, node_type, features, neighbors)


class _Reader:
    """An incremental JSON reader: objects are read member by member, values as a whole."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._decoder = json.JSONDecoder(parse_constant=lambda _: None)
        self._text = ""
        self._at = 0
        self._passed = 0
        """Number of characters before `_text`."""
        self._complete = False
        """Whether `_text` reaches the end of the file."""

    def members(self) -> Iterator[str]:
        """Yield the keys of an object. The caller must read each member's value before it takes the next key."""
        self._take("{")
        if self._peek() != "}":
            while True:
                key = self.value()
                if not isinstance(key, str):
                    raise self._error("expected a key in double quotes")
                self._take(":")
                yield key
                if self._peek() != ",":
                    break
                self._take(",")
        self._take("}")

    def value(self) -> Any:
        """Decode the next value, reading more of the file as needed."""
        self._peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                is_cut_off = error.msg.startswith("Unterminated string") or error.pos > len(self._text) - _LONGEST_TOKEN
                if self._complete or not is_cut_off:
                    raise self._error(error.msg, error.pos) from None
            except (ValueError, RecursionError) as error:
                raise self._error(str(error)) from None
            else:
                # A number at the end of the buffer may be cut off.
                if end < len(self._text) or self._complete:
                    self._at = end
                    return _without_surrogates(value)
            self._read()

    def end(self) -> None:
        """Check that only white space follows."""
        if self._peek():
            raise self._error("more text after the graph")

    def _peek(self) -> str:
        """Return the next character that is not white space, or an empty string at the end of the file."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in " \t\r\n":
                    return self._text[self._at]
                self._at += 1
            if self._complete:
                return ""
            self._read()

    def _take(self, expected: str) -> None:
        if self._peek() != expected:
            raise self._error(f"expected '{expected}'")
        self._at += 1

    def _read(self) -> None:
        """Drop the consumed text and read at least as much as remains, so that a long value costs linear time."""
        rest = self._text[self._at :]
        chunk = self._stream.read(max(_CHUNK, len(rest)))
        self._passed += self._at
        self._text, self._at, self._complete = rest + chunk, 0, not chunk

    def _error(self, message: str, at: int | None = None) -> _Malformed:
        at = self._at if at is None else at
        ended = " (the end of the file)" if self._complete and at >= len(self._text) else ""
        return _Malformed(f"{message} at character {self._passed + at:,}{ended}")


def _without_surrogates(value: Any) -> Any:
    """Return the value with lone surrogates, which JSON can spell but UTF-8 cannot, replaced by U+FFFD."""
    if isinstance(value, str):
        return valid_unicode(value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(item) for name, item in value.items()}
    return value
