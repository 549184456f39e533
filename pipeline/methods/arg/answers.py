"""Reads the end of a transcript, `Answer: a[Fully Useful];b[Fully Useful][Utility:5]`, or asks for one.

See specification §4.5.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.methods.arg.tokens import CLASSES, NOT_USEFUL, ReflectionToken, escape, find_tokens
from pipeline.methods.arg.transcript import Segment, printed_node, without_retrieval
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parsing import match_key, truncate
from pipeline.methods.rendering import Names, names_of, one_line
from pipeline.methods.templates import load_template

_PROMPTED = load_template(__file__, "answer")

_CUE = re.compile(r"\s*answers?\s*:", re.IGNORECASE)
_UTILITY = re.compile(r"\[\s*utility", re.IGNORECASE)
_OPEN_BRACKET = re.compile(r"\[[^\[\]\n]{0,40}$")
_CLOSING_TOKENS = tuple(token.casefold() for kind in ("usefulness", "utility") for token in CLASSES[kind])
_NONE = "none"
"""What a model writes instead of an answer."""


@dataclass(frozen=True, slots=True)
class ParsedAnswers:
    """The answers at the end of a transcript."""

    texts: tuple[str, ...] = ()
    """Distinct, in the order given. Answers labelled `[Not Useful]` are kept only if there is no other."""
    utility: ReflectionToken | None = None
    raw: str = ""
    """The text that the answers were read from."""
    is_none: bool = False
    """Whether the model says that there is no answer."""


@dataclass(frozen=True)
class AnswerSegment(Segment[ParsedAnswers]):
    """A forced answer: at the depth limit, or if the question has no topic entity."""

    role: ClassVar[str] = "arg.answer"
    explained = _PROMPTED

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
        if not answers.texts and not answers.is_none:
            raise ParseError(f"there is no answer: {truncate(text)}")
        return answers


def read_answers(text: str, known: Mapping[str, str], begin: int = 0) -> ParsedAnswers:
    """Read the answers that follow `[No Retrieval]`. A text that was cut gives the answers before the cut.

    Args:
        text: A segment.
        known: Names of the graph by their `match_key`. An answer that matches one gets the graph's spelling.
        begin: Where the answers begin: the end of `[No Retrieval]`.
    """
    raw = text[begin:]
    if (cue := _CUE.match(text, begin)) and not (begin == 0 and _begins_with(known, text)):
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
    rest = text[position:end] if closing else _without_open_token(text[position:end])
    unlabelled = _items(rest, known)
    if unlabelled and position > begin and not closing:
        unlabelled[-1] = _completed(unlabelled[-1], known)
    answers += [(item, True) for item in unlabelled]
    kept = [item for item, useful in answers if useful] or [item for item, _ in answers]
    named = [item for item in kept if match_key(item) != _NONE or _NONE in known]
    utility = next((token for token in tokens if token.kind == "utility" and token.start >= end), None)
    return ParsedAnswers(tuple(dict.fromkeys(named)), utility, raw, is_none=bool(kept) and not named)


def _begins_with(known: Mapping[str, str], text: str) -> bool:
    """Return whether the first answer of a text is a known name: one that begins like the cue `Answer:`."""
    first = next((token.start for token in find_tokens(text)), len(text))
    return match_key(text[:first]) in known


def known_names(walks: Iterable[GroundedPath], names: Names) -> dict[str, str]:
    """Return the names of all nodes of the walks, by the `match_key` of their printed form."""
    nodes = dict.fromkeys(node for walk in walks for node in walk.nodes)
    named = names_of(nodes, names)
    written = {match_key(escape(one_line(name))): one_line(name) for name in named.values()}
    return written | {match_key(printed_node(node, names)): one_line(name) for node, name in named.items()}


def write_answers(usefulness: Mapping[str, str], utility: str) -> str:
    """Render answers with their usefulness labels (an empty label for an unjudged one) and the utility of all."""
    return ";".join(f"{escape(one_line(text))}{label}" for text, label in usefulness.items()) + utility


def _items(text: str, known: Mapping[str, str]) -> list[str]:
    """Split a text without tokens into answers, at semicolons unless the whole text is one known name."""
    text = one_line(text).removeprefix(";").strip()
    items = [text] if match_key(text) in known else [item.strip() for item in text.split(";")]
    return [known.get(match_key(item), item) for item in items if item]


def _without_open_token(text: str) -> str:
    """Remove a token of usefulness or utility that was cut before its end, as in `Bo[Fully Us`."""
    opened = _OPEN_BRACKET.search(text)
    is_cut = opened and any(token.startswith(opened[0].casefold()) for token in _CLOSING_TOKENS)
    return text[: opened.start()] if opened and is_cut else text


def _completed(text: str, known: Mapping[str, str]) -> str:
    """Return the one known name that begins with the text, for a name that was cut; else the text."""
    begun = {name for key, name in known.items() if key.startswith(match_key(text))}
    return begun.pop() if len(begun) == 1 else text
