"""`kgqa show`: show one question of a run: answers, where a wrong one was lost, the facts found, and every step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from pipeline.analysis.question_trace import QuestionTrace, StepTrace
from pipeline.analysis.runs import open_run
from pipeline.cli.common import Arguments, Output
from pipeline.errors import UserError
from pipeline.normalisation import normalise

_COSTS = {"llm_calls": "model calls", "prompt_tokens": "prompt tokens", "completion_tokens": "completion tokens"}
_STYLES = {"llm": "cyan", "kg": "blue", "decision": "bright_black"}
_MOST_CHARACTERS = 160
"""Of a reply, a lookup or a decision that is printed on one line."""
_MOST_FACTS = 200
"""Facts in the tree of facts."""


def run(arguments: Arguments) -> Output:
    """Print the trace of one question; with `calls=true`, the exact prompt and reply of each model call."""
    if len(arguments.words) != 2:
        raise UserError("name a run folder and the id of a question: kgqa show RUN QUESTION")
    folder, question = arguments.words
    keys = arguments.compose()
    opened = open_run(folder)
    trace = opened.question(question, keys["configuration"])
    steps = _chosen(trace, keys["step"])
    parts = [] if keys["step"] is not None else [_head(trace, len(opened.metadata["points"])), _facts(trace)]
    shown = [*parts, _walk(trace, steps, in_full=keys["calls"] or keys["step"] is not None)]
    return Output(_figures(trace), shown, paged=True)


def _chosen(trace: QuestionTrace, wanted: int | Sequence[int] | None) -> Sequence[StepTrace]:
    if wanted is None:
        return trace.steps
    numbers = [wanted] if isinstance(wanted, int) else wanted
    for number in numbers:
        if number not in range(len(trace.steps)):
            raise UserError(f"the question has no step {number}: its steps are 0 to {len(trace.steps) - 1}")
    return [trace.steps[number] for number in numbers]


# The head: question, answers, scores, and where the answer was lost


def _head(trace: QuestionTrace, configurations: int) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    where = f"{trace.id} of {trace.dataset}, answered by {trace.method}"
    if configurations > 1:
        where += f" in configuration {trace.configuration} of 0 to {configurations - 1}: configuration=N shows another"
    scores = ", ".join(f"{name} {score:.3g}" for name, score in trace.scores.items()) or "none"
    costs = ", ".join(f"{trace.row[name]:,} {unit}" for name, unit in _COSTS.items())
    rows = {
        "question": Text(trace.text, style="bold"),
        "id": Text(where),
        "gold": Text(", ".join(trace.gold) or "none"),
        "answers": _answers(trace),
        "status": Text(f"{trace.status}{f': {trace.error}' if trace.error else ''}"),
        "scores": Text(scores),
        "cost": Text(costs),
    }
    if trace.loss:
        rows["lost"] = Text(str(trace.loss), style="bold red")
    for name, text in rows.items():
        table.add_row(name, text)
    return table


def _answers(trace: QuestionTrace) -> Text:
    """Return the answers, the gold ones in green and the others in red."""
    gold = _gold_forms(trace)
    answers = (Text(answer, "green" if normalise(answer) in gold else "red") for answer in trace.answers)
    return Text(", ").join(answers) if trace.answers else Text("none", "red")


def _gold_forms(trace: QuestionTrace) -> set[str]:
    aliases = (alias for of_one in trace.row["gold_aliases"] for alias in of_one)
    return {normalise(name) for name in (*trace.gold, *aliases)}


# The facts: those shown to the call that answered, as a tree from where they start


def _facts(trace: QuestionTrace) -> RenderableType:
    """Return the evidence as a tree. Gold answers are green."""
    chains: dict[int, list[Mapping[str, Any]]] = {}
    for fact in (trace.row["evidence"] or ())[:_MOST_FACTS]:
        chains.setdefault(fact["chain"], []).append(fact)
    tree = Tree(Text(f"facts that the answer is read from: {len(trace.row['evidence'] or ())}", style="bold"))
    gold = _gold_forms(trace)
    branches: dict[tuple[str, ...], Tree] = {}
    for facts in chains.values():
        for label, path in _hops(facts):
            if path not in branches:
                style = "bold green" if normalise(label.rpartition("→ ")[2].rpartition("← ")[2]) in gold else ""
                branches[path] = branches.get(path[:-1], tree).add(Text(label, style))
    return tree


def _hops(facts: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the start of a chain and each of its hops, as text and as the path to it."""
    names = {fact[end]: fact[f"{end}_name"] or fact[end] for fact in facts for end in ("head", "tail")}
    here = _start(facts)
    path: tuple[str, ...] = (names[here],)
    yield names[here], path
    for fact in facts:
        forwards = fact["head"] == here
        here = fact["tail"] if forwards else fact["head"]
        label = f"{fact['relation']} → {names[here]}" if forwards else f"{fact['relation']} ← {names[here]}"
        path = (*path, label)
        yield label, path


