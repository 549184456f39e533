"""The verdict of a model on facts: whether they suffice, the answers, and the reason (specification §16.3)."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pipeline.errors import ParseError
from pipeline.methods.json_replies import read_flag, read_texts
from pipeline.methods.parsing import Value, read_records


@dataclass(frozen=True, slots=True)
class Verdict:
    """The parsed reply of `pog.evaluate`, `pog.answer` or `pog.alone`."""

    sufficient: bool = False
    answers: tuple[str, ...] = ()
    """Without words for nothing, ids and labels of unnamed nodes."""
    reason: str = ""
    raw: str = ""
    """The whole reply."""


def read_verdict(text: str, needed: Sequence[str], shown: Collection[str] = ()) -> Verdict:
    """Return the last verdict in a reply: an object, or the nested shape that the published prompts ask for.

    Args:
        text: The reply.
        needed: The object has at least one of these keys.
        shown: The names that the prompt shows. Each is one answer, whatever it looks like. If one of them has a comma,
            commas do not separate answers.

    Raises:
        ParseError: there is no such object.
    """
    for record in reversed(read_records(text)):
        fields = flat(record)
        if any(key in fields for key in needed):
            answers = fields.get("answers", fields.get("answer"))
            if isinstance(answers, str):
                answers = _split(answers, shown)
            reason = str(fields.get("reason", fields.get("r", "")))
            return Verdict(read_flag(fields.get("sufficient")), read_texts(answers, shown.__contains__), reason, text)
    raise ParseError(f'there is no JSON object with "{needed[0]}"')


def flat(record: dict[str, Value]) -> dict[str, Value]:
    """Return an object with keys in lower case, and with the members of its member `A` among its own."""
    fields = {key.strip().lower(): value for key, value in record.items()}
    inner = fields.get("a")
    return {**fields, **flat(inner)} if isinstance(inner, dict) else fields


def _split(text: str, shown: Collection[str]) -> list[Value]:
    if text.strip() in shown:
        return [text]
    has_comma = any(", " in name for name in shown)
    return [part.strip() for part in re.split(r"[;|\n]" if has_comma else r"[;|\n]|, ", text)]
