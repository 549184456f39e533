"""`kgqa show`: show one question of a run: answers, where a wrong one was lost, the facts found, and every step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pydantic.dataclasses import dataclass
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from pipeline import config
from pipeline.analysis.question_trace import QuestionTrace, StepTrace
from pipeline.analysis.question_tree import TreeNode, fact_tree, gold_forms, trail_texts, value_text, walk_tree
from pipeline.analysis.runs import open_run
from pipeline.analysis.score_notes import single_run_notes
from pipeline.cli.arguments import Arguments
from pipeline.cli.output import Output
from pipeline.errors import UserError
from pipeline.normalisation import normalise

_STYLES = {"llm": "cyan", "kg": "blue", "decision": "bright_black"}
_MOST_CHARACTERS = 160
"""Of a reply, a lookup or a decision that is printed on one line."""
_MOST_FACTS = 200
"""Facts in the tree of facts."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The keys of `conf/show.yaml`."""

    configuration: int
    calls: bool
    step: int | tuple[int, ...] | None


def run(arguments: Arguments) -> Output:
    """Print the trace of one question; with `calls=true`, the exact prompt and reply of each model call."""
    if len(arguments.words) != 2:
        raise UserError(
            "name a run folder and the id of a question: kgqa show RUN QUESTION, or kgqa show RUN -- QUESTION for an "
            "id that looks like a key. kgqa losses RUN names wrong ones, and kgqa view RUN lists all"
        )
    folder, question = arguments.words
    plan = config.build_own(Plan, arguments.compose())
    opened = open_run(folder)
    trace = opened.question(question, plan.configuration)
    steps = _chosen(trace, plan.step)
    parts = [] if plan.step is not None else [_head(trace, len(opened.metadata["points"])), _facts(trace)]
    shown = [*parts, _walk(trace, steps, in_full=plan.calls or plan.step is not None)]
    return Output(_figures(trace), shown, single_run_notes(opened.folder), paged=True)


def _chosen(trace: QuestionTrace, wanted: int | Sequence[int] | None) -> Sequence[StepTrace]:
    if wanted is None:
        return trace.steps
    numbers = [wanted] if isinstance(wanted, int) else wanted
    for number in numbers:
        if number not in range(len(trace.steps)):
            known = f"its steps are 0 to {len(trace.steps) - 1}" if trace.steps else "it has none"
            raise UserError(f"the question has no step {number}: {known}")
    return [trace.steps[number] for number in numbers]


# The head: question, answers, scores, and where the answer was lost


def _head(trace: QuestionTrace, configurations: int) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    where = f"{trace.id} of {trace.dataset}, answered by {trace.method}"
    if configurations > 1:
        where += f" in configuration {trace.configuration} of 0 to {configurations - 1}: configuration=N shows another"
    rows = {
        "question": Text(trace.text, style="bold"),
        "id": Text(where),
        "gold": Text(", ".join(trace.gold) or "none"),
        "answers": _answers(trace),
        "status": Text(f"{trace.status}{f': {trace.error}' if trace.error else ''}"),
        "scores": Text(trace.score_text),
        "cost": Text(trace.cost_text),
    }
    if trace.loss:
        rows["lost"] = Text(str(trace.loss), style="bold red")
    for name, text in rows.items():
        table.add_row(name, text)
    return table


def _answers(trace: QuestionTrace) -> Text:
    """Return the answers, the gold ones in green and the others in red."""
    gold = gold_forms(trace)
    answers = (Text(answer, "green" if normalise(answer) in gold else "red") for answer in trace.answers)
    return Text(", ").join(answers) if trace.answers else Text("none", "red")


# The facts: those shown to the call that answered, as a tree from where they start


def _facts(trace: QuestionTrace) -> RenderableType:
    """Return the evidence as a tree. Gold answers are green."""
    facts = fact_tree(trace, _MOST_FACTS)
    tree = Tree(Text(facts.label, style="bold"))
    _add_facts(tree, facts.children)
    return tree


def _add_facts(tree: Tree, facts: Sequence[TreeNode]) -> None:
    for fact in facts:
        _add_facts(tree.add(Text(fact.label, "bold green" if fact.is_gold else "")), fact.children)