def _start(facts: Sequence[Mapping[str, Any]]) -> str:
    """Return the node at which a chain of facts starts."""
    first = facts[0]
    if len(facts) == 1:
        return str(first["head"])
    return str(first["tail"] if first["head"] in (facts[1]["head"], facts[1]["tail"]) else first["head"])


# The steps: calls, lookups and decisions, with what they did to the gold answers


def _walk(trace: QuestionTrace, steps: Sequence[StepTrace], *, in_full: bool) -> RenderableType:
    """Return the steps as a tree: what follows from a lookup stands below it."""
    tree = Tree(Text("steps", style="bold"))
    trail = _trail_texts(trace)
    branch = tree
    for step in steps:
        is_lost = trace.loss is not None and trace.loss.step == step.number
        label = _label(step, trail.get(step.number, ""), is_lost=is_lost)
        if step.kind == "kg" and step.role in {"relations", "neighbours", "degrees"}:
            branch = node = tree.add(label)
        else:
            node = branch.add(label)
        for text in _in_full(step) if in_full else _in_short(step):
            node.add(text)
    return tree


def _label(step: StepTrace, trail: str, *, is_lost: bool) -> Text:
    label = Text.assemble((f"{step.number} ", "bold"), (step.role, _STYLES.get(step.kind, "")))
    if is_lost:
        label.append("  ✗ the answer was lost here", "bold red")
    if step.kind != "decision":
        label.append(f"  {step.duration_s:.3f} s{', shared' if step.shared else ''}", "dim")
    if trail:
        label.append(f"  [{trail}]", "green")
    return label


def _in_short(step: StepTrace) -> Iterator[Text]:
    """Yield one line each about the reply, the lookup or the decision of a step; a traceback is whole."""
    if step.completion is not None:
        yield Text(_one_line(step.completion))
    if step.query is not None:
        yield Text(f"{_one_line(step.query)} → {step.rows} values")
    if step.payload is not None:
        for name, value in step.payload.items():
            yield Text(str(value) if name == "traceback" else _one_line(f"{name}: {_as_text(value)}"), "dim")
    if step.error is not None:
        yield Text(_one_line(f"error: {step.error}"), "red")


def _in_full(step: StepTrace) -> Iterator[Text]:
    """Yield the prompt and the reply of a call; of other steps, everything that they hold."""
    for message in step.prompt:
        yield Text.assemble((f"{message.role}\n", "bold"), message.content)
    if step.completion is not None:
        yield Text.assemble(("reply\n", "bold"), step.completion)
    if step.query is not None:
        yield Text(f"{step.query} → {step.rows} values")
    for name, value in (step.payload or {}).items():
        yield Text(f"{name}: {_as_text(value)}", "dim")
    if step.error is not None:
        yield Text(f"error: {step.error}", "red")


def _as_text(value: object) -> str:
    """Return a value of a decision with its numbers rounded: scores have many digits."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_as_text(one)}" for key, one in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        texts = [f"({_as_text(one)})" if isinstance(one, (list, Mapping)) else _as_text(one) for one in value]
        return ", ".join(texts) or "none"
    return str(value)


def _one_line(text: str) -> str:
    line = " ".join(text[: 8 * _MOST_CHARACTERS].split())
    return line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]}…"


_EVENTS = {
    "listed": "the next gold relation is among the relations",
    "followed": "follows a gold relation",
    "passed": "passes a gold relation by",
    "found": "finds a gold answer",
    "shown": "reads a gold answer",
    "written": "writes a gold answer",
    "answered": "gives the answers",
}


def _trail_texts(trace: QuestionTrace) -> Mapping[int, str]:
    """Return for each step what it did to the gold answers and gold paths."""
    texts: dict[int, dict[str, None]] = {}
    for event in trace.row.get("trail") or ():
        text = _EVENTS.get(event["event"])
        if event["event"] in {"shown", "written"} and event["edge"] is not None:
            text = None  # the prompt repeats the relations of all hops before
        if event["event"] == "listed" and not event["number"]:
            text = "the next gold relation is missing"
        if event["event"] == "cut":
            text = f"{event['by']} cuts {'a gold answer' if event['edge'] is None else 'a gold path'}"
        if text:
            texts.setdefault(event["step"], {})[text] = None
    return {step: "; ".join(of_step) for step, of_step in texts.items()}


def _figures(trace: QuestionTrace) -> dict[str, Any]:
    """Return the fields of a trace, with the messages of prompts as objects."""
    prompts = [[message._asdict() for message in step.prompt] for step in trace.steps]
    fields = asdict(trace)
    steps = [{**step, "prompt": prompt} for step, prompt in zip(fields["steps"], prompts, strict=True)]
    return {**fields, "steps": steps}
