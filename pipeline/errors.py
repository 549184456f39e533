"""The failure model, in one page.

| error            | raised by          | caught by          | surfaces as                                        |
| ---------------- | ------------------ | ------------------ | -------------------------------------------------- |
| UserError        | anywhere           | the command line   | one sentence on stderr, exit code 2                |
| ParseError       | `Prompt.parse`     | the LLM port       | a re-ask, then the prompt's fallback; a trace step |
| BudgetExhausted  | the ports          | the method         | an answer from what is known, `budget_exhausted`   |
| ContextOverflow  | a model            | the method, or run | a `failed` row when the method does not handle it  |
| ServiceError     | a model or a graph | the question run   | a `failed` row with the error's text               |
| StorageError     | the run folder     | the command line   | one sentence on stderr, exit code 2                |

Anything else that escapes a method is a bug in the method: it also becomes a `failed` row, with the exception's
type and text, and never takes another question with it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class KgqaError(Exception):
    """Base of every error that this project raises on purpose."""


class UserError(KgqaError):
    """Something the user can mend; the message is one sentence that says how."""


class ParseError(KgqaError):
    """A model's text does not have the form that its prompt asked for; the message names the defect in one line."""


class BudgetExhausted(KgqaError):
    """A per-question cap (specification §2.5) was reached; the message names the cap."""


class StorageError(UserError):
    """The run folder cannot be written to (a full disk, lost rights): the run ends, no question is to blame."""


class ServiceError(KgqaError):
    """A model or graph server failed after all retries."""


class ContextOverflow(ServiceError):
    """A prompt is longer than the model's context; it is never cut silently (specification §2.3)."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `" Did you mean 'x'?"` for the known word closest to `word`, or an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean '{close[0]}'?" if close else ""
