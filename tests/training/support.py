"""Reading a training text back with the parsers of the method that is trained on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.methods.arg.entities import UNKNOWN_ENTITY, EntitySegment, Reading
from pipeline.methods.arg.layout import Segment, T, read_labelled
from pipeline.methods.arg.relations import RelationSegment
from pipeline.methods.arg.tokens import OPEN, RETRIEVE_RELATION, UNRELEVANT
from pipeline.methods.instance import Instance
from pipeline.types import Question, Relation

_UNNAMED = "m.unnamed"


@dataclass
class Reader:
    """Goes through a text as the method does: it lays out what the graph has, and the model writes the rest."""

    text: str
    at: int = 0

    def read(self, segment: Segment[T]) -> tuple[T, str]:
        """What the method makes of what is written after the segment's paragraph, up to the next paragraph."""
        assert self.text.startswith(segment.shown), "the method would have laid this out in another way"
        begin = len(segment.shown)
        self.at = self.text.find(OPEN, begin) if OPEN in self.text[begin:] else len(self.text)
        return segment.parse(self.text[begin : self.at]), self.text[begin : self.at]

    @property
    def before(self) -> str:
        """The text up to where the next paragraph begins."""
        return self.text[: self.at]


def assert_reads_back(row: Mapping[str, Any]) -> None:
    """A row's text says, to ArG's own parsers, exactly what its labels say; and nothing after that."""
    question = Question(row["id"], row["dataset"], row["split"], row["question"])
    reader = Reader(row["text"], len(RETRIEVE_RELATION))
    assert row["hops"]
    walk = Instance(row["topic"]["name"])
    reading = Reading()
    for hop, step in zip(row["hops"], row["path"], strict=False):
        assert reading.answered is None, "the walk has ended before"
        relations = RelationSegment(question, False, reader.before, tuple(hop["relations"]), (walk,))
        labelled, _ = reader.read(relations)
        assert {pair.name: pair.mark.token for pair in labelled} == hop["relations"]
        assert step["relation"] in hop["relations"]
        reached = _reached(question, reader.before, walk, step, list(hop["entities"]))
        reading, written = reader.read(reached)
        assert {pair.name: pair.mark.token for pair in read_labelled(written)} == hop["entities"]
        assert _printed(step) in hop["entities"]
        relevant = {name for name, label in hop["entities"].items() if label != UNRELEVANT}
        assert {_name_of(tail) for tail in reading.relevant} == relevant
        assert reading.rationality is not None
        assert reading.rationality.token == hop["rationality"]
        walk = walk.then(Relation(step["relation"], step["direction"]), _node(_printed(step)))
    assert reader.at == len(reader.text)
    assert reading.answered is not None
    assert reading.answered.utility is not None
    assert reading.answered.utility.token == row["utility"]
    useful = [text for text, label in row["answers"].items() if label != "[Not Useful]"]
    assert list(reading.answered.texts) == (useful or list(row["answers"]))


def _reached(
    question: Question, before: str, walk: Instance, step: Mapping[str, Any], names: Sequence[str]
) -> EntitySegment:
    """Nodes are called what they are printed as: that is all that a text has of them."""
    relation = Relation(step["relation"], step["direction"])
    tails = tuple(walk.then(relation, _node(name)) for name in names)
    known = {node: None if node == _UNNAMED else str(node) for node in (walk.end, *map(_node, names))}
    return EntitySegment(question, False, before, walk, relation.name, tails, known, len(names), len(names))


def _printed(step: Mapping[str, Any]) -> str:
    return " ".join((step["name"] or UNKNOWN_ENTITY).split())


def _node(name: str) -> str:
    return _UNNAMED if name == UNKNOWN_ENTITY else name


def _name_of(tail: Instance) -> str:
    return UNKNOWN_ENTITY if tail.end == _UNNAMED else str(tail.end)
