"""Reading model text: what the `parse` of every prompt is made of (methods.md §2.4).

Nothing here evaluates text. Every helper is linear in its input and raises nothing but ParseError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import TypeAlias, TypeVar

from pipeline.errors import ParseError

T = TypeVar("T")

Value: TypeAlias = "str | int | float | bool | list[Value] | dict[str, Value] | None"
"""What a Python or JSON literal can hold; tuples are read as lists, keys as text."""

_DEEPEST = 20
"""Nesting at which a literal is refused."""
_ATTEMPTS = 20
"""Brackets at which a literal is sought."""

_STRAIGHT = {ord(mark): plain for marks, plain in (("“”„«»", '"'), ("‘’‚`", "'"), ("‐‑‒–—−", "-")) for mark in marks}
_FENCE = re.compile(r"^[ \t]*```[^\n]*$", re.MULTILINE)
_TOKEN = re.compile(
    r"\s*(?:(?P<mark>[\[\](){},:])"
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
_SAID = re.compile(r"\banswer is\b:?", re.IGNORECASE)
_ARROW = re.compile(r"[-=]{1,3}>|[→⇒]")
_NUMBERED = re.compile(r"[ \t]*(?:sequence[ \t]*)?([0-9]{1,4})[ \t]?[.):](.*)", re.IGNORECASE | re.DOTALL)
_PAIR = re.compile(
    r"\(\s*(\"[^\"\\]*(?:\\.[^\"\\]*)*\"|'[^'\\]*(?:\\.[^'\\]*)*')\s*,\s*([+-]?(?:[0-9]{1,9}\.?[0-9]{0,9}|\.[0-9]{1,9}))",
    re.DOTALL,
)
_MID = re.compile(r"[mg]\.[0-9a-z_]+")


def twice(read: Callable[[str], T], text: str) -> T:
    """Read strictly, then once more after `straighten`. Raises the ParseError of the last attempt."""
    try:
        return read(text)
    except ParseError:
        plain = straighten(text)
        if plain == text:
            raise
        return read(plain)


def straighten(text: str) -> str:
    """Strip code fences, and turn curly quotes and the various dashes into plain ones."""
    return _FENCE.sub("", text).translate(_STRAIGHT)


def loose(text: str) -> str:
    """The form under which two printed names are the same: straightened, spaces collapsed, case ignored."""
    return " ".join(text.translate(_STRAIGHT).split()).casefold()


def clip(text: str, length: int = 60) -> str:
    """A piece of model text that fits into a one-line complaint."""
    line = " ".join(text[: 4 * length].split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def after_last(text: str, cue: str) -> str:
    """What follows the last `cue`, whatever its case. Raises ParseError when there is none."""
    ends = [found.end() for found in re.finditer(re.escape(cue), text, re.IGNORECASE)]
    if not ends:
        raise ParseError(f"there is no '{cue}'")
    return text[ends[-1] :]


def first_line(text: str) -> str:
    """The first line that is not blank, or an empty string."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def numbered(text: str) -> list[tuple[int, str]]:
    """The items of a numbered list (`1. …`, `2) …`); an item runs on until the next number at a line's start."""
    items: list[tuple[int, list[str]]] = []
    for line in text.splitlines():
        if found := _NUMBERED.match(line):
            items.append((int(found[1]), [found[2]]))
        elif items:
            items[-1][1].append(line)
    return [(number, "\n".join(lines).strip()) for number, lines in items]


def split_path(text: str) -> list[str]:
    """The non-empty parts between arrows, without quotes around them: `a -> r1 -> r2` gives three."""
    return [part for part in map(unquoted, _ARROW.split(text)) if part]


