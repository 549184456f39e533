"""`r3.thought`, `r3.action` and `r3.step`: one step of the agent (methods.md §6.2)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, ClassVar, TypeVar

from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.parsing import clip, first_line
from pipeline.methods.r3.actions import ActionLine, read_actions
from pipeline.methods.r3.domains import describe
from pipeline.methods.r3.memory import Step
from pipeline.methods.r3.planner import plan, plan_by_similarity, slipped
from pipeline.methods.r3.reflect import Guidance
from pipeline.methods.rendering import as_question
from pipeline.types import Question

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

T = TypeVar("T")

_THOUGHT = re.compile(r"\A\s*Thought\s*\d{0,4}\s*:", re.IGNORECASE)
_ACTION = re.compile(r"^[ \t]*Action[ \t]*\d{0,4}[ \t]*:", re.IGNORECASE | re.MULTILINE)
_OBSERVATION = re.compile(r"^[ \t]*Observation[ \t]*\d{0,4}[ \t]*:", re.IGNORECASE | re.MULTILINE)
_LONGEST_THOUGHT = 2000

_INSTRUCTION = """\
You answer a question by walking through a graph, in turns of a thought, an action and an observation.
A thought says what is known and what is needed next. An action uses these tools:

RetrieveNode[keyword] gives the node whose text is most like the keyword.
NodeFeature[id, feature] gives the value of a feature of a node.
NeighbourCheck[id, neighbour type] lists the neighbours of a node by that type of edge.
NodeDegree[id, neighbour type] gives the number of those neighbours.
Finish[answer] ends the search with the answer.

Several actions may stand on one line; they are carried out in order. Never write an observation
yourself: it is given to you. Answer with names, numbers or dates, not with node ids, and part several
answers by a comma and a blank."""
_TURN = {
    "separate": "Write only the line that is asked for: the thought, or the action.",
    "merged": "Write two lines: the thought, and on the next line `Action` with its number, a colon and the action.",
}
_USER = {
    "thought": "Thought {{number}}:",
    "action": "Thought {{number}}: {{thought}}\nAction {{number}}:",
    "step": "Thought {{number}}:",
}


@lru_cache
def _template(domain: str, part: str) -> Template:
    described = describe(domain)
    system = [
        _INSTRUCTION,
        _TURN["merged" if part == "step" else "separate"],
        f"The graph\n\n{described.schema}",
        "Examples",
        *described.examples,
    ]
    user = "Question: {{question}}\n{{memory}}{{guidance}}{{scratchpad}}" + _USER[part]
    return Template(system="\n\n".join(system), user=user)


@dataclass(frozen=True)
class Turn:
    """All that a call of the agent sees."""

    question: Question
    domain: str
    steps: tuple[Step, ...] = ()
    guidance: Guidance | None = None
    digest: tuple[str, ...] = ()
    """Lines of the knowledge path, in the ablation that puts memory into the prompt."""

    @property
    def number(self) -> int:
        return len(self.steps) + 1


@dataclass(frozen=True)
class _AgentPrompt(Prompt[T]):
    """A call of the agent. Its reply is never asked for again: what cannot be read becomes an observation."""

    part: ClassVar[str]
    aids: ClassVar[frozenset[str]] = frozenset({"memory"})

    turn: Turn

    @property
    def template(self) -> Template:
        return _template(self.turn.domain, self.part)

    def inputs(self) -> dict[str, str]:
        turn = self.turn
        digest = "".join(f"{line}\n" for line in ("Known so far:", *turn.digest)) if turn.digest else ""
        return {
            "question": as_question(turn.question.text),
            "memory": digest,
            "guidance": turn.guidance.block if turn.guidance else "",
            "scratchpad": "".join(map(_print, turn.steps)),
            "number": str(turn.number),
        }

    def fallback(self, text: str) -> T:
        return self.parse(text)


@dataclass(frozen=True)
class Thought(_AgentPrompt[str]):
    """What to do next, in words. It is shown to the action call, and steers a simulated model no further."""

    role: ClassVar[str] = "r3.thought"
    part: ClassVar[str] = "thought"

    def parse(self, text: str) -> str:
        return _thought(text)

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """What the plan is; with a slip, a thought that helps nobody."""
        return "I am not sure where to look." if slip else "I follow the way to what is asked for."

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        return "I follow what is most like the question."


@dataclass(frozen=True)
class NextAction(_AgentPrompt[ActionLine]):
    """The action line."""

    role: ClassVar[str] = "r3.action"
    part: ClassVar[str] = "action"

    thought: str = ""

    def inputs(self) -> dict[str, str]:
        return {**super().inputs(), "thought": self.thought}

    def parse(self, text: str) -> ActionLine:
        return _action(text)

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """The next moves along the gold paths, or Finish with what was observed; with a slip, a wrong move."""
        return _written(self.turn, truth, slip)

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        turn = self.turn
        return plan_by_similarity(turn.question, turn.steps, encoder, described=turn.domain == "triples")


@dataclass(frozen=True)
class ThoughtAndAction(_AgentPrompt[tuple[str, ActionLine]]):
    """Both in one call (`calls_per_step=1`)."""

    role: ClassVar[str] = "r3.step"
    part: ClassVar[str] = "step"

    def parse(self, text: str) -> tuple[str, ActionLine]:
        cue = _ACTION.search(text)
        thought = _thought(text[: cue.start()] if cue else text)
        return thought, _action(text[cue.start() :] if cue else text)

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """As the two calls would."""
        return self._both(_written(self.turn, truth, slip))

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        return self._both(NextAction(self.turn).write_by_similarity(encoder))

    def _both(self, action: str) -> str:
        return f"I go on.\nAction {self.turn.number}: {action}"


def _written(turn: Turn, truth: Truth, slip: Random | None) -> str:
    if slip:
        avoided = turn.guidance.avoid if turn.guidance else ()
        return slipped(turn.question, turn.steps, truth, slip, avoided=avoided)
    return plan(turn.question, turn.steps, truth)


def _print(step: Step) -> str:
    number = step.number
    return (
        f"Thought {number}: {step.thought}\nAction {number}: {step.action}\nObservation {number}: {step.observation}\n"
    )


def _thought(text: str) -> str:
    return clip(first_line(_THOUGHT.sub("", text)), _LONGEST_THOUGHT)


def _action(text: str) -> ActionLine:
    """The action line, without what the model imagines to follow it."""
    text = _OBSERVATION.split(text, maxsplit=1)[0]
    read = read_actions(_ACTION.sub("", text))
    return ActionLine(clip(read.text, 20_000), read.actions)
