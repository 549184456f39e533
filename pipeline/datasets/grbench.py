"""Reads GRBench, the questions of Graph-CoT (specification §10.6).

Layout, every file plain or gzipped, one folder per domain:

    {domain}/data.json       JSON Lines with `qid`, `question`, `answer` and `level`
    {domain}/graph.json      the domain's graph, a separate download; see `grbench_file.py`
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from pipeline.datasets.files import FileDataset, Row, Text, find_file, json_lines, read_examples
from pipeline.datasets.grbench_file import find_graph, graph_triples
from pipeline.datasets.interface import Reject
from pipeline.datasets.remote import AnyPath, DataPath
from pipeline.types import Example, Gold, GoldAnswer, Triple


class _Question(Row):
    qid: Text
    question: Text
    answer: str
    level: str | None = None


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class GRBench(FileDataset):
    """GRBench questions of one domain, without topic entities. The answer is one string; lists are joined by `, `.

    The keys are described in `conf/dataset/grbench.yaml`.
    """

    path: DataPath
    """The folder of all domains, the folder of this domain, or its `data.json`."""
    domain: str
    """`amazon`, `biomedical`, `dblp`, `goodreads`, `legal` or `maple/Biology` (… `Physics`)."""

    def examples(self, reject: Reject) -> Iterator[Example]:
        """Yield the questions. An id is the domain and a number (`amazon-0`). Raises UserError for a wrong file."""
        file = self._file()
        return read_examples(file, json_lines(file), self._example, reject, what=self._what)

    def count(self) -> int:
        """Return the number of lines."""
        return sum(1 for _ in json_lines(self._file()))

    def triples(self) -> Iterator[Triple]:
        """Yield the graph of the domain, to load it elsewhere; `kg=grbench` reads the file itself. Raises UserError."""
        return graph_triples(find_graph(self.path, self.domain))

    def _file(self) -> AnyPath:
        is_domain = self.path.parts[-len(self._parts) :] == self._parts
        return find_file(self.path, ("data.json",) if is_domain else (f"{self.domain}/data.json",), what=self._what)

    @property
    def _what(self) -> str:
        return f"GRBench questions of {self.domain}"

    @property
    def _parts(self) -> tuple[str, ...]:
        return PurePosixPath(self.domain).parts

    def _example(self, line: bytes) -> Example:
        row = _Question.model_validate_json(line)
        return Example(
            self.question(
                "-".join((*self._parts, row.qid)), row.question, meta={"domain": self.domain, "level": row.level}
            ),
            Gold(answers=(GoldAnswer(row.answer),) if row.answer else ()),
        )