def unquoted(text: str) -> str:
    """The text without blanks and one pair of quotes around it."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'`":
        return text[1:-1].strip()
    return text


def looks_like_relation(part: str, known: Collection[str]) -> bool:
    """Whether a part of a path is a relation rather than an entity: a dotted name, or one known from this graph."""
    if part in known:
        return True
    return "." in part.strip(".") and not any(map(str.isspace, part)) and not _MID.fullmatch(part)


def brace_answers(text: str) -> tuple[str, ...]:
    """The distinct answers in braces after the last answer cue, else in any braces (methods.md §3.10).

    `;` and `|` part the answers of one pair of braces, except in double quotes, where an answer may hold anything.
    Raises ParseError when there are none.
    """
    cue = max((found.end() for found in _CUE.finditer(text)), default=0)
    for place in (text[cue:], text):
        parts = (_answer(part) for block in _BRACES.findall(place) for part in _PART.finditer(block))
        if texts := _distinct(parts):
            return texts
    raise ParseError("there is no answer in braces, as in {answer}")


def answers_without_braces(text: str) -> tuple[str, ...]:
    """The rest of the line after the last "answer is"; nothing when the reply never says that."""
    said = [found.end() for found in _SAID.finditer(text)]
    line = first_line(text[said[-1] :]).strip(" *_").removesuffix(".") if said else ""
    return _distinct(map(_answer, _PART.finditer(line)))


def scored_pairs(text: str) -> list[tuple[str, float]]:
    """Every pair of a quoted string and a number in parentheses, such as `('relation', 0.5)`, in the order given."""
    return [(read_string(string), float(score)) for string, score in _PAIR.findall(text)]


def read_literal(text: str, opening: str) -> Value:
    """Read the first Python or JSON literal in `text` that starts with the bracket `opening`.

    What stands before and after it is ignored. Raises ParseError when there is none.
    """
    complaint = f"there is no '{opening}'"
    for start in islice(re.finditer(re.escape(opening), text), _ATTEMPTS):
        try:
            return _Reader(text, start.start()).value(0)
        except ParseError as error:
            complaint = str(error)
    raise ParseError(complaint)


def read_records(text: str) -> list[dict[str, Value]]:
    """All Python or JSON dictionaries that stand in `text`, whatever is around them; none inside another."""
    records: list[dict[str, Value]] = []
    at, failures = 0, 0
    while failures < _ATTEMPTS and (at := text.find("{", at)) >= 0:
        reader = _Reader(text, at)
        try:
            record = reader.value(0)
        except ParseError:
            failures += 1
            at += 1
        else:
            assert isinstance(record, dict), "a literal that opens with a brace is a dictionary"
            records.append(record)
            at = reader.end
    return records


def read_string(quoted: str) -> str:
    """The text of one quoted string, its escapes resolved."""
    inner = quoted[1:-1]
    if "\\" not in inner:
        return inner
    plain = _ESCAPE.sub(_unescape, inner)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class _Reader:
    """A recursive reader of literals. It knows no names, no operators and no calls."""

    def __init__(self, text: str, at: int) -> None:
        self._text = text
        self._at = at

    def value(self, depth: int) -> Value:
        if depth > _DEEPEST:
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

    @property
    def end(self) -> int:
        """Where what was read ends."""
        return self._at

    def _items(self, closing: str, depth: int) -> list[Value]:
        items: list[Value] = []
        while self._peek() != closing:
            items.append(self.value(depth + 1))
            self._part(closing)
        self._next()
        return items

    def _pairs(self, depth: int) -> dict[str, Value]:
        pairs: dict[str, Value] = {}
        while self._peek() != "}":
            key = self.value(depth + 1)
            if self._next()[1] != ":":
                raise ParseError("a key of the dictionary has no ':' after it")
            pairs[str(key)] = self.value(depth + 1)
            self._part("}")
        self._next()
        return pairs

    def _part(self, closing: str) -> None:
        """Step over the comma between two items; one before the closing bracket does no harm."""
        if self._peek() == ",":
            self._next()
        elif self._peek() != closing:
            raise ParseError(f"',' or '{closing}' is missing near '{clip(self._text[self._at : self._at + 20])}'")

    def _peek(self) -> str:
        found = _TOKEN.match(self._text, self._at)
        return found[found.lastgroup or 0] if found else ""

    def _next(self) -> tuple[str, str]:
        found = _TOKEN.match(self._text, self._at)
        if found is None or found.lastgroup is None:
            rest = clip(self._text[self._at : self._at + 20])
            raise ParseError(f"the literal cannot be read near '{rest}'" if rest else "the literal has no end")
        self._at = found.end()
        return found.lastgroup, found[found.lastgroup]


def _unescape(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    return chr(int(code, 16)) if code else _ESCAPES.get(escape[4], escape[4])


def _answer(part: re.Match[str]) -> str:
    return read_string(part[1]).strip() if part[1] else unquoted(part[0])


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text))
