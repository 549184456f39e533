"""Reading the JSON objects that PARoG's calls are answered with (methods.md §5.6)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from pipeline.errors import ParseError
from pipeline.methods.parsing import Value, read_records

_NOTHING = re.compile(r"null|none|n/?a|unknown|[mg]\.[0-9a-z_]+|<(?:unnamed|cvt) ?[0-9]*>|", re.IGNORECASE)
"""What is no answer: nothing in words, a bare MID, the placeholder of an unnamed node (methods.md §5.7)."""


def read_object(text: str, *keys: str) -> dict[str, Value]:
    """The last object in the text that has all of `keys`. Raises ParseError when there is none."""
    for record in reversed(read_records(text)):
        if all(key in record for key in keys):
            return record
    wanted = ", ".join(f'"{key}"' for key in keys)
    raise ParseError(f"there is no JSON object with {wanted}")


def read_texts(value: Value) -> tuple[str, ...]:
    """A list of answers, or a single one, as texts: without repeats and without what is no answer."""
    items = value if isinstance(value, list) else [value]
    texts = (str(item).strip() for item in items if isinstance(item, (str, int, float)) and not isinstance(item, bool))
    return tuple(dict.fromkeys(text for text in texts if not _NOTHING.fullmatch(text)))


def read_flag(value: Value) -> bool:
    """A truth value, or a word for one; anything else is false."""
    return value is True or str(value).strip().lower() in {"true", "yes", "1"}


def write_object(**fields: object) -> str:
    """A reply in the form that `read_object` reads."""
    return json.dumps(fields, ensure_ascii=False)


def listed(texts: Iterable[str], most: int = 20) -> str:
    """Answers on one line of a prompt; of many, the first and how many more there are."""
    texts = list(texts)
    shown = "; ".join(texts[:most]) or "none"
    return f"{shown}; and {len(texts) - most} more" if len(texts) > most else shown
