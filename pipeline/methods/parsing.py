"""Functions that read model text, used by the `parse` methods of prompts (specification §2.4).

None of them evaluates text. Each takes time linear in its input and raises no exception but ParseError.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import TypeAlias, TypeVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt
from pipeline.text import valid_unicode

T = TypeVar("T")

Value: TypeAlias = "str | int | float | bool | list[Value] | dict[str, Value] | None"
"""The value of a Python or JSON literal. Tuples are read as lists, keys as text."""

_MAX_DEPTH = 20
"""The deepest nesting of a literal that is read."""
_MAX_ATTEMPTS = 20
"""How many opening brackets are tried as the start of a literal."""

_PLAIN = {ord(fancy): plain for group, plain in (("“”„«»", '"'), ("‘’‚`", "'"), ("‐‑‒–—−", "-")) for fancy in group}
"""Typographic quotes and dashes, and their plain forms."""
_FENCE = re.compile(r"^[ \t]*```[^\n]*$", re.MULTILINE)
_TOKEN = re.compile(
    r"\s*(?:(?P<punctuation>[\[\](){},:])"
    r"|(?P<string>\"[^\"\\]*(?:\\.[^\"\\]*)*\"|'[^'\\]*(?:\\.[^'\\]*)*')"
    r"|(?P<number>[+-]?[0-9]{1,40}(?:\.[0-9]{0,40})?(?:[eE][+-]?[0-9]{1,4})?)"
    r"|(?P<word>true|True|false|False|null|None)\b)",
    re.DOTALL,
)
_HEX = "[0-9a-fA-F]"
_ESCAPE = re.compile(rf"\\(?:x({_HEX}{{2}})|u({_HEX}{{4}})|U(000{_HEX}{{5}}|0010{_HEX}{{4}})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_CLOSING = {"[": "]", "(": ")"}

_QUOTED = r"\"[^\"\\]*+(?:\\.[^\"\\]*+)*+\""
_BRACES = re.compile(rf"\{{(?:\s*+(?:{_QUOTED}\s*+(?=[;|}}])|[^{{}};|]*+)[;|]?)*+\}}", re.DOTALL)
_PART = re.compile(rf"\s*+(?:({_QUOTED})\s*+(?=[;|}}])|[^{{}};|]+)", re.DOTALL)
_CUE = re.compile(r"\banswers?\s*(?:is\b|are\b|:)", re.IGNORECASE)
_ANSWER_IS = re.compile(r"\banswer is\b:?", re.IGNORECASE)
_ARROW = re.compile(r"[-=]{1,3}>|[→⇒]")
QUOTES = "\"'`"
"""The marks that may surround an answer, an argument or a part of a path."""
_QUOTES_AND_SPACE = QUOTES + " \t"
_NUMBERED = re.compile(r"[ \t]*(?:sequence[ \t]*)?([0-9]{1,4})[ \t]?[.):](.*)", re.IGNORECASE | re.DOTALL)
_PAIR = re.compile(
    r"\(\s*(\"[^\"\\]*(?:\\.[^\"\\]*)*\"|'[^'\\]*(?:\\.[^'\\]*)*')\s*,\s*([+-]?(?:[0-9]{1,9}\.?[0-9]{0,9}|\.[0-9]{1,9}))",
    re.DOTALL,
)
_MID = re.compile(r"[mg]\.[0-9a-z_]+")


def _parts_between(separator: str) -> re.Pattern[str]:
    """Return the pattern of a part: one in double quotes, which may contain separators, or else any other text."""
    return re.compile(rf"\s*+({_QUOTED})\s*+(?={separator}|\Z)|((?:(?!{separator}).)++)|{separator}", re.DOTALL)


_PATH_PART = _parts_between(_ARROW.pattern)


def parse_leniently(read: Callable[[str], T], text: str) -> T:
    """Apply `read` to the text and, if that fails, to the straightened text.

    Raises:
        ParseError: that of the last attempt.
    """
    try:
        return read(text)
    except ParseError:
        plain = straighten(text)
        if plain == text:
            raise
        return read(plain)


class LenientPrompt(Prompt[T], ABC):
    """A prompt whose reply is read as it is, or else straightened, as `parse_leniently` does."""

    def parse(self, text: str) -> T:
        return parse_leniently(self.read, text)

    @abstractmethod
    def read(self, text: str) -> T:
        """Read a reply. Raises ParseError with the defect in one line."""


def straighten(text: str) -> str:
    """Remove code fences, and replace typographic quotes and dashes by plain ones."""
    return _FENCE.sub("", text).translate(_PLAIN)


def match_key(text: str) -> str:
    """Return the key by which two names are compared: plain quotes and dashes, single spaces, no case."""
    return " ".join(text.translate(_PLAIN).split()).casefold()


def truncate(text: str, length: int = 60) -> str:
    """Shorten model text so that it fits into a one-line error message."""
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def after_last(text: str, cue: str) -> str:
    """Return the text after the last `cue`, ignoring case. Raises ParseError when there is no `cue`."""
    ends = [match.end() for match in re.finditer(re.escape(cue), text, re.IGNORECASE)]
    if not ends:
        raise ParseError(f"there is no '{cue}'")
    return text[ends[-1] :]


def after_last_line_cue(text: str, cue: str) -> str:
    """Return the text after the last `cue` that begins a line or follows a brace, else after the last one.

    A cue elsewhere may be part of a name or of a relation. If no cue begins a line or follows a brace, the last one of
    the text counts.
    """
    starts = list(re.finditer(rf"(?:^|\}})[ \t*_#>]*{re.escape(cue)}", text, re.IGNORECASE | re.MULTILINE))
    return text[starts[-1].end() :] if starts else after_last(text, cue)


def first_line(text: str) -> str:
    """Return the first line that is not blank, or an empty string."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def numbered(text: str) -> list[tuple[int, str]]:
    """Return the items of a numbered list (`1. …`, `2) …`). An item ends where the next line starts with a number."""
    items: list[tuple[int, list[str]]] = []
    for line in text.splitlines():
        if match := _NUMBERED.match(line):
            items.append((int(match[1]), [match[2]]))
        elif items:
            items[-1][1].append(line)
    return [(number, "\n".join(lines).strip()) for number, lines in items]


