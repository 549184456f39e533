"""`r3.reflect`: why an attempt failed, and what the next one should do otherwise (methods.md §6.7)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.parsing import Value, clip, read_literal, twice
from pipeline.methods.r3.domains import describe
from pipeline.methods.r3.memory import Step, elide
from pipeline.methods.r3.planner import finish
from pipeline.methods.rendering import as_question, one_line
from pipeline.types import Question

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

Failure: TypeAlias = Literal["incorrect", "halted"]

CATEGORIES = (
    "wrong_node",
    "wrong_edge_or_feature",
    "missing_step",
    "misread_question",
    "format",
    "loop",
    "budget",
    "other",
)
_LONGEST = 2000
"""Characters of each text that a reflection hands on."""
_MOST = 10
_LEAST_LOG = 1000
"""Characters of the log that are shown, however long the knowledge path is."""

REFLECT = Template(
    system=f"""\
An agent answers questions by walking through a graph with the tools RetrieveNode, NodeFeature,
NeighbourCheck, NodeDegree and Finish (in some graphs also Relations). One of its attempts has failed:
it was *incorrect*, or it *halted* before it could finish. You see what it did. Find the first mistake
that led to the failure, and say what a new attempt, which will remember nothing, should do instead.

Reply with one JSON object:
{{"root_cause": "the first mistake, in a sentence", "category": one of {", ".join(CATEGORIES)},
"advice": ["what to do, step by step, with tool and edge names"], "avoid": ["actions not to repeat"],
"retry": true}}
`retry` is false only when the graph cannot hold the answer.

Examples

Question: Which brand makes the Zephyline 40 Camping Lantern?
Outcome: incorrect, with the answer brand_12
Reflection: {{"root_cause": "The answer is the id of the brand; its name was never looked up.",
"category": "missing_step", "advice": ["Find the brand by NeighbourCheck[item id, brand].",
"Then read NodeFeature[brand id, name] and finish with it."],
"avoid": ["Finish[brand_12]"], "retry": true}}

Question: At which venue did Orla Quist publish in 1997?
Outcome: halted, without an answer
Reflection: {{"root_cause": "The references of every paper were listed, one after the other.",
"category": "wrong_edge_or_feature", "advice": ["List the papers of the author, read all their years on
one line, and go to the venue of the paper of 1997."],
"avoid": ["NeighbourCheck[p5, reference]"], "retry": true}}""",
    user="""\
The graph: {{schema}}

Question: {{question}}
Outcome: {{outcome}}
{{memory}}Reflection:""",
)


@dataclass(frozen=True, slots=True)
class Guidance:
    """What a reflection hands to the next attempt."""

    root_cause: str = ""
    category: str = "other"
    advice: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    retry: bool = True

    @property
    def block(self) -> str:
        """The lines that stand before the scratchpad of the next attempt."""
        lines = [f"An earlier attempt failed: {self.root_cause}" if self.root_cause else "An earlier attempt failed."]
        lines += [f"Advice: {advice}" for advice in self.advice]
        lines += [f"Avoid: {action}" for action in self.avoid]
        return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True)
class Reflect(Prompt[Guidance]):
    """One look back over a whole attempt."""

    role: ClassVar[str] = "r3.reflect"
    aids: ClassVar[frozenset[str]] = frozenset({"memory"})

    question: Question
    domain: str
    failure: Failure
    answers: tuple[str, ...] | None
    """None when the attempt did not finish."""
    path: tuple[str, ...] | None = None
    """The knowledge path, line by line; None in the ablation without memory."""
    log: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    """The same trajectory for a simulated model; empty without memory."""
    room: int = 40_000
    """Characters that path and log may take."""

    @property
    def template(self) -> Template:
        return REFLECT

    def inputs(self) -> dict[str, str]:
        answer = (
            "without an answer" if self.answers is None else f"with the answer {'; '.join(self.answers) or '(empty)'}"
        )
        return {
            "schema": one_line(describe(self.domain).schema),
            "question": as_question(self.question.text),
            "outcome": f"{self.failure}, {answer}",
            "memory": self._memory(),
        }

    def _memory(self) -> str:
        """The knowledge path in full, then the log, from both ends when it is too long (§6.7)."""
        if self.path is None:
            return ""
        path = elide(self.path or ("nothing",), self.room)
        log = elide(self.log, max(_LEAST_LOG, self.room - len(path)))
        return f"What was learnt:\n{path}\nWhat was done:\n{log}\n"

    def parse(self, text: str) -> Guidance:
        return twice(_read, text)

    def fallback(self, text: str) -> Guidance:
        """The raw text as advice, and another attempt."""
        return Guidance(advice=(one_line(text)[:_LONGEST],) if text.strip() else ())

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """The gold paths as advice, and every action off them to avoid as far as it is shown; a slip gives up."""
        if slip:
            return _write(Guidance("The graph does not hold the answer.", "other", retry=False))
        topics = truth.topics or self.question.topic_entities
        ways = [
            f"From {topic.name} follow {', then '.join(relation.name for relation in paths[0])}."
            for topic in topics
            if (paths := truth.paths.get(topic.id))
        ]
        gold = {relation.name for paths in truth.paths.values() for path in paths for relation in path}
        avoid = [
            f"{seen.action.tool}[{seen.action.content}]"
            for step in self.steps
            for seen in step.observations
            if seen.action.tool != "RetrieveNode" and not any(seen.action.content.endswith(name) for name in gold)
        ]
        wrong = self.failure == "incorrect" and self.answers
        avoid += [finish(self.answers)] if wrong and self.answers else []
        cause = "The answer is not what was asked for." if wrong else "The way to the answer was left."
        return _write(
            Guidance(cause, "misread_question" if wrong else "budget", tuple(ways), tuple(dict.fromkeys(avoid)))
        )

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        """No insight: words do not tell what went wrong."""
        return _write(Guidance("The attempt failed.", advice=("Try another way.",)))


def _read(text: str) -> Guidance:
    read = read_literal(text, "{")
    assert isinstance(read, dict), "a literal that opens with a brace is a dictionary"
    cause, advice = read.get("root_cause"), _texts(read.get("advice"))
    if not isinstance(cause, str) or not (cause.strip() or advice):
        raise ParseError("the object has no 'root_cause' and no 'advice'")
    category, retry = read.get("category"), read.get("retry", True)
    return Guidance(
        root_cause=one_line(cause)[:_LONGEST],
        category=category if isinstance(category, str) and category in CATEGORIES else "other",
        advice=advice,
        avoid=_texts(read.get("avoid")),
        retry=retry is not False and str(retry).strip().lower() not in {"false", "no"},
    )


def _texts(value: Value) -> tuple[str, ...]:
    items: Sequence[Value] = value if isinstance(value, list) else [value]
    return tuple(one_line(item)[:_LONGEST] for item in items[:_MOST] if isinstance(item, str) and item.strip())


def _write(guidance: Guidance) -> str:
    fields = {
        "root_cause": clip(guidance.root_cause, _LONGEST),
        "category": guidance.category,
        "advice": guidance.advice,
        "avoid": guidance.avoid,
        "retry": guidance.retry,
    }
    return json.dumps(fields, ensure_ascii=False)
