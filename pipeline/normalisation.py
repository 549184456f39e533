"""Normalises answer texts for the scorer, the oracle and every comparison by name (specification §9.2)."""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal
from functools import lru_cache

_NUMBER = re.compile(r"([+-]?)([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+|(?=\.[0-9]))(\.[0-9]+)?(?:[eE]([+-]?[0-9]{1,3}))?")
_MONTH, _DAY = "0[1-9]|1[0-2]", "0[1-9]|[12][0-9]|3[01]"
_TIME, _ZONE = r"[T ][0-9]{2}:[0-9:.]+", r"Z|[+-][0-9]{2}:[0-9]{2}"
_DATE = re.compile(rf"(-?[0-9]{{4,}})(?:-({_MONTH})(?:-({_DAY})(?:{_TIME})?)?)?(?:{_ZONE})?")

_MARK = re.compile(r"(-(?=[$€£]?[0-9])|(?<=[0-9])\.(?=[0-9])|(?<=[^\W_])[+#]+(?!\S))|[^\w\s]|_")
"""Anything but letters, digits and spaces; the first group is what is kept: a sign, a decimal point, the end of C++."""
_MOST_OPENING = 8
"""Brackets and currencies in front of a minus that are looked at."""
_ACCENT = re.compile("[\u0300-\u036f]+")
_ARTICLES = frozenset({"a", "an", "the"})
_REMEMBERED_LENGTH = 512
"""Longer texts are not remembered: they hardly repeat, and megabytes would fill the cache."""


def normalise(text: str, *, strip_accents: bool = True) -> str:
    """Return N(text): NFKC, case-folded, without accents, punctuation and English articles, spaces collapsed.

    A number or a date takes its canonical form (specification §8.5). Dashes, slashes and underscores part words, other
    punctuation vanishes, but not what tells answers apart: a sign, a decimal point, a final + or # (C++, C#, "12+").
    A text of nothing but articles or marks keeps them (there is a film called "$"), so only a blank text has an empty
    normal form. N(N(x)) = N(x).
    """
    if len(text) > _REMEMBERED_LENGTH:
        return _normalise(text, strip_accents)
    return _remembered(text, strip_accents)


def canonical_literal(text: str) -> str:
    """Numbers without trailing zeros, dates as `YYYY[-MM[-DD]]`; any other text unchanged (specification §8.5).

    Thousands separators, exponents and a plus sign go; leading zeros stay, as in the postal code 08601.
    """
    return _literal(text) or text


def _normalise(text: str, strip_accents: bool) -> str:
    text = unicodedata.normalize("NFKC", text).replace("\u2212", "-").strip()
    if literal := _literal(text):
        return literal
    folded = _fold(text, strip_accents).strip() or text
    words = _MARK.sub(_without_mark, folded).split() or folded.split()
    plain = unicodedata.normalize("NFKC", " ".join([word for word in words if word not in _ARTICLES] or words))
    return _literal(plain) or plain


_remembered = lru_cache(maxsize=65536)(_normalise)


def _fold(text: str, strip_accents: bool) -> str:
    text = text.casefold()
    if text.isascii():
        return text
    if strip_accents:
        text = _ACCENT.sub("", unicodedata.normalize("NFD", text))
    return unicodedata.normalize("NFKC", text).casefold()


def _without_mark(match: re.Match[str]) -> str:
    is_kept = match[1] and (match[1] != "-" or _is_sign(match))
    return match[1] if is_kept else _in_place_of(match[0])


def _is_sign(minus: re.Match[str]) -> bool:
    """Whether a minus begins a word, perhaps behind brackets and currencies: one between numbers is a range."""
    before = minus.string[max(0, minus.start() - _MOST_OPENING) : minus.start()].rstrip("([{$€£")
    return not before or before[-1].isspace()


@lru_cache(maxsize=4096)
def _in_place_of(mark: str) -> str:
    category = unicodedata.category(mark)
    if category in {"Pd", "Pc"} or mark in "/\\\u2044":
        return " "
    return "" if category[0] in "PS" or category in {"Cc", "Cf"} else mark


def _literal(text: str) -> str | None:
    if number := _NUMBER.fullmatch(text):
        return _plain_number(*number.groups())
    if date := _DATE.fullmatch(text):
        return "-".join(part for part in date.groups() if part)
    return None


def _plain_number(sign: str, whole: str, fraction: str | None, exponent: str | None) -> str:
    digits = (whole.replace(",", "") or "0") + (fraction or "")
    if exponent:
        digits = format(Decimal(f"{digits}e{exponent}"), "f")
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return f"-{digits}" if sign == "-" and digits.strip("0") else digits
