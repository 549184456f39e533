"""The official GRBench graph file, read as a stream: one JSON object of gigabytes, one node in memory at a time.

`{"<type>_nodes": {"<id>": {"features": {…}, "neighbors": {"<edge type>": ["<id>", …]}}}}` (methods.md §10.6).
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from pipeline.errors import UserError
from pipeline.types import EntityId, LiteralNode, Triple

_CHUNK = 1 << 20
"""Characters read at a time."""
_LONGEST_TOKEN = 16
"""A parse error further than this from the end of what was read is an error of the file, not of reading too little."""
_SUFFIX = "_nodes"
_TEXT_FEATURES = {
    "opinion": "plain_text",
    "opinion_cluster": "syllabus",
    "docket": "pacer_case_id",
    "court": "full_name",
}
"""The feature that names a node of these types; every other type has a `name` or a `title`."""
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One node as it stands in the file."""

    id: EntityId
    type: str
    features: dict[str, Any]
    """Name → text, number, truth value or list of texts; None where the file says NaN or Infinity."""
    neighbors: dict[str, list[EntityId]]
    """Edge type → ids in the file's order; they may repeat, and need not be nodes of the graph."""

    @property
    def text(self) -> str | None:
        """The one feature that names the node and is searched for, or None when it is empty or missing."""
        return node_text(self.type, self.features)


def find_graph(path: Path, domain: str = "") -> Path:
    """The graph file of a domain: `path` itself, or `graph.json[.gz]` in the domain's folder, which is `path` or in it.

    A `data.json` stands for its folder. Raises UserError when there is no graph.
    """
    if path.is_file() and not path.name.startswith("data.json"):
        return path
    folder = path.parent if path.is_file() else path
    if path.is_dir() and not f"/{path.resolve()}".endswith(f"/{domain}"):
        folder = path / domain
    for name in ("graph.json", "graph.json.gz"):
        if (folder / name).is_file():
            return folder / name
    raise UserError(
        f"{folder} holds no graph.json or graph.json.gz; GRBench's graphs are a download of their own: put each beside "
        "the data.json of its domain"
    )


def read_nodes(file: Path) -> Iterator[GraphNode]:
    """Stream the nodes of a graph file, plain or gzip. Raises UserError, naming the place, when it is malformed."""
    with _opened(file) as stream:
        reader = _Reader(stream)
        try:
            for key in reader.members():
                node_type = _node_type(key)
                for id in reader.members():
                    yield _node(id, node_type, reader.value())
            reader.end()
        except _Malformed as error:
            raise UserError(f"{file} is not a GRBench graph: {error}") from None


def graph_triples(file: Path) -> Iterator[Triple]:
    """The graph as triples: type and name in Freebase's relations, then features as literals, then neighbours.

    A list feature gives one literal per element; NaN gives none. An edge repeated in the file is repeated here.
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
    """The text of a node: the first feature listed for its type in GRBench's retrieval table."""
    named = _TEXT_FEATURES.get(node_type)
    for feature in (named,) if named else ("name", "title"):
        if features.get(feature) is not None:
            return _plain(features[feature]) or None
    return None


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class _Malformed(Exception):
    """What is wrong with the file, and where."""


def _node_type(key: str) -> str:
    node_type, suffix, _ = key.partition(_SUFFIX)
    if not suffix or not node_type:
        raise _Malformed(f"top-level key {key!r} should be a node type followed by '{_SUFFIX}'")
    return node_type


def _node(id: str, node_type: str, content: Any) -> GraphNode:
    place = f"{node_type} node {id!r}"
    if not isinstance(content, dict):
        raise _Malformed(f"{place} should be an object with 'features' and 'neighbors'")
    features, neighbors = content.get("features", {}), content.get("neighbors", {})
    if not isinstance(features, dict):
        raise _Malformed(f"'features' of {place} should be an object")
    if not isinstance(neighbors, dict):
        raise _Malformed(f"'neighbors' of {place} should be an object")
    for edge_type, targets in neighbors.items():
        if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
            raise _Malformed(f"neighbors {edge_type!r} of {place} should be a list of node ids (strings)")
    return GraphNode(id, node_type, features, neighbors)


class _Reader:
    """An incremental JSON reader: objects are entered member by member, values are decoded whole."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._decoder = json.JSONDecoder(parse_constant=lambda _: None)
        self._text = ""
        self._at = 0
        self._passed = 0
        """Characters before `_text`."""
        self._complete = False
        """Whether `_text` reaches the end of the file."""

    def members(self) -> Iterator[str]:
        """Enter an object and yield its keys; the caller takes each member's value before the next key."""
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
        """Decode the next value, reading as much of the file as it needs."""
        self._peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated string") or error.pos > len(self._text) - _LONGEST_TOKEN
                if self._complete or not cut:
                    raise self._error(error.msg, error.pos) from None
            except (ValueError, RecursionError) as error:
                raise self._error(str(error)) from None
            else:
                # A number that touches the end of what was read may go on behind it.
                if end < len(self._text) or self._complete:
                    self._at = end
                    return _mended(value)
            self._read()

    def end(self) -> None:
        """Nothing but white space may follow."""
        if self._peek():
            raise self._error("more text after the graph")

    def _peek(self) -> str:
        """The next character that is no white space, or an empty string at the end."""
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
        """Drop what was taken and read as much again as is left, so that a long value costs linear time."""
        rest = self._text[self._at :]
        more = self._stream.read(max(_CHUNK, len(rest)))
        self._passed += self._at
        self._text, self._at, self._complete = rest + more, 0, not more

    def _error(self, message: str, at: int | None = None) -> _Malformed:
        at = self._at if at is None else at
        ended = " (the end of the file)" if self._complete and at >= len(self._text) else ""
        return _Malformed(f"{message} at character {self._passed + at:,}{ended}")


def _mended(value: Any) -> Any:
    """Half a surrogate pair, which JSON can spell but no text can hold, becomes the replacement character."""
    if isinstance(value, str):
        return value if value.isascii() else _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_mended(item) for item in value]
    return {_mended(name): _mended(item) for name, item in value.items()} if isinstance(value, dict) else value


@contextmanager
def _opened(file: Path) -> Iterator[TextIO]:
    try:
        with file.open("rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            yield io.TextIOWrapper(gzip.GzipFile(fileobj=raw) if zipped else raw, encoding="utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read: {error}") from None
