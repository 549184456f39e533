"""Reads the end of a transcript, `Answer: a[Fully Useful];b[Fully Useful][Utility:5]`, or asks for one.

See specification §4.5.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.methods.arg.tokens import NOT_USEFUL, ReflectionToken, find_tokens
from pipeline.methods.arg.transcript import Segment, without_retrieval
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parsing import match_key, truncate
from pipeline.methods.rendering import Names, names_of, one_line

_CUE = re.compile(r"\s*answers?\s*:", re.IGNORECASE)
_UTILITY = re.compile(r"\[\s*utility", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ParsedAnswers:
    """The answers at the end of a transcript."""

    texts: tuple[str, ...] = ()
    """Distinct, in the order given. Answers labelled `[Not Useful]` are kept only if there is no other."""
    utility: ReflectionToken | None = None
    raw: str = ""
    """The text that the answers were read from."""


@dataclass(frozen=True)
class AnswerSegment(Segment[ParsedAnswers]):
    """A forced answer: at the depth limit, or if the question has no topic entity."""

    role: ClassVar[str] = "arg.answer"

    walks: tuple[GroundedPath, ...]
    """The walks to the current entities of the transcript."""
    names: Names

    @property
    def text_so_far(self) -> str:
        return without_retrieval(self.transcript)

    def fallback(self, text: str) -> ParsedAnswers:
        return ParsedAnswers(raw=text)

    def read(self, text: str) -> ParsedAnswers:
        answers = read_answers(text, known_names(self.walks, self.names))
        if not answers.texts:
            raise ParseError(f"there is no answer: {truncate(text)}")
        return answers


def read_answers(text: str, known: Mapping[str, str], begin: int = 0) -> ParsedAnswers:
    """Read the answers that follow `[No Retrieval]`.

    Args:
        text: A segment.
        known: Names of the graph by their `match_key`. An answer that matches one gets the graph's spelling.
        begin: Where the answers begin: the end of `[No Retrieval]`.
    """
    raw = text[begin:]
    if cue := _CUE.match(text, begin):
        begin = cue.end()
    closing = _UTILITY.search(text, begin)
    end = closing.start() if closing else len(text)
    tokens = find_tokens(text)
    answers: list[tuple[str, bool]] = []  # with whether each is useful
    position = begin
    for token in (token for token in tokens if begin <= token.start < end):
        items = _items(text[position : token.start], known)
        answers += [(item, True) for item in items[:-1]]
        answers += [(item, token.text != NOT_USEFUL) for item in items[-1:]]
        position = token.end
    answers += [(item, True) for item in _items(text[position:end], known)]
    kept = [item for item, useful in answers if useful] or [item for item, _ in answers]
    utility = next((token for token in tokens if token.kind == "utility" and token.start >= end), None)
    return ParsedAnswers(tuple(dict.fromkeys(kept)), utility, raw)


def known_names(walks: Iterable[GroundedPath], names: Names) -> dict[str, str]:
    """Return the names of all nodes of the walks, by their `match_key`."""
    nodes = dict.fromkeys(node for walk in walks for node in walk.nodes)
    return {match_key(name): one_line(name) for name in names_of(nodes, names).values()}


def write_answers(usefulness: Mapping[str, str], utility: str) -> str:
    """Render answers with their usefulness labels (an empty label for an unjudged one) and the utility of all."""
    return ";".join(f"{one_line(text)}{label}" for text, label in usefulness.items()) + utility


def _items(text: str, known: Mapping[str, str]) -> list[str]:
    """Split a text without tokens into answers, at semicolons unless the whole text is one known name."""
    text = one_line(text).removeprefix(";").strip()
    items = [text] if match_key(text) in known else [item.strip() for item in text.split(";")]
    return [known.get(match_key(item), item) for item in items if item]
