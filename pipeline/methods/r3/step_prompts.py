"""`r3.thought`, `r3.action` and `r3.step`: the prompts of one step of the agent (specification §6.2)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, TypeVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.parsing import first_line, truncate
from pipeline.methods.r3.actions import MAX_CHARACTERS, ActionLine, read_actions
from pipeline.methods.r3.domains import describe
from pipeline.methods.r3.memory import Step
from pipeline.methods.r3.reflect import Guidance
from pipeline.methods.rendering import as_question
from pipeline.methods.templates import load_texts
from pipeline.types import Question

T = TypeVar("T")

_THOUGHT = re.compile(r"\A\s*Thought\s*\d{0,4}\s*:", re.IGNORECASE)
_ACTION = re.compile(r"^[ \t]*Action[ \t]*\d{0,4}[ \t]*:", re.IGNORECASE | re.MULTILINE)
_ECHOED_ACTION = re.compile(r"\bAction[ \t]*\d{1,4}[ \t]*:")
_OBSERVATION = re.compile(r"^[ \t]*Observation[ \t]*\d{0,4}[ \t]*:", re.IGNORECASE | re.MULTILINE)
_MAX_THOUGHT = 2000

_TEXTS = load_texts(__file__, "agent")


@lru_cache
def _template(domain: str, part: str) -> Template:
    described = describe(domain)
    system = [
        _TEXTS["instruction"],
        _TEXTS["tools"]["triples" if domain == "triples" else "attributes"],
        _TEXTS["rules"],
        _TEXTS["merged" if part == "step" else "separate"],
        f"The graph\n\n{described.schema}",
        "Examples",
        *described.examples,
    ]
    user = "Question: {{question}}\n{{memory}}{{guidance}}{{scratchpad}}{{turns}}" + _TEXTS["user"][part]
    return Template(system="\n\n".join(system), user=user)


@dataclass(frozen=True)
class Turn:
    """The state of the agent that its prompts show."""

    question: Question
    domain: str
    steps: tuple[Step, ...] = ()
    guidance: Guidance | None = None
    digest: tuple[str, ...] = ()
    """Lines of the knowledge path, for the ablation that shows the memory in the prompt."""
    left: int | None = None
    """The steps that the limit leaves, with this one; None if the prompt is not to say it."""

    @property
    def number(self) -> int:
        return len(self.steps) + 1


@dataclass(frozen=True)
class AgentPrompt(Prompt[T]):
    """A call of the agent. It is never retried: a reply without an action leads to an observation that says so.

    Such a reply counts as one that could not be read.
    """

    part: ClassVar[str]

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
            "scratchpad": "".join(_print_step(step, latest=step is turn.steps[-1]) for step in turn.steps),
            "turns": _print_turns(turn.left),
            "number": str(turn.number),
        }


@dataclass(frozen=True)
class Thought(AgentPrompt[str]):
    """What to do next, in words. The prompt for the action shows it."""

    role: ClassVar[str] = "r3.thought"
    part: ClassVar[str] = "thought"

    def parse(self, text: str) -> str:
        return _read_thought(text)

    def fallback(self, text: str) -> str:
        return _read_thought(text)


@dataclass(frozen=True)
class NextAction(AgentPrompt[ActionLine]):
    """The action line that follows a thought."""

    role: ClassVar[str] = "r3.action"
    part: ClassVar[str] = "action"

    thought: str = ""

    def inputs(self) -> dict[str, str]:
        return {**super().inputs(), "thought": self.thought}

    def parse(self, text: str) -> ActionLine:
        return _require_action(self.fallback(text))

    def fallback(self, text: str) -> ActionLine:
        return _read_action(text)


@dataclass(frozen=True)
class ThoughtAndAction(AgentPrompt[tuple[str, ActionLine]]):
    """A thought and an action line in one call (`calls_per_step=1`)."""

    role: ClassVar[str] = "r3.step"
    part: ClassVar[str] = "step"

    def parse(self, text: str) -> tuple[str, ActionLine]:
        thought, line = self.fallback(text)
        return thought, _require_action(line)

    def fallback(self, text: str) -> tuple[str, ActionLine]:
        cue = _ACTION.search(text)
        thought = _read_thought(text[: cue.start()] if cue else text)
        return thought, _read_action(text[cue.start() :] if cue else text)


def _print_step(step: Step, *, latest: bool) -> str:
    number, observation = step.number, step.observation if latest else step.old_observation
    return f"Thought {number}: {step.thought}\nAction {number}: {step.action}\nObservation {number}: {observation}\n"


def _print_turns(left: int | None) -> str:
    if left is None:
        return ""
    return f"({left} turns are left.)\n" if left > 1 else "(This is the last turn: finish now.)\n"


def _read_thought(text: str) -> str:
    line = first_line(_THOUGHT.sub("", text))
    cue = _ECHOED_ACTION.search(line)
    return truncate(line[: cue.start()].rstrip() if cue else line, _MAX_THOUGHT)


def _require_action(line: ActionLine) -> ActionLine:
    """Raise ParseError for a line that has no action with a known tool."""
    if not any(action.tool for action in line.actions):
        raise ParseError("there is no action")
    return line


def _read_action(text: str) -> ActionLine:
    """Read the action line, without any observation that the model made up after it."""
    text = _OBSERVATION.split(text, maxsplit=1)[0]
    line = read_actions(_ACTION.sub("", text))
    return ActionLine(truncate(line.text, MAX_CHARACTERS), line.actions)
