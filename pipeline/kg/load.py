"""Converts the graph of any dataset to N-Triples, an Oxigraph store or a Virtuoso server, in constant memory.

A target is complete or does not exist: files and stores are written under a temporary name and then renamed. A fact
that no store can hold is rejected with a reason, and never changed.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import re
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyoxigraph

from pipeline.datasets.interface import Dataset, Reject
from pipeline.errors import UserError
from pipeline.kg.empty_graph import empty_graph
from pipeline.kg.sparql_client import check_endpoints
from pipeline.kg.virtuoso import GRAPH
from pipeline.rdf_terms import Terms
from pipeline.types import Rejected, Triple

Target: TypeAlias = Literal["ntriples", "oxigraph", "virtuoso"]

Tick: TypeAlias = Callable[[int], None]
"""A function that is called regularly with the number of triples that were read since the previous call."""

_TICK = 5_000
_BLOCK = 1 << 20
"""Bytes per write to a file or to Oxigraph."""
_REQUEST = 8 << 20
"""Bytes per request to a server."""
_EXACT = 1 << 19
"""Distinct values that are counted exactly, in about 50 MB. Larger numbers are estimates, to within 0.3 %."""


class Distinct:
    """A counter of distinct values: exact for few values, then estimated from a sample of their hashes."""

    def __init__(self) -> None:
        self._kept: set[int] = set()
        self._mask = 0
        """A value is in the sample if these bits of its hash are zero."""

    def add(self, value: Hashable) -> None:
        """Count a value once, however often it is added."""
        hashed = hash(value)
        if hashed & self._mask:
            return
        self._kept.add(hashed)
        if len(self._kept) > _EXACT:
            self._mask = 2 * self._mask + 1
            self._kept = {kept for kept in self._kept if not kept & self._mask}

    @property
    def count(self) -> int:
        """The number of distinct values, exact or estimated."""
        return len(self._kept) * (self._mask + 1)

    @property
    def exact(self) -> bool:
        """Whether `count` is exact."""
        return self._mask == 0

    def __str__(self) -> str:
        return f"{self.count:,}" if self.exact else f"about {self.count:,}"


@dataclass(slots=True)
class Summary:
    """Numbers of distinct values in a graph, exact or estimated."""

    triples: Distinct = field(default_factory=Distinct)
    entities: Distinct = field(default_factory=Distinct)
    relations: Distinct = field(default_factory=Distinct)
    literals: Distinct = field(default_factory=Distinct)
    read: int = 0
    """Triples of the dataset, including duplicates and rejected ones."""
    rejected: int = 0

    def add(self, triple: Triple) -> None:
        """Count a fact."""
        self.triples.add(triple)
        self.relations.add(triple.relation)
        for node in (triple.head, triple.tail):
            (self.entities if isinstance(node, str) else self.literals).add(node)


def load_graph(
    dataset: Dataset,
    target: Target,
    output: Path | None,
    *,
    reject: Reject,
    endpoints: Sequence[str] = (),
    timeout_s: float | None = None,
    terms: Terms | None = None,
    tick: Tick = lambda _: None,
) -> Summary:
    """Load the dataset's graph into the file or folder `output`, or into the servers at `endpoints`.

    A server has `timeout_s` seconds to answer each request; None waits for ever. Raises UserError if the target is
    missing, cannot be written, is an existing store, or does not answer.
    """
    terms, summary = terms or Terms(), Summary()
    lines = _lines(dataset, terms, summary, reject, tick)
    if target == "virtuoso":
        if not endpoints:
            raise UserError("target=virtuoso needs the servers to load: kg.endpoints=[http://127.0.0.1:8890/sparql]")
        post(lines, endpoints, timeout_s)
    elif output is None:
        raise UserError(f"target={target} needs output=, the {'file' if target == 'ntriples' else 'folder'} to write")
    else:
        {"ntriples": write_ntriples, "oxigraph": bulk_load}[target](lines, output)
    return summary


def write_ntriples(lines: Iterable[bytes], output: Path) -> None:
    """Write an N-Triples file, compressed if its name ends in `.gz`. An existing file is replaced."""
    with _temporary_output(output) as partial, partial.open("wb") as raw:
        if output.suffix == ".gz":
            with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=5, mtime=0) as stream:
                stream.writelines(_blocks(lines, _BLOCK))
        else:
            raw.writelines(_blocks(lines, _BLOCK))


def bulk_load(lines: Iterable[bytes], output: Path) -> None:
    """Build an Oxigraph store in a folder that does not exist or is empty."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"{output} already exists; remove it or choose another output=")
    with _temporary_output(output) as partial:
        store = pyoxigraph.Store(str(partial))
        store.bulk_load(input=io.BufferedReader(_Stream(lines)), format=pyoxigraph.RdfFormat.N_TRIPLES)
        store.flush()


