"""`arg.hypo`, `arg.relations`: relations made up to sharpen retrieval, and those retrieved, judged (§4.5.1, §4.5.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar

from pipeline.errors import ParseError
from pipeline.methods.arg.layout import Labelled, Segment, find_name, paragraph, read_labelled, write_labelled
from pipeline.methods.arg.simulation import all_next, best_next
from pipeline.methods.arg.tokens import (
    FULLY_RELEVANT,
    PARTIALLY_RELEVANT,
    RETRIEVE_ENTITY,
    UNRELEVANT,
)
from pipeline.methods.instance import Instance
from pipeline.methods.parsing import clip, loose, twice
from pipeline.methods.rendering import one_line
from pipeline.methods.simulation import rank_relations
from pipeline.types import Question

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

_LONGEST = 200
"""Characters of a made-up relation that count."""


@dataclass(frozen=True)
class HypotheticalRelations(Segment[tuple[str, ...]]):
    """Relations that the model would hope to find next, before it has seen any."""

    role: ClassVar[str] = "arg.hypo"

    question: Question
    prompted: bool
    before: str
    """The text up to `[Retrieve Relation]`."""
    instances: tuple[Instance, ...]
    """The walks that the text tells of."""

    @property
    def shown(self) -> str:
        return self.before

    def parse(self, text: str) -> tuple[str, ...]:
        return twice(self._read, text)

    def fallback(self, text: str) -> tuple[str, ...]:
        """None: retrieval goes without."""
        return ()

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """The relations that the best gold paths take next; a slip: another one of the gold paths, or nonsense."""
        right = best_next(self.instances, truth)
        if slip:
            known = {relation.name for paths in truth.paths.values() for path in paths for relation in path}
            right = [slip.choice(sorted(known.difference(right)) or ["common.topic.image"])]
        return _write((relation, FULLY_RELEVANT) for relation in right or ["common.topic.image"])

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        """The question itself: there is nothing else that a relation could be like."""
        return _write([(one_line(self.question.text), FULLY_RELEVANT)])

    def _read(self, text: str) -> tuple[str, ...]:
        kept = [pair.name for pair in read_labelled(text) if pair.mark.token != UNRELEVANT]
        if names := tuple(dict.fromkeys(one_line(name)[-_LONGEST:] for name in kept if name)):
            return names
        raise ParseError(f"no relation is followed by its relevance: {clip(text)}")


@dataclass(frozen=True)
class RelationSegment(Segment[tuple[Labelled, ...]]):
    """The relevance of each relation of a group, in the order written."""

    role: ClassVar[str] = "arg.relations"

    question: Question
    prompted: bool
    before: str
    """The text up to `[Retrieve Relation]`."""
    group: tuple[str, ...]
    """The relations offered."""
    instances: tuple[Instance, ...]
    """The walks that the text tells of."""

    @property
    def shown(self) -> str:
        return self.before + paragraph(self.group)

    def written(self, labels: Mapping[str, str]) -> str:
        """The segment that gives each relation of the group its label."""
        return _write((relation, labels[relation]) for relation in self.group)

    def parse(self, text: str) -> tuple[Labelled, ...]:
        return twice(self._read, text)

    def fallback(self, text: str) -> tuple[Labelled, ...]:
        """None: the node dies."""
        return ()

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """Fully relevant is what the best gold paths take next, partially what others do; a slip picks a wrong one."""
        best, any = best_next(self.instances, truth), all_next(self.instances, truth)
        if slip:
            wrong = [relation for relation in self.group if relation not in any]
            return self._write(wrong and [slip.choice(wrong)], ())
        return self._write(best, any)

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        """The relation most like the question is fully relevant, the next one partially."""
        ranking = rank_relations(self.group, self.question.text, encoder)
        return self._write(ranking[:1], ranking[1:2])

    def _read(self, text: str) -> tuple[Labelled, ...]:
        offered = {loose(relation): relation for relation in self.group}
        read: dict[str, Labelled] = {}
        for pair in read_labelled(text):
            if (relation := find_name(pair.name, offered)) is not None:
                read.setdefault(relation, Labelled(relation, pair.mark))
        if not read:
            raise ParseError(f"no relation of the paragraph is followed by its relevance: {clip(text)}")
        return tuple(read.values())

    def _write(self, fully: Collection[str], partially: Collection[str]) -> str:
        labels = dict.fromkeys(self.group, UNRELEVANT)
        labels |= {relation: PARTIALLY_RELEVANT for relation in self.group if relation in partially}
        labels |= {relation: FULLY_RELEVANT for relation in self.group if relation in fully}
        return self.written(labels)


def _write(labelled: Iterable[tuple[str, str]]) -> str:
    return write_labelled(labelled) + RETRIEVE_ENTITY
