"""`r3.reflect`: why an attempt failed, and what the next one should do differently (specification §6.7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from pipeline.errors import ParseError
from pipeline.methods.parsing import LenientPrompt, Value, read_literal
from pipeline.methods.r3.domains import describe
from pipeline.methods.r3.memory import Step, elide
from pipeline.methods.rendering import as_question, one_line
from pipeline.methods.templates import load_template
from pipeline.types import Question

Failure: TypeAlias = Literal["incorrect", "halted"]

CATEGORIES = (
    "wrong_node",
    "wrong_edge_or_feature",
    "missing_step",
    "misread_question",
    "format",
    "loop",
    "budget",
    "other",
)
MAX_TEXT = 2000
"""Characters kept of each text of a reflection."""
_MAX_ITEMS = 10
_MIN_LOG = 1000
"""Characters reserved for the log, even if the knowledge path is long."""


@dataclass(frozen=True, slots=True)
class Guidance:
    """The advice of a reflection for the next attempt."""

    root_cause: str = ""
    category: str = "other"
    advice: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    retry: bool = True

    @property
    def block(self) -> str:
        """The lines before the scratchpad of the next attempt."""
        lines = [f"An earlier attempt failed: {self.root_cause}" if self.root_cause else "An earlier attempt failed."]
        lines += [f"Advice: {advice}" for advice in self.advice]
        lines += [f"Avoid: {action}" for action in self.avoid]
        return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True)
class Reflect(LenientPrompt[Guidance]):
    """A reflection on one whole attempt."""

    role: ClassVar[str] = "r3.reflect"
    template = load_template(__file__, "reflect")

    question: Question
    domain: str
    failure: Failure
    answers: tuple[str, ...] | None
    """None if the attempt did not finish."""
    path: tuple[str, ...] | None = None
    """The knowledge path, line by line; None in the ablation without memory."""
    log: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    """The steps of the same attempt, for simulators; empty without memory."""
    max_characters: int = 40_000
    """Maximum length of path and log in the prompt."""

    def inputs(self) -> dict[str, str]:
        answer = (
            "without an answer" if self.answers is None else f"with the answer {'; '.join(self.answers) or '(empty)'}"
        )
        return {
            "schema": one_line(describe(self.domain).schema),
            "question": as_question(self.question.text),
            "outcome": f"{self.failure}, {answer}",
            "memory": self._memory(),
        }

    def _memory(self) -> str:
        """Return the knowledge path and the log, each elided in the middle if too long (specification §6.7)."""
        if self.path is None:
            return ""
        path = elide(self.path or ("nothing",), self.max_characters)
        log = elide(self.log, max(_MIN_LOG, self.max_characters - len(path)))
        return f"What was learnt:\n{path}\nWhat was done:\n{log}\n"

    def read(self, text: str) -> Guidance:
        reply = read_literal(text, "{")
        assert isinstance(reply, dict), "a literal that opens with a brace is a dictionary"
        cause, advice = reply.get("root_cause"), _texts(reply.get("advice"))
        if not isinstance(cause, str) or not (cause.strip() or advice):
            raise ParseError("the object has no 'root_cause' and no 'advice'")
        category, retry = reply.get("category"), reply.get("retry", True)
        return Guidance(
            root_cause=one_line(cause)[:MAX_TEXT],
            category=category if isinstance(category, str) and category in CATEGORIES else "other",
            advice=advice,
            avoid=_texts(reply.get("avoid")),
            retry=retry is not False and str(retry).strip().lower() not in {"false", "no"},
        )

    def fallback(self, text: str) -> Guidance:
        """Return the raw text as advice for another attempt."""
        return Guidance(advice=(one_line(text)[:MAX_TEXT],) if text.strip() else ())


def _texts(value: Value) -> tuple[str, ...]:
    items: Sequence[Value] = value if isinstance(value, list) else [value]
    return tuple(one_line(item)[:MAX_TEXT] for item in items[:_MAX_ITEMS] if isinstance(item, str) and item.strip())