def split_path(text: str) -> list[str]:
    """Split a path at its arrows into non-empty parts without surrounding quotes: `a -> r1 -> r2` has three.

    A part in double quotes may contain arrows.
    """
    found = _PATH_PART.finditer(text)
    parts = (read_string(part[1]).strip() if part[1] else unquoted(part[2] or "") for part in found)
    return [part for part in parts if part]


def split_at(mark: str, text: str) -> list[str]:
    """Split a text at a mark into non-empty parts. A part in double quotes may contain the mark."""
    found = _parts_between(re.escape(mark)).finditer(text)
    parts = ((read_string(part[1]) if part[1] else part[2] or "").strip() for part in found)
    return [part for part in parts if part]


def contains_arrow(text: str) -> bool:
    """Return whether a text has what parts a path."""
    return _ARROW.search(text) is not None


def split_path_from(start: str, text: str) -> list[str]:
    """Split a path at its arrows, and leave out the name of the node where it starts, which may contain arrows."""
    bare = text.lstrip(_QUOTES_AND_SPACE)
    rest = bare[len(start) :].lstrip(_QUOTES_AND_SPACE)
    begins = bare[: len(start)].casefold() == start.casefold() and (not rest or _ARROW.match(rest))
    return split_path(rest if begins else text)


def unquoted(text: str) -> str:
    """Remove surrounding white space and one pair of surrounding quotes."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in QUOTES:
        return text[1:-1].strip()
    return text


def looks_like_relation(part: str, known: Collection[str]) -> bool:
    """Return whether a part of a path is a relation, not an entity: a dotted name, or one of the `known` relations."""
    if part in known:
        return True
    return "." in part.strip(".") and not any(map(str.isspace, part)) and not _MID.fullmatch(part)


def brace_answers(text: str) -> tuple[str, ...]:
    """Return the distinct answers in braces after the last answer cue, else in any braces (specification §3.10).

    `;` and `|` separate the answers within braces, except inside double quotes. A cue within braces belongs to an
    answer.

    Raises:
        ParseError: there are no answers in braces.
    """
    outside = _BRACES.sub(lambda block: " " * len(block[0]), text)
    after_cue = max((match.end() for match in _CUE.finditer(outside)), default=0)
    for region in (text[after_cue:], text):
        parts = (_answer(part) for block in _BRACES.findall(region) for part in _PART.finditer(block))
        if texts := _distinct(parts):
            return texts
    raise ParseError("there is no answer in braces, as in {answer}")


def answers_without_braces(text: str) -> tuple[str, ...]:
    """Return the answers in the first line after the last "answer is"; none when the text does not contain it."""
    ends = [match.end() for match in _ANSWER_IS.finditer(text)]
    line = first_line(text[ends[-1] :]).strip(" *_").removesuffix(".") if ends else ""
    return _distinct(map(_answer, _PART.finditer(line)))


def scored_pairs(text: str) -> list[tuple[str, float]]:
    """Return all pairs of a quoted string and a number in parentheses, such as `('relation', 0.5)`, in order."""
    return [(read_string(string), float(score)) for string, score in _PAIR.findall(text)]


def read_literal(text: str, opening: str) -> Value:
    """Return the first Python or JSON literal in `text` that starts with the bracket `opening`.

    Text before and after it is ignored.

    Raises:
        ParseError: there is no such literal.
    """
    complaint = f"there is no '{opening}'"
    for start in islice(re.finditer(re.escape(opening), text), _MAX_ATTEMPTS):
        try:
            return _Reader(text, start.start()).value(0)
        except ParseError as error:
            complaint = str(error)
    raise ParseError(complaint)


def read_records(text: str) -> list[dict[str, Value]]:
    """Return all outermost Python or JSON dictionaries in `text`. Other text is ignored."""
    return [value for value in _literals(text, "{") if isinstance(value, dict)]


def read_list(text: str) -> list[Value]:
    """Return the last outermost list in `text`, else the text between its last brackets, split at commas.

    Raises:
        ParseError: there is no list.
    """
    lists = [value for value in _literals(text, "[") if isinstance(value, list)]
    if lists:
        return lists[-1]
    end = text.rfind("]")
    start = text.rfind("[", 0, max(end, 0))
    if start < 0:
        raise ParseError("there is no list, as in [first, second]")
    return [part for part in map(unquoted, re.split(r"[,;\n]", text[start + 1 : end])) if part]


def _literals(text: str, opening: str) -> list[Value]:
    """Return all outermost literals in `text` that start with the bracket `opening`."""
    values: list[Value] = []
    at, failures = 0, 0
    while failures < _MAX_ATTEMPTS and (at := text.find(opening, at)) >= 0:
        reader = _Reader(text, at)
        try:
            values.append(reader.value(0))
        except ParseError:
            failures += 1
            at += 1
        else:
            at = reader.at
    return values


def read_string(quoted: str) -> str:
    """Return the content of a quoted string, with escape sequences resolved."""
    inner = quoted[1:-1]
    if "\\" not in inner:
        return inner
    return valid_unicode(_ESCAPE.sub(_unescape, inner))


class _Reader:
    """A recursive-descent parser of literals. It supports no names, operators or calls."""

    def __init__(self, text: str, at: int) -> None:
        self._text = text
        self.at = at
        """The position after the last token that was read."""

    def value(self, depth: int) -> Value:
        if depth > _MAX_DEPTH:
            raise ParseError("the literal is nested too deeply")
        kind, token = self._next()
        if kind == "string":
            return read_string(token)
        if kind == "number":
            return int(token) if token.lstrip("+-").isdigit() else float(token)
        if kind == "word":
            return _WORDS[token]
        if token.startswith("{"):
            return self._pairs(depth)
        if token in _CLOSING:
            return self._items(_CLOSING[token], depth)
        raise ParseError(f"'{token}' stands where a value should")

    def _items(self, closing: str, depth: int) -> list[Value]:
        items: list[Value] = []
        while self._peek() != closing:
            items.append(self.value(depth + 1))
            self._skip_comma(closing)
        self._next()
        return items

    def _pairs(self, depth: int) -> dict[str, Value]:
        pairs: dict[str, Value] = {}
        while self._peek() != "}":
            key = self.value(depth + 1)
            if self._next()[1] != ":":
                raise ParseError("a key of the dictionary has no ':' after it")
            pairs[str(key)] = self.value(depth + 1)
            self._skip_comma("}")
        self._next()
        return pairs

    def _skip_comma(self, closing: str) -> None:
        """Read the comma between two items. A comma before the closing bracket is allowed."""
        if self._peek() == ",":
            self._next()
        elif self._peek() != closing:
            raise ParseError(f"',' or '{closing}' is missing near '{truncate(self._text[self.at : self.at + 20])}'")

    def _peek(self) -> str:
        match = _TOKEN.match(self._text, self.at)
        return match[match.lastgroup or 0] if match else ""

    def _next(self) -> tuple[str, str]:
        match = _TOKEN.match(self._text, self.at)
        if match is None or match.lastgroup is None:
            rest = truncate(self._text[self.at : self.at + 20])
            raise ParseError(f"the literal cannot be read near '{rest}'" if rest else "the literal has no end")
        self.at = match.end()
        return match.lastgroup, match[match.lastgroup]


def _unescape(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    return chr(int(code, 16)) if code else _ESCAPES.get(escape[4], escape[4])


def _answer(part: re.Match[str]) -> str:
    return read_string(part[1]).strip() if part[1] else unquoted(part[0])


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text))
