"""Reads a training text back with the parsers of the method that is trained on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.methods.arg.entities import EntitySegment, TailJudgement
from pipeline.methods.arg.relations import RelationSegment
from pipeline.methods.arg.tokens import CLOSE, OPEN, RETRIEVE_RELATION, UNRELEVANT
from pipeline.methods.arg.transcript import UNKNOWN_ENTITY, Segment, T, read_labelled
from pipeline.methods.grounded_path import GroundedPath
from pipeline.types import Direction, Question, Relation

_UNNAMED = "m.unnamed"


@dataclass
class Reader:
    """Walks through a text as the method does: the method writes the paragraphs, and the model writes the rest."""

    text: str
    position: int = 0

    def read(self, segment: Segment[T]) -> tuple[T, str]:
        """Parse what follows the segment's paragraph, up to the next paragraph; return the value and the text."""
        assert self.text.startswith(segment.text_so_far), "the method would have written this paragraph differently"
        begin = len(segment.text_so_far)
        self.position = self.text.find(OPEN, begin) if OPEN in self.text[begin:] else len(self.text)
        return segment.parse(self.text[begin : self.position]), self.text[begin : self.position]

    @property
    def before(self) -> str:
        """The text up to the next paragraph."""
        return self.text[: self.position]


def assert_reads_back(row: Mapping[str, Any]) -> None:
    """Assert that ArG's own parsers read from a row's text exactly its labels, and nothing after them."""
    question = Question(row["id"], row["dataset"], row["split"], row["question"])
    reader = Reader(row["text"], len(RETRIEVE_RELATION))
    assert row["hops"]
    walk = GroundedPath(row["topic"]["name"])
    judgement = TailJudgement()
    for hop, step in zip(row["hops"], row["path"], strict=False):
        assert judgement.answers is None, "the walk ended earlier"
        relations = RelationSegment(question, False, reader.before, tuple(hop["relations"]), (walk,))
        judged, _ = reader.read(relations)
        assert {pair.name: pair.token.text for pair in judged.labelled} == hop["relations"]
        assert step["relation"] in hop["relations"]
        reached = _reached(question, reader, walk, step, list(hop["entities"]))
        judgement, written = reader.read(reached)
        assert {pair.name: pair.token.text for pair in read_labelled(written)} == hop["entities"]
        assert _printed(step) in hop["entities"]
        relevant = {name for name, label in hop["entities"].items() if label != UNRELEVANT}
        assert {_name_of(tail) for tail in judgement.relevant} == relevant
        assert judgement.rationality is not None
        assert judgement.rationality.text == hop["rationality"]
        walk = walk.then(Relation(step["relation"], step["direction"]), _node(_printed(step)))
    assert reader.position == len(reader.text)
    assert judgement.answers is not None
    assert judgement.answers.utility is not None
    assert judgement.answers.utility.text == row["utility"]
    useful = [text for text, label in row["answers"].items() if label != "[Not Useful]"]
    assert list(judgement.answers.texts) == (useful or list(row["answers"]))


def _reached(
    question: Question, reader: Reader, walk: GroundedPath, step: Mapping[str, Any], names: Sequence[str]
) -> EntitySegment:
    """Build the segment of one hop. The printed names serve as ids, because the text holds nothing else."""
    relation, before = step["relation"], reader.before
    end = UNKNOWN_ENTITY if walk.end == _UNNAMED else walk.end
    shown = reader.text[len(before) : reader.text.index(CLOSE, len(before))]
    incoming = {name for name in names if f"({name}, {relation}, {end})" in shown and name != end}
    directions: list[Direction] = ["in" if name in incoming else "out" for name in names]
    tails = tuple(
        walk.then(Relation(relation, each), _node(name)) for name, each in zip(names, directions, strict=True)
    )
    known = {node: None if node == _UNNAMED else str(node) for node in (walk.end, *map(_node, names))}
    return EntitySegment(question, False, before, walk, relation, tails, known, len(names), len(names), "graph")


def _printed(step: Mapping[str, Any]) -> str:
    return " ".join((step["name"] or UNKNOWN_ENTITY).split())


def _node(name: str) -> str:
    return _UNNAMED if name == UNKNOWN_ENTITY else name


def _name_of(tail: GroundedPath) -> str:
    return UNKNOWN_ENTITY if tail.end == _UNNAMED else str(tail.end)
