"""`kgqa show`: show one question of a run, with its answers, its scores and every step."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pipeline.analysis.question_trace import QuestionTrace
from pipeline.analysis.runs import open_run
from pipeline.cli.common import Arguments, Output
from pipeline.errors import UserError


def run(arguments: Arguments) -> Output:
    """Print the trace of one question, with the exact prompt of each model call."""
    if len(arguments.words) != 2:
        raise UserError("name a run folder and the id of a question: kgqa show RUN QUESTION")
    folder, question = arguments.words
    trace = open_run(folder).question(question, arguments.compose()["configuration"])
    return Output(_figures(trace), lines=[str(trace)], pages=True)


def _figures(trace: QuestionTrace) -> dict[str, Any]:
    """Return the fields of a trace, with the messages of prompts as objects."""
    prompts = [[message._asdict() for message in step.prompt] for step in trace.steps]
    fields = asdict(trace)
    steps = [{**step, "prompt": prompt} for step, prompt in zip(fields["steps"], prompts, strict=True)]
    return {**fields, "steps": steps}
