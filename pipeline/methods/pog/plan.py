"""The prompt `pog.plan`: divide the question into sub-objectives (specification §16.3)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.methods.parsing import LenientPrompt, Value, first_line, numbered, read_list, unquoted
from pipeline.methods.rendering import as_question
from pipeline.methods.templates import load_template
from pipeline.types import Question


@dataclass(frozen=True)
class MakePlan(LenientPrompt[tuple[str, ...]]):
    """The sub-objectives of a question; the question itself when no reply can be read."""

    role: ClassVar[str] = "pog.plan"
    template = load_template(__file__, "plan")

    question: Question

    def inputs(self) -> dict[str, str]:
        return {"question": as_question(self.question.text)}

    def fallback(self, text: str) -> tuple[str, ...]:
        return (self.question.text,)

    def read(self, text: str) -> tuple[str, ...]:
        lines = numbered(text)
        items: Sequence[Value] = [unquoted(first_line(item)) for _, item in lines]
        others = "\n".join(line for line in text.splitlines() if not numbered(line))
        with suppress(ParseError):  # a numbered line may name something in brackets, and is no list for that
            items = read_list(others) or items
        texts = (str(item).strip() for item in items if isinstance(item, (str, int, float)))
        objectives = tuple(dict.fromkeys(text for text in texts if text))
        if not objectives:
            raise ParseError("there is no list of sub-objectives")
        return objectives
