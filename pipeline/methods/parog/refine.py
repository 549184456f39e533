"""`parog.refine`, as one call or as three, and `parog.read`: answer from facts (specification §5.6, §5.8).

A refinement asks three questions: whether the facts are about the sub-goal, what they answer, and whether they suffice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypedDict, TypeVar

from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.json_replies import print_list, read_flag, read_object, read_texts
from pipeline.methods.parog.node_labels import SubgoalLabels
from pipeline.methods.parog.plan import SubGoal
from pipeline.methods.parog.relations import print_subgoal
from pipeline.methods.parog.rendering import print_answers, print_found
from pipeline.methods.parog.subgoal_result import SubgoalResult
from pipeline.methods.parsing import Value
from pipeline.methods.rendering import as_question, one_line
from pipeline.methods.templates import load_texts
from pipeline.types import Question

T = TypeVar("T")

_TEXTS = load_texts(__file__, "refinement")
_ABOUT_FACTS = load_texts(__file__, "about_facts")


def _template(name: str) -> Template:
    """Return the template of a refinement: the task, what to ask for, and the examples with the replies to it."""
    examples = (f"{example['text']}\n{example[name]}" for example in _TEXTS["examples"])
    parts = (_TEXTS["task"], _ABOUT_FACTS["facts"], _TEXTS[name]["ask"], "Examples", *examples)
    return Template(system="\n\n".join(parts), user=_TEXTS["user"])


def _template_without_tentative(texts: Mapping[str, str]) -> Template:
    return Template(system="\n\n".join([texts["task"], _ABOUT_FACTS["facts"], texts["ask"]]), user=_ABOUT_FACTS["user"])


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


class FactsInputs(TypedDict):
    """The fields of a `FactsPrompt`."""

    question: Question
    subgoal: SubGoal
    facts: tuple[GroundedPath, ...]
    labels: SubgoalLabels
    dependencies: tuple[SubgoalResult, ...]
    tentative: tuple[str, ...]
    left_out: int


@dataclass(frozen=True)
class FactsPrompt(Prompt[T]):
    """Base of the prompts that show the facts found for a sub-goal."""

    question: Question
    subgoal: SubGoal
    facts: tuple[GroundedPath, ...]
    labels: SubgoalLabels
    dependencies: tuple[SubgoalResult, ...] = ()
    """The results of the sub-goals that this one uses."""
    tentative: tuple[str, ...] = ()
    left_out: int = 0
    """Facts that were found, but are too many to show."""

    def inputs(self) -> dict[str, str]:
        return {
            "question": as_question(self.question.text),
            "known": print_answers(self.dependencies, self.labels),
            "goal": print_subgoal(self.subgoal),
            "tentative": print_list(map(one_line, self.tentative)),
            "facts": print_found(self.facts, self.labels, self.left_out),
        }

    def _read_answers(self, text: str) -> tuple[str, ...]:
        reply = read_object(text, "answers")
        return read_texts(reply["answers"], self.labels.is_name)

    def _final(self, reply: dict[str, Value]) -> tuple[str, ...]:
        answered = read_flag(reply.get("question_answered"))
        return read_texts(reply.get("final"), self.labels.is_name) if answered else ()


@dataclass(frozen=True)
class RefinementPrompt(FactsPrompt[Refinement]):
    """Base of the prompts that check the tentative answer against the facts."""

    def fallback(self, text: str) -> Refinement:
        """Return a refinement that keeps the tentative answer, and does not end the sub-goal."""
        return Refinement()


@dataclass(frozen=True)
class Refine(RefinementPrompt):
    """The tentative answer corrected by the facts, and whether to continue."""

    role: ClassVar[str] = "parog.refine"
    template = _template("refine")

    def parse(self, text: str) -> Refinement:
        reply = read_object(text, "aligned", "answers")
        aligned, answers = read_flag(reply["aligned"]), read_texts(reply["answers"], self.labels.is_name)
        return Refinement(aligned, answers, read_flag(reply.get("done")), self._final(reply), text)


@dataclass(frozen=True)
class Align(RefinementPrompt):
    """The first question alone: whether the facts are about the sub-goal."""

    role: ClassVar[str] = "parog.align"
    template = _template("align")

    def parse(self, text: str) -> Refinement:
        reply = read_object(text, "aligned")
        return Refinement(aligned=read_flag(reply["aligned"]))


@dataclass(frozen=True)
class Correct(RefinementPrompt):
    """The second question alone: the answers according to the facts."""

    role: ClassVar[str] = "parog.correct"
    template = _template("correct")

    def parse(self, text: str) -> Refinement:
        return Refinement(answers=self._read_answers(text))


@dataclass(frozen=True)
class Suffice(RefinementPrompt):
    """The third question alone: whether the facts suffice, for the sub-goal and for the question."""

    role: ClassVar[str] = "parog.suffice"
    template = _template("suffice")

    def parse(self, text: str) -> Refinement:
        reply = read_object(text, "done")
        return Refinement(done=read_flag(reply["done"]), final=self._final(reply), raw=text)


@dataclass(frozen=True)
class SufficeAlone(Suffice):
    """The third question alone, if there is no tentative answer: whether the facts suffice (§5.8)."""

    template = _template_without_tentative(load_texts(__file__, "suffice_alone"))


@dataclass(frozen=True)
class Read(FactsPrompt[tuple[str, ...]]):
    """The answers to a sub-goal from its facts alone, without self-refinement (§5.8)."""

    role: ClassVar[str] = "parog.read"
    template = _template_without_tentative(load_texts(__file__, "read"))

    def parse(self, text: str) -> tuple[str, ...]:
        return self._read_answers(text)

    def fallback(self, text: str) -> tuple[str, ...]:
        return ()
