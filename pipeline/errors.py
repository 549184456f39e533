"""The errors of the project: where each is raised and caught, and what the user sees.

| error           | raised by          | caught by                | result                                            |
| --------------- | ------------------ | ------------------------ | ------------------------------------------------- |
| UserError       | anywhere           | the command line         | one sentence on stderr, exit code 2               |
| Unreachable     | a model or a graph | the engine               | an `Outage` if the run had begun before           |
|                 |                    | the command line         | as a UserError                                    |
| Outage          | the engine         | the command line         | one sentence on stderr, exit code 4               |
| ParseError      | `Prompt.parse`     | the method's tools       | a retry, then the prompt's fallback; a trace step |
| BudgetExhausted | the method's tools | the method               | an answer from what is known, `budget_exhausted`  |
| ContextOverflow | a model            | the method or the engine | a `failed` row if the method does not handle it   |
| Unanswerable    | a model            | the engine               | a `failed` row with the text of the error         |
| ServiceError    | a model or a graph | the engine               | a `failed` row with the text of the error         |
|                 | any other service  | the command line         | one sentence on stderr, exit code 4               |
| StorageError    | the run folder     | the command line         | one sentence on stderr, exit code 2               |
| StoreOutage     | an object store    | the command line         | one sentence on stderr, exit code 4               |

Any other exception from a method is a bug in the method. It also becomes a `failed` row, with the type and text of the
exception, and does not affect other questions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic import ValidationError

from pipeline.suggestions import closest

MISTAKE = 2
"""Exit code of a command that cannot go on until the user has changed something."""
FAILED_RUN = 3
"""Exit code of a run in which more questions failed than `run.max_failed` allows, and has its results all the same."""
OUTAGE = 4
"""Exit code of a run that servers, workers or nodes have stopped: later, the same command may go on."""


class KgqaError(Exception):
    """Base of every error that this project raises on purpose."""


class UserError(KgqaError):
    """A problem that the user can fix; the message is one sentence that says how."""


class ParseError(KgqaError):
    """A reply does not have the format that its prompt asked for; the message names the defect in one line."""


class OverLimitError(ParseError):
    """A reply can be read, but asks for more than the method allows.

    It exceeds a key, such as a path longer than the depth, or breaks a rule, such as a path with a relation twice in a
    row.
    """


class BudgetExhausted(KgqaError):
    """A limit of the budget of a question (specification §2.5) was met; the message names the limit."""


class OutOfTime(BudgetExhausted):
    """The time of a question is over: what is in flight is given up, so that the question can be answered."""


class Unreachable(UserError):
    """None of the servers answers when they are needed for the first time: their URLs may be wrong."""


class Outage(UserError):
    """Servers do not answer, so the run stops; the same command goes on when they answer again."""


class StorageError(UserError):
    """The run folder cannot be written (a full disk, missing permissions): the run ends, and no question fails."""


class StoreOutage(StorageError, Outage):
    """The object store of the run folder does not answer: the same command goes on when it does."""


class ServiceError(KgqaError):
    """A model server, a graph server or another service failed after all retries; it may answer later."""


class RequestRefused(ServiceError):
    """The servers are up, and all refused a request for good, such as one with a wrong key; the message says why."""


class Unanswerable(ServiceError):
    """A model cannot answer a call, now or later, such as one that is not in the run that is replayed."""


class RunStopped(KeyboardInterrupt):
    """Ctrl-C or SIGTERM after a run has begun in its folder, so that the same command can continue it."""


class ContextOverflow(Unanswerable):
    """A prompt is longer than the model's context. Prompts are never truncated silently (specification §2.3)."""


def single_errors(error: Exception) -> Iterator[Exception]:
    """Yield the errors of a group, also of groups in it, in order; the error itself if it is no group."""
    if isinstance(error, ExceptionGroup):
        for each in error.exceptions:
            yield from single_errors(each)
    else:
        yield error


_DEFECTS = {
    "missing": "is missing",
    "string_type": "must be a text",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
    **dict.fromkeys(("list_type", "tuple_type"), "must be a list"),
    **dict.fromkeys(("model_type", "model_attributes_type", "dataclass_type", "dict_type"), "must be an object"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
}
"""What Pydantic's types of errors mean, for readers who do not know Pydantic."""
_WORD = "a word that is not null, true or false"
"""What the parser of JSON calls "expected ident"."""


def first_defect(error: ValidationError) -> str:
    """Return what is wrong first, and where, without the value, which may be a secret or many lines.

    For a field that is missing, it names a present one with a similar name.
    """
    first = error.errors(include_url=False)[0]
    if first["type"] == "json_invalid":
        return f"it is not valid JSON ({first['ctx']['error'].replace('expected ident', _WORD)})"
    present = first["input"] if first["type"] == "missing" and isinstance(first["input"], dict) else {}
    # Other fields of a row have similar names, such as RawQuestion and QuestionId; a misspelt one differs less.
    similar = closest(str(first["loc"][-1]), map(str, present), cutoff=0.8) if present else None
    place = ".".join(map(str, first["loc"])) or "it"
    defect = _DEFECTS.get(first["type"]) or first["msg"].replace("Input should be", "must be")
    return f"{place} {defect}" + (f", but there is '{similar}'" if similar else "")


def row_defect(error: ValidationError) -> str:
    """Return the first defect of a row, without the place in its JSON: who names the row has another line number."""
    return re.sub(r" at line \d+ column \d+(?=\)$)", "", first_defect(error))
