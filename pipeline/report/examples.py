"""Selects wrong questions that are typical of a configuration, with their transcripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pipeline.analysis.question_trace import QuestionTrace, StepTrace
from pipeline.analysis.runs import open_run
from pipeline.report.data import Block, Group
from pipeline.report.labels import BlockLabels, Name, inline
from pipeline.text import kgqa, printable, show_command
from pipeline.viewer.index_queries import question_url

_MOST_METHODS = 6
"""Methods with examples: those that come first in the runs."""
_LONGEST_TEXT = 3_000
"""Of one message, reply or payload, in characters."""


@dataclass(frozen=True, slots=True)
class ExampleStep:
    """A step of a transcript."""

    heading: str
    texts: tuple[tuple[str, str], ...]
    """What it holds, each with its name: the messages of a prompt, a reply, a lookup, a decision, an error."""
    is_loss: bool
    """Whether the answer was lost at it."""


@dataclass(frozen=True, slots=True)
class Example:
    """A wrong question."""

    group: int
    """The number of the group of its configuration in the legend."""
    name: Name
    """Its configuration."""
    question: str
    gold: str
    answers: str
    lost: str
    """Where it was lost."""
    alike: int
    """The number of questions of its configuration that were lost at the same stage for the same reason."""
    command: str
    """Shows it in the terminal."""
    viewer: str
    """Serves the run to a browser."""
    page: str
    """The path of its page there."""
    steps: tuple[ExampleStep, ...]


def examples(block: Block, labels: BlockLabels) -> list[Example]:
    """Return the first question of the largest groups of losses, of the best configuration of each method."""
    return [example for index in _best_of_methods(block) for example in _examples(block, labels, index)]


def methods_without_examples(block: Block) -> int:
    """Return how many methods are left out of the examples."""
    return max(0, len({configuration.group for configuration in block.configurations}) - _MOST_METHODS)


def _best_of_methods(block: Block) -> list[int]:
    best: dict[Group, int] = {}
    for index, configuration in enumerate(block.configurations):
        other = best.setdefault(configuration.group, index)
        if configuration.hits_at_1 > block.configurations[other].hits_at_1:
            best[configuration.group] = index
    return list(best.values())[:_MOST_METHODS]


def _examples(block: Block, labels: BlockLabels, index: int) -> Iterator[Example]:
    configuration = block.configurations[index]
    if not configuration.details.groups:
        return
    run, number = open_run(configuration.run.path), configuration.summary.number
    for group in configuration.details.groups:
        trace = run.question(group.example, number)
        yield Example(
            group=labels.group_number(configuration.group),
            name=labels.names[index],
            question=_cut(trace.text),
            gold=_cut(", ".join(trace.gold)),
            answers=_cut(", ".join(trace.answers)) or "none",
            lost=_cut(str(trace.loss)),
            alike=group.questions,
            command=show_command(run.folder.path, trace.id, number, len(run.metadata["points"])),
            viewer=kgqa("view", run.folder.path),
            page=question_url(configuration.run.name, number, trace.id),
            steps=tuple(_steps(trace)),
        )


def _steps(trace: QuestionTrace) -> Iterator[ExampleStep]:
    for step in trace.steps:
        shared = ", shared" if step.shared else ""
        heading = f"{step.number} · {_KINDS.get(step.kind, step.kind)} {inline(step.role)}{shared}"
        lost = trace.loss is not None and trace.loss.step == step.number
        yield ExampleStep(heading, tuple(_texts(step)), lost)


_KINDS: Mapping[str, str] = {"llm": "call", "kg": "lookup", "decision": "decision"}


def _texts(step: StepTrace) -> Iterator[tuple[str, str]]:
    for message in step.prompt:
        yield message.role, _cut(message.content)
    if step.completion is not None:
        yield "reply", _cut(step.completion)
    if step.query is not None:
        yield "lookup", _cut(f"{step.query} → {step.rows} values")
    for name, value in (step.payload or {}).items():
        yield name, _cut(str(value))
    if step.error is not None:
        yield "error", _cut(step.error)


def _cut(text: str) -> str:
    """Return the beginning of a text that may be very long, without characters that a browser hides or reorders."""
    if len(text) <= _LONGEST_TEXT:
        return printable(text)
    return f"{printable(text[:_LONGEST_TEXT])} … ({len(text) - _LONGEST_TEXT:,} more characters)"
