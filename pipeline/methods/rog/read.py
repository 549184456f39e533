"""The prompts `rog.read` and `rog.alone`: list the answers, one on each line (specification §16.2)."""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.answering import Answers
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parsing import parse_leniently, read_literal, unquoted
from pipeline.methods.rendering import Names, as_question, names_of, one_line
from pipeline.methods.rog.wording import OWN
from pipeline.methods.templates import load_texts
from pipeline.normalisation import normalise
from pipeline.types import Question

_REQUEST = str(load_texts(__file__, "explain"))
_BULLET = re.compile(r"^(?:[-*•–]+|[0-9]{1,3}[.)])[ \t]+")
_REASONS = re.compile(r"^\W{0,20}(?:reasons?|explanations?)\b", re.IGNORECASE | re.MULTILINE)
_OPENED_LIST = re.compile(r"\s*\[\s*[\"']")
"""The beginning of a list of texts. A name may begin with a bracket, but not with a bracket and a quote."""


@dataclass(frozen=True)
class AnswersByLine(Prompt[Answers], ABC):
    """A question whose answers are listed, one on each line. Without any, no answer is read."""

    question: Question
    explain: bool
    """Whether reasons are asked for, below the answers."""

    def parse(self, text: str) -> Answers:
        listed = text
        if self.explain and (reasons := _REASONS.search(text)):
            listed = text[: reasons.start()]
        lines = [line for line in listed.splitlines() if not line.lstrip().startswith("```")]
        texts = [text.strip() for text in _literal("\n".join(lines))]
        if not texts:
            names = self._shown_names()
            texts = [_without_marks(line.strip(), names) for line in lines]
        if not (answers := _distinct(texts)):
            raise ParseError("the reply has no answer")
        return Answers(answers, text)

    def fallback(self, text: str) -> Answers:
        return Answers((), text)

    def _shown_names(self) -> Collection[str]:
        """Return the names of the nodes that the prompt shows."""
        return ()

    @property
    def _request(self) -> str:
        return f"{_REQUEST}\n" if self.explain else ""


@dataclass(frozen=True)
class ReadPaths(AnswersByLine):
    """The question with the grounded paths; also if there are none."""

    role: ClassVar[str] = "rog.read"

    lines: tuple[str, ...]
    """The paths as they are shown."""
    chains: tuple[GroundedPath, ...]
    """The paths, by which names are told from bullets and quotes."""
    names: Names
    template: Template = OWN.read

    def inputs(self) -> dict[str, str]:
        return {
            "question": as_question(self.question.text),
            "paths": "\n".join(self.lines),
            "explain": self._request,
        }

    def _shown_names(self) -> Collection[str]:
        shown = names_of((node for chain in self.chains for node in chain.nodes), self.names)
        return set(map(one_line, shown.values()))


@dataclass(frozen=True)
class AnswerAlone(AnswersByLine):
    """The question without paths, if nothing is planned."""

    role: ClassVar[str] = "rog.alone"

    template: Template = OWN.alone

    def inputs(self) -> dict[str, str]:
        return {"question": as_question(self.question.text), "explain": self._request}


def _literal(text: str) -> list[str]:
    """Return the texts of a reply that is a list in brackets; none for any other reply.

    Raises ParseError for a list of texts that cannot be read.
    """
    if not text.lstrip().startswith("["):
        return []
    try:
        listed = parse_leniently(lambda plain: read_literal(plain, "["), text)
    except ParseError:
        if _OPENED_LIST.match(text):
            raise ParseError("the list in brackets cannot be read") from None
        return []
    assert isinstance(listed, list), "a literal that opens with a bracket is a list"
    return [str(each) for each in listed if isinstance(each, str | int | float) and not isinstance(each, bool)]


def _without_marks(line: str, names: Collection[str]) -> str:
    """Remove the bullet or number, the quotes and the full stop of a line, which one of `names` keeps."""
    bare = _BULLET.sub("", line, count=1).strip()
    return next((text for text in (line, bare) if text in names), unquoted(bare.rstrip(".")))


def _distinct(texts: list[str]) -> tuple[str, ...]:
    """Return the answers that are not empty; the first of those with one normal form."""
    answers: dict[str, str] = {}
    for text in texts:
        if text:
            answers.setdefault(normalise(text) or text, text)
    return tuple(answers.values())
