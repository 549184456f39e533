"""`arg.entities`: the tails of one relation judged, the path judged, and either the next hop or the answer (§4.5.3)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, ClassVar

from pipeline.errors import ParseError
from pipeline.methods.arg.answers import Answered, known_names, read_answers, write_answers, write_unknown
from pipeline.methods.arg.layout import Segment, find_name, paragraph, read_labelled, write_labelled
from pipeline.methods.arg.simulation import has_arrived, next_relations
from pipeline.methods.arg.tokens import (
    FULLY_REASONABLE,
    FULLY_RELEVANT,
    NO_RETRIEVAL,
    PARTIALLY_REASONABLE,
    RETRIEVE_RELATION,
    UNREASONABLE,
    UNRELEVANT,
    Mark,
    find_marks,
)
from pipeline.methods.instance import Instance
from pipeline.methods.parsing import clip, loose, twice
from pipeline.methods.rendering import Names, Printer, node_name, one_line
from pipeline.methods.simulation import answers_shown
from pipeline.types import Node, Question

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

UNKNOWN_ENTITY = "Unknown Entity"
"""Stands for all unnamed tails."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a generator makes of the tails of one relation."""

    relevant: tuple[Instance, ...] = ()
    """The walk, one hop longer, to each tail that is fully or partially relevant."""
    relevance: tuple[Mark, ...] = ()
    """All relevance tokens of the segment."""
    rationality: Mark | None = None
    ends: bool = False
    """Whether the walk ends here: by `[No Retrieval]`, or because the segment breaks off."""
    answered: Answered | None = None
    """The answers after `[No Retrieval]`."""

    @property
    def is_unreasonable(self) -> bool:
        return self.rationality is not None and self.rationality.token == UNREASONABLE