# The steps: calls, lookups and decisions, with what they did to the gold answers


def _walk(trace: QuestionTrace, steps: Sequence[StepTrace], *, in_full: bool) -> RenderableType:
    """Return the steps as a tree: those of an attempt, a sub-goal, a hop or a round stand below it."""
    tree = Tree(Text("steps", style="bold"))
    _add_steps(tree, walk_tree(trace), _StepPrinter(trace, {step.number: step for step in steps}, in_full=in_full))
    return tree


def _add_steps(tree: Tree, node: TreeNode, printer: _StepPrinter) -> None:
    for child in node.children:
        if child.kind == "group" and printer.has_steps(child):
            _add_steps(tree.add(Text(child.label, "bold")), child, printer)
        for number in child.steps:
            printer.add(tree, number)


class _StepPrinter:
    """Adds steps of a question to a tree."""

    def __init__(self, trace: QuestionTrace, steps: Mapping[int, StepTrace], *, in_full: bool) -> None:
        self._steps = steps
        self._trail = trail_texts(trace)
        self._lost = trace.loss.step if trace.loss else None
        self._in_full = in_full

    def has_steps(self, node: TreeNode) -> bool:
        """Whether one of the steps to print is in a node or below it."""
        return any(number in self._steps for number in node.steps) or any(map(self.has_steps, node.children))

    def add(self, tree: Tree, number: int) -> None:
        """Add a step if it is one of those to print."""
        if step := self._steps.get(number):
            node = tree.add(_label(step, self._trail.get(number, ""), is_lost=number == self._lost))
            for text in _in_full(step) if self._in_full else _in_short(step):
                node.add(text)


def _label(step: StepTrace, trail: str, *, is_lost: bool) -> Text:
    label = Text.assemble((f"{step.number} ", "bold"), (step.role, _STYLES.get(step.kind, "")))
    if is_lost:
        label.append("  ✗ the answer was lost here", "bold red")
    if step.kind != "decision":
        label.append(f"  {step.seconds_text}{', shared' if step.shared else ''}", "dim")
    if trail:
        label.append(f"  [{trail}]", "green")
    return label


def _in_short(step: StepTrace) -> Iterator[Text]:
    """Yield one line each about the reply, the lookup or the decision of a step; a traceback is whole."""
    if step.completion is not None:
        yield Text(_one_line(step.completion))
        yield from [Text(_one_line(f"reply {step.ending}"), "dim")] if step.ending else []
    if step.query is not None:
        yield Text(f"{_one_line(step.query)} → {step.rows} values")
    if step.payload is not None:
        for name, value in step.payload.items():
            yield Text(str(value) if name == "traceback" else _one_line(f"{name}: {value_text(value)}"), "dim")
    if step.error is not None:
        yield Text(_one_line(f"error: {step.error}"), "red")


def _in_full(step: StepTrace) -> Iterator[Text]:
    """Yield the prompt and the reply of a call; of other steps, everything that they hold."""
    for message in step.prompt:
        yield Text.assemble((f"{message.role}\n", "bold"), message.content)
    if step.completion is not None:
        ending = f", {step.ending}" if step.ending else ""
        yield Text.assemble((f"reply{ending}\n", "bold"), step.completion)
    if step.query is not None:
        yield Text(f"{step.query} → {step.rows} values")
    for name, value in (step.payload or {}).items():
        yield Text(f"{name}: {value_text(value)}", "dim")
    if step.error is not None:
        yield Text(f"error: {step.error}", "red")


def _one_line(text: str) -> str:
    line = " ".join(text[: 8 * _MOST_CHARACTERS].split())
    return line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]}…"


def _figures(trace: QuestionTrace) -> dict[str, Any]:
    """Return the fields of a trace, with the messages of prompts as objects."""
    prompts = [[message._asdict() for message in step.prompt] for step in trace.steps]
    fields = asdict(trace)
    steps = [{**step, "prompt": prompt} for step, prompt in zip(fields["steps"], prompts, strict=True)]
    return {**fields, "steps": steps}
