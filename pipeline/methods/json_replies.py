"""Reads JSON objects in replies, and the flags and answers in them (specification §5.6)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from pipeline.errors import ParseError
from pipeline.methods.parsing import Value, parse_leniently, read_records

_NOTHING = re.compile(r"null|none|n/?a|unknown|[mg]\.[0-9a-z_]+|<(?:unnamed|cvt) ?[0-9]*>|", re.IGNORECASE)
"""Texts that are not an answer: words for nothing, a bare MID, the label of an unnamed node (specification §5.7)."""


def read_object(text: str, *keys: str) -> dict[str, Value]:
    """Return the last object in a reply that has all of `keys`. Raises ParseError when there is none."""
    return parse_leniently(lambda text: _last_object(text, keys), text)


def _last_object(text: str, keys: Sequence[str]) -> dict[str, Value]:
    for record in reversed(read_records(text)):
        if all(key in record for key in keys):
            return record
    wanted = ", ".join(f'"{key}"' for key in keys)
    raise ParseError(f"there is no JSON object with {wanted}")


def read_texts(value: Value, is_name: Callable[[str], bool] = frozenset[str]().__contains__) -> tuple[str, ...]:
    """Return a list of answers, or a single one, as texts, without repeats and texts that are not an answer.

    A text for which `is_name` is true is an answer, whatever it looks like: a node that the prompt shows may be called
    Unknown.
    """
    items = value if isinstance(value, list) else [value]
    texts = (str(item).strip() for item in items if isinstance(item, (str, int, float)) and not isinstance(item, bool))
    return tuple(dict.fromkeys(text for text in texts if is_name(text) or not _NOTHING.fullmatch(text)))


def read_flag(value: Value) -> bool:
    """Return whether a value is true, `yes`, `1` or a text of one of them."""
    return value is True or str(value).strip().lower() in {"true", "yes", "1"}


def print_list(texts: Iterable[str], limit: int = 20) -> str:
    """Return answers on one line: the first `limit`, and how many more there are."""
    texts = list(texts)
    shown = "; ".join(texts[:limit]) or "none"
    return f"{shown}; and {len(texts) - limit} more" if len(texts) > limit else shown
