"""Reads the result files that ToG and PoG publish: the text of a question, and the model's last reply."""

from __future__ import annotations

from pydantic import AliasChoices, Field, ValidationError

from pipeline.datasets.files import Row, Text
from pipeline.errors import ParseError
from pipeline.methods.parsing import brace_answers
from pipeline.methods.pog.verdict import read_verdict
from pipeline.types import Answer, Prediction


class _Line(Row):
    question: Text = Field(validation_alias=AliasChoices("question", "RawQuestion"))
    """Under the key that the dataset has for it."""
    results: str


def read_published_line(text: str | bytes) -> tuple[str, Answer] | None:
    """Return the question's text and the answer of a line; None for a line of another format."""
    try:
        line = _Line.model_validate_json(text)
    except ValidationError:
        return None
    return line.question, Answer(tuple(map(Prediction, _answers(line.results))), raw=line.results)


def _answers(reply: str) -> tuple[str, ...]:
    """Return the answers of a reply with a JSON object, as PoG's, or with an answer in braces, as ToG's."""
    try:
        return read_verdict(reply, ["answers", "answer"]).answers
    except ParseError:
        pass
    try:
        return tuple(text for text in brace_answers(reply) if text.lower() not in {"yes", "no"})
    except ParseError:
        return ()
