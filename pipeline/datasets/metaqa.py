"""Reads MetaQA: the WikiMovies graph and its 1-, 2- and 3-hop questions (specification §10.5).

Layout of the distributed folder, every file plain or gzipped:

    kb.txt                                one fact per line: head|relation|tail
    {hops}-hop/qa_{split}.txt             or {hops}-hop/vanilla/qa_{split}.txt; one question per line:
                                          who directed [Nine Lanterns]<TAB>answer|answer
    {hops}-hop/qa_{split}_qtype.txt       optional; the question type of each line, such as actor_to_movie_to_year
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, zip_longest
from typing import Literal

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from pipeline.datasets.files import BadRow, FileDataset, files_matching, find_files, lines, read_examples
from pipeline.datasets.interface import Reject
from pipeline.datasets.remote import AnyPath, DataPath
from pipeline.datasets.triples import delimited_triples
from pipeline.errors import UserError
from pipeline.types import Entity, Example, Gold, GoldAnswer, Relation, RelationPath, Triple

_RELATIONS = {
    "actor": "starred_actors",
    "director": "directed_by",
    "genre": "has_genre",
    "imdbrating": "has_imdb_rating",
    "imdbvotes": "has_imdb_votes",
    "language": "in_language",
    "tag": "has_tags",
    "tags": "has_tags",
    "writer": "written_by",
    "year": "release_year",
}
"""Name of a relation's end in question types → the relation. All relations start at a movie."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class MetaQA(FileDataset):
    """MetaQA questions with a given number of hops, and their graph. Nodes are names; brackets mark the topic.

    The keys are described in `conf/dataset/metaqa.yaml`.
    """

    path: DataPath
    """The distributed folder."""
    hops: Literal[1, 2, 3]

    def examples(self, reject: Reject) -> Iterator[Example]:
        """Yield the questions. An id ends in the 0-based line number. Raises UserError if the file is missing.

        Gold paths are derived from the question types, if that file exists.
        """
        file = self._file()
        types = next(iter(files_matching(self.path, (f"{self.hops}-hop/qa_{self.split}_qtype.txt",))), None)
        return read_examples(file, _rows(file, types), self._example, reject, what=self._what)

    def count(self) -> int:
        """Return the number of lines."""
        return sum(1 for _ in lines(self._file()))

    def triples(self) -> Iterator[Triple]:
        """Yield the facts of `kb.txt`, repeated lines included. Raises UserError for a missing file or a bad line."""
        return delimited_triples(find_files(self.path, ("kb.txt",), what="MetaQA graph")[0], "|")

    def _file(self) -> AnyPath:
        patterns = (f"{self.hops}-hop/qa_{self.split}.txt", f"{self.hops}-hop/vanilla/qa_{self.split}.txt")
        return find_files(self.path, patterns, what=self._what)[0]

    @property
    def _what(self) -> str:
        return f"{self.hops}-hop MetaQA questions"

    def _example(self, row: tuple[int, bytes, bytes | None]) -> Example:
        number, line, type_line = row
        marked, tab, answers = line.decode().partition("\t")
        before, opened, rest = marked.partition("[")
        topic, closed, after = rest.rpartition("]")
        if not tab or "\t" in answers:
            raise BadRow("expected a question, one tab and the answers")
        if not (opened and closed and topic):
            raise BadRow("expected a topic entity in square brackets in the question")
        names = dict.fromkeys(name for name in answers.split("|") if name)
        type_ = type_line.decode() if type_line is not None else None
        path = _path(type_) if type_ else ()
        return Example(
            self.question(
                f"{self.hops}hop-{self.split}-{number - 1}",
                f"{before}{topic}{after}",
                topics=[Entity(topic, topic)],
                meta={"hops": self.hops, "type": type_},
            ),
            Gold(
                answers=tuple(GoldAnswer(name, id=name) for name in names),
                paths={topic: (path,)} if path else {},
            ),
        )


def _rows(file: AnyPath, types: AnyPath | None) -> Iterator[tuple[int, tuple[int, bytes, bytes | None]]]:
    """Yield the numbered lines, each with the same line of the file of question types, if there is one."""
    if types is None:
        yield from ((number, (number, line, None)) for number, line in lines(file))
        return
    for question, type_ in zip_longest(lines(file), lines(types)):
        if question is None or type_ is None:
            raise UserError(f"{types} must have one line for each line of {file}")
        number, line = question
        yield number, (number, line, type_[1])


def _path(type_: str) -> RelationPath:
    """Return the relation path of a type such as `actor_to_movie_to_year`; empty for a type of another form."""
    path: list[Relation] = []
    for here, there in pairwise(type_.split("_to_")):
        if here == "movie" and there in _RELATIONS:
            path.append(Relation(_RELATIONS[there], "out"))
        elif there == "movie" and here in _RELATIONS:
            path.append(Relation(_RELATIONS[here], "in"))
        else:
            return ()
    return tuple(path)
