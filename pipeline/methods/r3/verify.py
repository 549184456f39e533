"""Deciding without gold that a finished attempt has failed: `r3.verify`, or rules (methods.md §6.6)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.parsing import read_literal, twice
from pipeline.methods.r3.memory import Memory, Step, elide, listings
from pipeline.methods.rendering import as_question, one_line
from pipeline.text import normalise
from pipeline.types import Question

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

VERIFY = Template(
    system="""\
You check an answer that an agent has found by walking through a graph. You see the question, the answer
and what the agent learnt, one line per lookup: `from -> edge, feature or search: what was found`, or
`<-` where the edge points the other way.

Accept the answer when what was learnt supports it, it is of the kind that the question asks for, and
nothing is missing. Otherwise reject it. Reply with one JSON object:
{"verdict": "accept" or "reject", "why": "one sentence"}

Examples

Question: Which brand makes the Zephyline 40 Camping Lantern?
Answer: brand_12
Learnt:
"Zephyline 40 Camping Lantern" -> search: B00QZ1
"B00QZ1" -> brand: brand_12
Check: {"verdict": "reject", "why": "The answer is a node id; the name of the brand was not looked up."}

Question: Who drew up the plans for the Ondrel Bridge?
Answer: Odo Marrick
Learnt:
"Ondrel Bridge" -> search: m.0q1
"m.0q1" -> architecture.structure.architect: m.0q7 "Odo Marrick"
Check: {"verdict": "accept", "why": "The architect of the bridge is Odo Marrick."}

Question: At which venue did Orla Quist publish in 1997?
Answer: Journal of Slow Computing
Learnt:
"Orla Quist" -> search: a44
"a44" -> paper: p5, p6
"p6" -> venue: v8
"v8" -> name: Journal of Slow Computing
Check: {"verdict": "reject", "why": "The years of the papers were not read; it may be the venue of another."}""",
    user="""\
Question: {{question}}
Answer: {{answer}}
Learnt:
{{path}}
Check:""",
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check makes of an answer."""

    accept: bool
    why: str = ""


@dataclass(frozen=True)
class Verify(Prompt[Verdict]):
    """Whether an answer is supported, of the kind asked for, and complete."""

    role: ClassVar[str] = "r3.verify"

    question: Question
    answers: tuple[str, ...]
    path: tuple[str, ...]
    room: int = 40_000
    """Characters that the path may take."""

    @property
    def template(self) -> Template:
        return VERIFY

    def inputs(self) -> dict[str, str]:
        return {
            "question": as_question(self.question.text),
            "answer": "; ".join(map(one_line, self.answers)) or "(empty)",
            "path": elide(self.path, self.room) or "nothing",
        }

    def parse(self, text: str) -> Verdict:
        return twice(_read, text)

    def fallback(self, text: str) -> Verdict:
        return Verdict(accept=True)

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """Accepts what is right, and nothing but that; a slip is the other verdict."""
        return _write(accept=is_right(self.answers, truth) != bool(slip))

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        """Accepts everything: a policy that does not read cannot tell what is wrong."""
        return _write(accept=True)


def is_right(answers: Sequence[str], truth: Truth) -> bool:
    """Whether every answer is gold, or all of them in one text are the gold list."""
    if not answers:
        return False
    whole = ", ".join(answer.name for answer in truth.gold.answers)
    return all(map(truth.is_answer, answers)) or normalise(", ".join(answers)) == normalise(whole)


def break_a_rule(answers: Sequence[str], memory: Memory) -> str | None:
    """Which rule the answers of a finished attempt break; None when they may be right."""
    if not answers:
        return "the answer is empty"
    before = [step for step in memory.steps if step.observations]
    if before and not before[-1].observations[-1].ok:
        return "the last observation was an error"
    observed = _Observed.of(memory.steps)
    for answer in answers:
        if answer in observed.ids and normalise(answer) not in observed.names:
            return "the answer is a node id"
        if not observed.holds(answer):
            return "the answer was never observed"
    return None


@dataclass(frozen=True, slots=True)
class _Observed:
    ids: frozenset[str]
    names: frozenset[str]
    counts: frozenset[str]
    text: str

    @classmethod
    def of(cls, steps: Iterable[Step]) -> _Observed:
        steps = tuple(steps)
        lists = list(listings(steps))
        items = [item for one in lists for item in one.items]
        by_edge: dict[str, set[object]] = {}
        for one in lists:
            by_edge.setdefault(one.via, set()).update(item.node for item in one.items)
        counts = {len(nodes) for nodes in by_edge.values()} | {one.total for one in lists}
        full = " ".join(seen.full for step in steps for seen in step.observations)
        return cls(
            ids=frozenset(item.node for item in items if isinstance(item.node, str)),
            names=frozenset(normalise(item.name) for item in items if item.name),
            counts=frozenset(map(str, counts)),
            text=normalise(full),
        )

    def holds(self, answer: str) -> bool:
        """Whether a text was observed, item by item for a list in one text, or is a number of observed things."""
        if answer.strip() in self.counts or normalise(answer) in self.text:
            return True
        return all(normalise(part) in self.text for part in answer.split(", "))


def _read(text: str) -> Verdict:
    read = read_literal(text, "{")
    assert isinstance(read, dict), "a literal that opens with a brace is a dictionary"
    verdict, why = str(read.get("verdict", "")).strip().lower(), read.get("why")
    if verdict not in {"accept", "reject"}:
        raise ParseError("the 'verdict' is neither 'accept' nor 'reject'")
    return Verdict(verdict == "accept", one_line(why)[:500] if isinstance(why, str) else "")


def _write(*, accept: bool) -> str:
    why = "It follows from what was learnt." if accept else "It does not follow from what was learnt."
    return json.dumps({"verdict": "accept" if accept else "reject", "why": why})
