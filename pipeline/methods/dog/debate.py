"""The prompts of the debate: three roles in turn make the question one hop shorter (specification §16.4)."""

from __future__ import annotations

import re
from abc import ABC
from dataclasses import dataclass
from typing import ClassVar

from pipeline.llm.prompt import Prompt
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parsing import match_key, straighten, unquoted
from pipeline.methods.rendering import Names, Printer, as_question, one_line
from pipeline.methods.templates import load_template
from pipeline.types import Question

_QUESTION = re.compile(r"\bquestion\b", re.IGNORECASE)
_CLOSING = " \t*_'\".)"
"""What may stand after the question mark of an announced question."""
_ANNOUNCEMENT = re.compile(
    r"^\W{0,9}(?:\w++[ \t]++){0,2}?(?:simplified|simpler|shorter|new|better|final|revised|rewritten)[ \t]++question"
    r"(?:[ \t]++is)?+[ \t*_]*+:",
    re.IGNORECASE | re.MULTILINE,
)
"""The beginning of a line that announces the simpler question, whatever the question contains."""


@dataclass(frozen=True)
class DebatePrompt(Prompt[str], ABC):
    """One turn of the debate. Its reply is the text of the speaker, as it is."""

    question: Question
    """With the text that is to be simplified."""
    chains: tuple[GroundedPath, ...]
    """The facts of this turn."""
    names: Names
    speeches: tuple[tuple[str, str], ...] = ()
    """Who spoke before, and what."""

    def inputs(self) -> dict[str, str]:
        printer = Printer(self.names)
        return {
            "question": as_question(self.question.text),
            "facts": "\n".join(printer.chain(chain.triples) for chain in self.chains),
            "debate": "".join(f"{speaker}: {one_line(speech)}\n" for speaker, speech in self.speeches),
        }

    def parse(self, text: str) -> str:
        return text.strip()

    def fallback(self, text: str) -> str:
        return text.strip()


@dataclass(frozen=True)
class Simplify(DebatePrompt):
    """Proposes a simpler question."""

    role: ClassVar[str] = "dog.simplify"
    template = load_template(__file__, "simplify")


@dataclass(frozen=True)
class Criticise(DebatePrompt):
    """Says what is wrong with the proposal."""

    role: ClassVar[str] = "dog.criticise"
    template = load_template(__file__, "criticise")


@dataclass(frozen=True)
class Rewrite(DebatePrompt):
    """Writes the simpler question in good language."""

    role: ClassVar[str] = "dog.rewrite"
    template = load_template(__file__, "rewrite")


DEBATERS: tuple[tuple[str, type[DebatePrompt]], ...] = (
    ("Simplifier", Simplify),
    ("Critic", Criticise),
    ("Linguist", Rewrite),
)
"""In the order in which they speak."""


def simplified_question(speech: str, question: str) -> str:
    """Return the question that the last speech of a debate announces, else the whole speech; the old one if none."""
    simpler = unquoted(one_line(_after_announcement(straighten(speech))))
    return question if match_key(simpler).strip(" ?") in {"", match_key(question).strip(" ?")} else simpler


def _after_announcement(text: str) -> str:
    """Return what the last line that begins with an announcement announces.

    Without such a line, return what stands after the last colon that the word "question" precedes, on its line; else
    the whole text.
    """
    if announcements := list(_ANNOUNCEMENT.finditer(text)):
        return _to_question_mark(text[announcements[-1].end() :])
    start = end = 0
    for line in text.splitlines(keepends=True):
        *before_colons, rest = line.split(":")
        for part in before_colons:
            start += len(part) + 1
            end = start if _QUESTION.search(part) else end
        start += len(rest)
    return _to_question_mark(text[end:]) if end else text


def _to_question_mark(text: str) -> str:
    """Return the lines up to the first that ends with a question mark, without remarks after it; else all of them."""
    lines = text.splitlines()
    ends = (number for number, line in enumerate(lines, start=1) if line.rstrip(_CLOSING).endswith("?"))
    return "\n".join(lines[: next(ends, None)])
