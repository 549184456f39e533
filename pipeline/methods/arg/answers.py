"""Reading the end of a text, `Answer: a[Fully Useful];b[Fully Useful][Utility:5]`, and forcing one (§4.5.4)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar

from pipeline.errors import ParseError
from pipeline.methods.answering import UNKNOWN
from pipeline.methods.arg.layout import Segment, without_retrieval
from pipeline.methods.arg.tokens import FULLY_USEFUL, NOT_USEFUL, Mark, find_marks
from pipeline.methods.instance import Instance
from pipeline.methods.parsing import clip, loose, twice
from pipeline.methods.rendering import Names, names_of, one_line
from pipeline.methods.simulation import answers_shown
from pipeline.types import Node, Question

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

_CUE = re.compile(r"\s*answers?\s*:", re.IGNORECASE)
_UTILITY = re.compile(r"\[\s*utility", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Answered:
    """The answers that end a text."""

    texts: tuple[str, ...] = ()
    """In the order given, without repeats; those marked as not useful only where there is no other."""
    utility: Mark | None = None
    raw: str = ""
    """The piece of text that they were read from."""


@dataclass(frozen=True)
class AnswerSegment(Segment[Answered]):
    """An answer where the model has not ended the walk itself: at the depth limit, or for want of a graph."""

    role: ClassVar[str] = "arg.answer"

    question: Question
    prompted: bool
    before: str
    """The text up to `[Retrieve Relation]`."""
    instances: tuple[Instance, ...]
    """The walks that the text tells of."""
    names: Names

    @property
    def shown(self) -> str:
        return without_retrieval(self.before)

    def parse(self, text: str) -> Answered:
        return twice(self._read, text)

    def fallback(self, text: str) -> Answered:
        return Answered(raw=text)

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """What the walks have come by; nothing where they have not, for the oracle knows only what it is shown."""
        named = self._ends()
        right = answers_shown(named, truth)
        if slip:
            wrong = [name for name in named.values() if name not in right] or [UNKNOWN]
            return " " + write_answers([slip.choice(wrong)], utility=5)
        return " " + (write_answers(right, utility=5) if right else write_unknown())

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        """Where the walks have ended."""
        texts = list(dict.fromkeys(self._ends().values()))
        return " " + (write_answers(texts, utility=3) if texts else write_unknown())

    def _ends(self) -> dict[Node, str]:
        return names_of((instance.end for instance in self.instances if instance.length), self.names)

    def _read(self, text: str) -> Answered:
        answered = read_answers(text, known_names(self.instances, self.names))
        if not answered.texts:
            raise ParseError(f"there is no answer: {clip(text)}")
        return answered


def read_answers(text: str, known: Mapping[str, str], begin: int = 0) -> Answered:
    """Read what follows `[No Retrieval]`, which ends at `begin`. `known` names are taken as the graph spells them."""
    raw = text[begin:]
    if cue := _CUE.match(text, begin):
        begin = cue.end()
    closing = _UTILITY.search(text, begin)
    end = closing.start() if closing else len(text)
    marks = find_marks(text)
    given: list[tuple[str, bool]] = []
    at = begin
    for mark in (mark for mark in marks if begin <= mark.start < end):
        items = _items(text[at : mark.start], known)
        given += [(item, True) for item in items[:-1]]
        given += [(item, mark.token != NOT_USEFUL) for item in items[-1:]]
        at = mark.end
    given += [(item, True) for item in _items(text[at:end], known)]
    kept = [item for item, useful in given if useful] or [item for item, _ in given]
    utility = next((mark for mark in marks if mark.kind == "utility" and mark.start >= end), None)
    return Answered(tuple(dict.fromkeys(kept)), utility, raw)


def known_names(instances: Iterable[Instance], names: Names) -> dict[str, str]:
    """The names of all nodes of some walks by their `loose` form."""
    nodes = dict.fromkeys(node for instance in instances for node in instance.nodes)
    return {loose(name): one_line(name) for name in names_of(nodes, names).values()}


def write_answers(texts: Sequence[str], *, utility: int) -> str:
    """The answers in the layout of §4.3, behind `Answer:`; all of them fully useful."""
    return write_judged(dict.fromkeys(texts, FULLY_USEFUL), f"[Utility:{utility}]")


def write_judged(usefulness: Mapping[str, str], utility: str) -> str:
    """Each answer with how useful it is (an empty text where nobody said), and the utility of all."""
    return ";".join(f"{one_line(text)}{label}" for text, label in usefulness.items()) + utility


def write_unknown() -> str:
    """What a simulated model writes that has nothing to say."""
    return f"{UNKNOWN}{NOT_USEFUL}[Utility:1]"


def _items(text: str, known: Mapping[str, str]) -> list[str]:
    """The answers of a piece of text without marks: one name that holds semicolons, or what they part."""
    text = one_line(text).removeprefix(";").strip()
    items = [text] if loose(text) in known else [item.strip() for item in text.split(";")]
    return [known.get(loose(item), item) for item in items if item]
