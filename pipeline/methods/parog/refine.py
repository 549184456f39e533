"""`parog.refine`, as one call or as three, and `parog.read`: answer from facts (specification §5.6, §5.8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeVar

from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parog.node_labels import NodeLabels
from pipeline.methods.parog.plan import SubGoal
from pipeline.methods.parog.relations import print_subgoal
from pipeline.methods.parog.replies import print_list, read_flag, read_object, read_texts
from pipeline.methods.parog.subgoal_result import SubgoalResult
from pipeline.methods.parog.tentative import print_answers
from pipeline.methods.parsing import Value, parse_leniently
from pipeline.methods.rendering import as_question, one_line, print_facts
from pipeline.methods.templates import load_template, load_texts
from pipeline.types import Question

T = TypeVar("T")

_TEXTS = load_texts(__file__, "refinement")


def _template(name: str) -> Template:
    """Return the template of a refinement: the task, what to ask for, the example, and the reply to it."""
    asked = _TEXTS[name]
    example = f"{_TEXTS['example']}\n{asked['reply']}"
    return Template(system="\n\n".join([_TEXTS["task"], asked["ask"], example]), user=_TEXTS["user"])


REFINE, ALIGN, CORRECT, SUFFICE = map(_template, ("refine", "align", "correct", "suffice"))


@dataclass(frozen=True, slots=True)
class Refinement:
    """The parsed reply of a refinement."""

    aligned: bool = False
    """Whether the facts are about the sub-goal."""
    answers: tuple[str, ...] = ()
    done: bool = False
    """Whether nothing more has to be looked up for the sub-goal."""
    final: tuple[str, ...] = ()
    """The answers to the question itself; empty unless the reply reports the question answered."""
    raw: str = ""


@dataclass(frozen=True)
class FactsPrompt(Prompt[T]):
    """Base of the prompts that show the facts found for a sub-goal."""

    question: Question
    subgoal: SubGoal
    facts: tuple[GroundedPath, ...]
    labels: NodeLabels
    dependencies: tuple[SubgoalResult, ...] = ()
    """The results of the sub-goals that this one uses."""
    tentative: tuple[str, ...] = ()

    def inputs(self) -> dict[str, str]:
        return {
            "question": as_question(self.question.text),
            "known": print_answers(self.dependencies, self.labels),
            "goal": print_subgoal(self.subgoal),
            "tentative": print_list(map(one_line, self.tentative)),
            "facts": "\n".join(dict.fromkeys(print_facts([self.labels.fact(fact)]) for fact in self.facts)),
        }


@dataclass(frozen=True)
class RefinementPrompt(FactsPrompt[Refinement]):
    """Base of the prompts that check the tentative answer against the facts."""

    def fallback(self, text: str) -> Refinement:
        """Return a refinement that keeps the tentative answer."""
        return Refinement()


@dataclass(frozen=True)
class Refine(RefinementPrompt):
    """The tentative answer corrected by the facts, and whether to continue."""

    role: ClassVar[str] = "parog.refine"
    template = REFINE

    def parse(self, text: str) -> Refinement:
        reply = parse_leniently(lambda text: read_object(text, "aligned", "answers"), text)
        aligned, answers = read_flag(reply["aligned"]), read_texts(reply["answers"])
        return Refinement(aligned, answers, read_flag(reply.get("done")), _final(reply), text)


@dataclass(frozen=True)
class Align(RefinementPrompt):
    """The first question alone: whether the facts are about the sub-goal."""

    role: ClassVar[str] = "parog.align"
    template = ALIGN

    def parse(self, text: str) -> Refinement:
        reply = parse_leniently(lambda text: read_object(text, "aligned"), text)
        return Refinement(aligned=read_flag(reply["aligned"]))


@dataclass(frozen=True)
class Correct(RefinementPrompt):
    """The second question alone: the answers according to the facts."""

    role: ClassVar[str] = "parog.correct"
    template = CORRECT

    def parse(self, text: str) -> Refinement:
        return Refinement(answers=_read_answers(text))


@dataclass(frozen=True)
class Suffice(RefinementPrompt):
    """The third question alone: whether the facts suffice, for the sub-goal and for the question."""

    role: ClassVar[str] = "parog.suffice"
    template = SUFFICE

    def parse(self, text: str) -> Refinement:
        reply = parse_leniently(lambda text: read_object(text, "done"), text)
        return Refinement(done=read_flag(reply["done"]), final=_final(reply), raw=text)


@dataclass(frozen=True)
class Read(FactsPrompt[tuple[str, ...]]):
    """The answers to a sub-goal from its facts alone, without self-refinement (§5.8)."""

    role: ClassVar[str] = "parog.read"
    template = load_template(__file__, "read")

    def parse(self, text: str) -> tuple[str, ...]:
        return _read_answers(text)

    def fallback(self, text: str) -> tuple[str, ...]:
        return ()


def _read_answers(text: str) -> tuple[str, ...]:
    return read_texts(parse_leniently(lambda text: read_object(text, "answers"), text)["answers"])


def _final(reply: dict[str, Value]) -> tuple[str, ...]:
    return read_texts(reply.get("final")) if read_flag(reply.get("question_answered")) else ()