def post(lines: Iterable[bytes], endpoints: Sequence[str], timeout_s: float | None) -> None:
    """Add N-Triples to the graph `GRAPH` of each of the running Virtuoso servers, over HTTP.

    Existing facts are kept; loading the same facts again changes nothing. The account is read from `VIRTUOSO_USER` and
    `VIRTUOSO_PASSWORD` (default: `dba`/`dba`, as on a fresh server).
    """
    check_endpoints(endpoints)
    for block in _blocks(lines, _REQUEST):
        for endpoint in endpoints:
            _post(block, endpoint, timeout_s)


def _lines(dataset: Dataset, terms: Terms, summary: Summary, reject: Reject, tick: Tick) -> Iterator[bytes]:
    """Yield the storable facts as lines. Reject the others with their number in the stream."""
    for number, triple in enumerate(dataset.triples(), start=1):
        summary.read = number
        if number % _TICK == 0:
            tick(_TICK)
        if (reason := terms.defect(triple)) is None:
            summary.add(triple)
            yield terms.n_triple(triple).encode()
        else:
            summary.rejected += 1
            reject(Rejected(f"graph of {dataset.name}", number, reason))
    tick(summary.read % _TICK)
    if summary.read == summary.rejected:
        raise empty_graph(f"the graph of {dataset.name}")


@contextlib.contextmanager
def _temporary_output(output: Path) -> Iterator[Path]:
    """Yield a temporary path next to `output`. Rename it to `output` at the end, or remove it after an error."""
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}-") as folder:
            partial = Path(folder, output.name)
            yield partial
            partial.replace(output)
    except OSError as error:
        raise UserError(f"{output} cannot be written: {error}") from None


def _blocks(lines: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield complete lines in blocks of about `size` bytes."""
    block, length = [], 0
    for line in lines:
        block.append(line)
        length += len(line)
        if length >= size:
            yield b"".join(block)
            block, length = [], 0
    if block:
        yield b"".join(block)


class _Stream(io.RawIOBase):
    """Lines as a binary file that Oxigraph reads."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        super().__init__()
        self._blocks = _blocks(lines, _BLOCK)
        self._block = io.BytesIO()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not (read := self._block.readinto(buffer)):
            self._block = io.BytesIO(next(self._blocks, b""))
            read = self._block.readinto(buffer)
        return read


def _post(block: bytes, endpoint: str, timeout_s: float | None) -> None:
    """Add N-Triples by the SPARQL graph store protocol. Raises UserError with the server's message.

    They are sent as Turtle, which includes N-Triples: Virtuoso guesses the format from the first bytes, and a long text
    at the start would mislead it.
    """
    store = urllib.parse.urljoin(endpoint, f"/sparql-graph-crud-auth?graph-uri={GRAPH}")
    passwords = urllib.request.HTTPPasswordMgrWithDefaultRealm()
    user, password = os.environ.get("VIRTUOSO_USER", "dba"), os.environ.get("VIRTUOSO_PASSWORD", "dba")
    passwords.add_password(None, store, user, password)
    opener = urllib.request.build_opener(urllib.request.HTTPDigestAuthHandler(passwords))
    request = urllib.request.Request(  # noqa: S310 — the user's own server
        store, b"@prefix : <urn:> .\n" + block, {"Content-Type": "text/turtle"}, method="POST"
    )
    try:
        with opener.open(request, timeout=timeout_s) as response:
            response.read()
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            raise UserError(f"{endpoint} refuses write access; set VIRTUOSO_USER and VIRTUOSO_PASSWORD") from None
        message = " ".join(re.sub("<[^>]*>", " ", error.read().decode(errors="replace")).split())
        raise UserError(f"{endpoint} could not load the graph: {message[:400]}") from None
    except OSError as error:
        if isinstance(getattr(error, "reason", error), TimeoutError):
            raise UserError(
                f"{endpoint} did not answer within kg.timeout_s={timeout_s} seconds: check that the server works, or "
                "allow it more time"
            ) from None
        reason = getattr(error, "reason", error)
        raise UserError(
            f"{endpoint} cannot be reached ({reason}): start the server, or set kg.endpoints to its URL"
        ) from None
