"""GRBench, the questions of Graph-CoT: one folder per domain (methods.md §10.6)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from pipeline.datasets.files import Row, Text, json_lines, locate, read_examples
from pipeline.datasets.port import Reject
from pipeline.kg.grbench_file import find_graph, graph_triples
from pipeline.types import Example, Gold, GoldAnswer, Question, Triple


class _Question(Row):
    qid: Text
    question: Text
    answer: str
    level: str | None = None


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class GRBench:
    """GRBench questions of one domain. No topic entity is named; the answer is one string, lists joined by `, `."""

    path: Path
    """The folder that holds the domains, the folder of the domain, or its `data.json` (JSON Lines, plain or gzip)."""
    domain: str
    """`amazon`, `biomedical`, `dblp`, `goodreads`, `legal` or `maple/Biology` (… `Physics`)."""
    split: str = "test"
    name: str = "grbench"

    def examples(self, reject: Reject) -> Iterator[Example]:
        """Read the questions; an id is made of domain and number (`amazon-0`). Raises UserError for a wrong file."""
        file = self._file()
        return read_examples(file, json_lines(file), self._example, reject, what=self._what)

    def count(self) -> int:
        """The lines of the file."""
        return sum(1 for _ in json_lines(self._file()))

    def triples(self) -> Iterator[Triple]:
        """The graph of the domain, for loading it elsewhere; runs ask it through `kg=grbench`. Raises UserError."""
        return graph_triples(find_graph(self.path, self.domain))

    def _file(self) -> Path:
        inside = self.path.parts[-len(self._parts) :] == self._parts
        return locate(self.path, ("data.json",) if inside else (f"{self.domain}/data.json",), what=self._what)

    @property
    def _what(self) -> str:
        return f"GRBench questions of {self.domain}"

    @property
    def _parts(self) -> tuple[str, ...]:
        return PurePosixPath(self.domain).parts

    def _example(self, line: bytes) -> Example:
        row = _Question.model_validate_json(line)
        return Example(
            Question(
                id="-".join((*self._parts, row.qid)),
                dataset=self.name,
                split=self.split,
                text=row.question,
                meta={"domain": self.domain, "level": row.level},
            ),
            Gold(answers=(GoldAnswer(row.answer),) if row.answer else ()),
        )