@dataclass(frozen=True)
class EntitySegment(Segment[Reading]):
    """Which tails of a relation are relevant, whether the path is reasonable, and how it goes on."""

    role: ClassVar[str] = "arg.entities"

    question: Question
    prompted: bool
    before: str
    """The text up to `[Retrieve Entity]`."""
    source: Instance
    """The walk to the entity that the relation is followed from."""
    relation: str
    tails: tuple[Instance, ...]
    """The walk to each tail that was fetched."""
    names: Names
    max_shown: int
    """Tails put into the paragraph."""
    cvt_fanout: int
    """Unnamed tails that one placeholder stands for."""

    @property
    def shown(self) -> str:
        head = self._printer.node(self.source.end)
        names = list(self.by_name)[: self.max_shown]
        return self.before + paragraph(f"({one_line(head)}, {self.relation}, {name})" for name in names)

    def written(self, labels: Mapping[str, str], rationality: str, answer: str | None) -> str:
        """The segment that labels each tail shown and the path, and answers, or goes on where there is no answer."""
        labelled = write_labelled((name, labels[name]) for name in self.shown_tails)
        end = RETRIEVE_RELATION if answer is None else f"{NO_RETRIEVAL}Answer: {answer}"
        return f"{labelled}{rationality}{end}"

    def parse(self, text: str) -> Reading:
        return twice(self._read, text)

    def fallback(self, text: str) -> Reading:
        """A leaf without an answer, worth nothing."""
        return Reading(ends=True)

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """Relevant is what gold paths go on from; where none does, what is sought: then it answers.

        A slip calls relevant what is not, and where there is no such tail it ends the walk too early, or too late.
        """
        sought = answers_shown(self._named, truth)
        if going_on := self.going_on(truth):
            return self._write_slip(going_on, slip) if slip else self._write(going_on, FULLY_REASONABLE, None)
        relevant = self.sought(truth)
        if slip:
            return self._write_slip(relevant, slip)
        if not relevant:
            return self._write((), UNREASONABLE, write_unknown())
        on_path = any(has_arrived(tail, truth) for name in relevant for tail in self.shown_tails[name])
        rationality = FULLY_REASONABLE if on_path else PARTIALLY_REASONABLE
        return self._write(relevant, rationality, write_answers(sought, utility=5) if sought else write_unknown())

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        """Everything is relevant, and the answer as soon as it has a name: who does not read goes no further."""
        names = [name for name in self.shown_tails if name != UNKNOWN_ENTITY]
        return self._write(self.shown_tails, FULLY_REASONABLE, write_answers(names, utility=3) if names else None)

    def _read(self, text: str) -> Reading:
        marks = find_marks(text)
        turn = next((mark for mark in marks if mark.token in (RETRIEVE_RELATION, NO_RETRIEVAL)), None)
        if turn is None:
            raise ParseError(f"there is neither {RETRIEVE_RELATION} nor {NO_RETRIEVAL}: {clip(text)}")
        answered = None
        if turn.token == NO_RETRIEVAL:
            answered = read_answers(text, known_names(self.tails, self.names), turn.end)
            if not answered.texts:
                raise ParseError(f"there is no answer after {NO_RETRIEVAL}: {clip(text)}")
        before = [mark for mark in marks if mark.start < turn.start]
        return Reading(
            relevant=self._read_relevant(text[: turn.start]),
            relevance=tuple(mark for mark in before if mark.kind == "relevance"),
            rationality=next((mark for mark in before if mark.kind == "rationality"), None),
            ends=answered is not None,
            answered=answered,
        )

    def _read_relevant(self, text: str) -> tuple[Instance, ...]:
        fetched = {loose(name): name for name in self.by_name}
        named = ((find_name(pair.name, fetched), pair.mark) for pair in read_labelled(text))
        relevant = dict.fromkeys(name for name, mark in named if name is not None and mark.token != UNRELEVANT)
        return tuple(tail for name in relevant for tail in self._stands_for(name))

    def _stands_for(self, name: str) -> list[Instance]:
        tails = self.by_name[name]
        return tails[: self.cvt_fanout] if name == UNKNOWN_ENTITY else tails

    @property
    def shown_tails(self) -> dict[str, list[Instance]]:
        """What the paragraph shows: the tails of each name."""
        return {name: self.by_name[name] for name in list(self.by_name)[: self.max_shown]}

    @cached_property
    def _printer(self) -> Printer:
        return Printer(self.names, unnamed=UNKNOWN_ENTITY)

    @cached_property
    def by_name(self) -> dict[str, list[Instance]]:
        """The tails by their printed names, in the order of the tails."""
        by_name: dict[str, list[Instance]] = {}
        for tail in self.tails:
            by_name.setdefault(one_line(self._printer.node(tail.end)), []).append(tail)
        return by_name

    # What simulated models write

    def going_on(self, truth: Truth) -> list[str]:
        """The tails shown from which gold paths go on."""
        return [name for name, tails in self.shown_tails.items() if any(next_relations(tail, truth) for tail in tails)]

    def sought(self, truth: Truth) -> list[str]:
        """The tails shown that are what is sought."""
        return [name for name, tails in self.shown_tails.items() if any(self._is_sought(t, truth) for t in tails)]

    @property
    def _named(self) -> dict[Node, str]:
        return {tail.end: name for name, tails in self.shown_tails.items() if name != UNKNOWN_ENTITY for tail in tails}

    def _is_sought(self, tail: Instance, truth: Truth) -> bool:
        return truth.is_sought(tail.end, node_name(tail.end, self.names))

    def _write_slip(self, right: list[str], slip: Random) -> str:
        wrong = [name for name in self.shown_tails if name not in right]
        if wrong:
            chosen = slip.choice(wrong)
            ends = slip.random() < 0.5 and chosen != UNKNOWN_ENTITY
            return self._write([chosen], FULLY_REASONABLE, write_answers([chosen], utility=5) if ends else None)
        return self._write((), UNREASONABLE, write_unknown())

    def _write(self, relevant: Collection[str], rationality: str, answer: str | None) -> str:
        labels = "".join(f"{name}{FULLY_RELEVANT if name in relevant else UNRELEVANT}" for name in self.shown_tails)
        end = RETRIEVE_RELATION if answer is None else f"{NO_RETRIEVAL}Answer: {answer}"
        return f"{labels}{rationality}{end}"
