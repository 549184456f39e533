"""`parog.refine`, its three questions one by one, and `parog.read`: answers from triples (methods.md §5.6, §5.8)."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar

from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.instance import Instance
from pipeline.methods.parog.guidance import carry_out, is_last, recognised, steps_towards, works_out
from pipeline.methods.parog.outcome import Outcome
from pipeline.methods.parog.plan import SubGoal
from pipeline.methods.parog.relations import print_subgoal
from pipeline.methods.parog.replies import listed, read_flag, read_object, read_texts, write_object
from pipeline.methods.parog.showing import Showing
from pipeline.methods.parog.tentative import print_answers
from pipeline.methods.parsing import Value, twice
from pipeline.methods.rendering import as_question, one_line, print_facts
from pipeline.methods.simulation import most_similar_path
from pipeline.types import Question

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

_TASK = """\
You check the answer to one sub-goal of a question against facts from a knowledge graph. A fact is
("subject", "relation", "object"). In a fact with "relation / relation" the first leads to an unnamed
node that holds several parts together, the second from there to the object; ^ marks a relation that is
followed from its object to its subject. The tentative answer was given before anything was looked up."""

_USER = """\
Question: {{question}}
Found before: {{known}}
Sub-goal: {{goal}}
Tentative answer: {{tentative}}
Facts:
{{facts}}"""

_EXAMPLE = """\
Example

Question: what do people speak in the country that Tavin Orsa comes from?
Found before: none
Sub-goal: 1. Find the country that Tavin Orsa comes from
Tentative answer: Varnland
Facts:
[("Tavin Orsa", "people.person.nationality", "Quessland")]
"""

REFINE = Template(
    system=f"""\
{_TASK}

Reply with a JSON object:
- "aligned": whether the facts are about the sub-goal; if they are not, the tentative answer stands;
- "answers": the answers to the sub-goal by the facts, with gaps filled from what you know, names as the
  facts have them;
- "done": whether nothing more has to be looked up for the sub-goal;
- "question_answered": whether the question itself, not only the sub-goal, is answered by now;
- "final": if so, the answers to the question.

{_EXAMPLE}{{"aligned": true, "answers": ["Quessland"], "done": true, "question_answered": false, "final": []}}""",
    user=_USER,
)
ALIGN = Template(
    system=f"""\
{_TASK}

Are the facts about the sub-goal? Reply with a JSON object: {{"aligned": true or false}}.

{_EXAMPLE}{{"aligned": true}}""",
    user=_USER,
)
CORRECT = Template(
    system=f"""\
{_TASK}

What are the answers to the sub-goal by the facts? Fill gaps from what you know, and write names as the
facts have them. Reply with a JSON object: {{"answers": ["…"]}}.

{_EXAMPLE}{{"answers": ["Quessland"]}}""",
    user=_USER,
)
SUFFICE = Template(
    system=f"""\
{_TASK}

Is that enough? Reply with a JSON object:
- "done": whether nothing more has to be looked up for the sub-goal;
- "question_answered": whether the question itself, not only the sub-goal, is answered by now;
- "final": if so, the answers to the question.

{_EXAMPLE}{{"done": true, "question_answered": false, "final": []}}""",
    user=_USER,
)
READ = Template(
    system="""\
You answer one sub-goal of a question from facts of a knowledge graph. A fact is ("subject", "relation",
"object"). In a fact with "relation / relation" the first leads to an unnamed node that holds several
parts together, the second from there to the object; ^ marks a relation that is followed from its object
to its subject. Write names as the facts have them.

Reply with a JSON object: {"answers": ["…"]}.

Example

Question: what do people speak in the country that Tavin Orsa comes from?
Found before: none
Sub-goal: 1. Find the country that Tavin Orsa comes from
Facts:
[("Tavin Orsa", "people.person.nationality", "Quessland")]
{"answers": ["Quessland"]}""",
    user="""\
Question: {{question}}
Found before: {{known}}
Sub-goal: {{goal}}
Facts:
{{facts}}""",
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the facts say of a sub-goal's answer."""

    aligned: bool = False
    """Whether the facts are about the sub-goal at all."""
    answers: tuple[str, ...] = ()
    done: bool = False
    final: tuple[str, ...] = ()
    """The answers to the question itself; empty unless it is reported answered, and with more than nothing."""
    raw: str = ""


@dataclass(frozen=True)
class _OnFacts:
    """What every prompt about the facts of a sub-goal is made of."""

    question: Question
    subgoal: SubGoal
    facts: tuple[Instance, ...]
    showing: Showing
    used: tuple[Outcome, ...] = ()
    tentative: tuple[str, ...] = ()

    def inputs(self) -> dict[str, str]:
        return {
            "question": as_question(self.question.text),
            "known": print_answers(self.used, self.showing),
            "goal": print_subgoal(self.subgoal),
            "tentative": listed(map(one_line, self.tentative)),
            "facts": "\n".join(dict.fromkeys(print_facts([self.showing.fact(fact)]) for fact in self.facts)),
        }

    def judge_as_oracle(self, truth: Truth, slip: Random | None) -> Verdict:
        """What the facts show of the sub-goal's step on the gold path: nothing to go by but them.

        A slip is the opposite verdict: beside the point when they answer, or an answer when they do not.
        """
        steps = steps_towards(truth, self.subgoal)
        found = carry_out(steps, self.facts, self.showing.names)
        if is_last(truth, self.subgoal) and not works_out(truth):
            found = recognised(truth, found) or found
        ends = list(dict.fromkeys(self.showing.text(fact.end) for fact in self.facts))
        right = list(map(self.showing.answer, found)) if steps else ends
        if slip:
            right = [] if right else slip.sample(ends, 1)
        aligned = bool(right) or (not slip and any(step.is_on_the_way(fact) for step in steps for fact in self.facts))
        finishes = bool(right) and (is_last(truth, self.subgoal) or bool(slip))
        return Verdict(aligned, tuple(right), bool(right), tuple(right) if finishes else ())

    def judge_by_similarity(self, encoder: LexicalEncoder) -> Verdict:
        """Where the relations most like the question lead: a policy that does not read is content with that."""
        best = most_similar_path([fact.path for fact in self.facts], self.question.text, encoder)
        ends = tuple(dict.fromkeys(self.showing.text(fact.end) for fact in self.facts if fact.path == best))
        return Verdict(True, ends, True, ends)


@dataclass(frozen=True)
class Refine(_OnFacts, Prompt[Verdict]):
    """The tentative answer corrected by the facts, and whether to go on."""

    role: ClassVar[str] = "parog.refine"

    @property
    def template(self) -> Template:
        return REFINE

    def parse(self, text: str) -> Verdict:
        reply = twice(lambda text: read_object(text, "aligned", "answers"), text)
        aligned, answers = read_flag(reply["aligned"]), read_texts(reply["answers"])
        return Verdict(aligned, answers, read_flag(reply.get("done")), _final(reply), text)

    def fallback(self, text: str) -> Verdict:
        return Verdict()

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        return _write(self.judge_as_oracle(truth, slip))

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        return _write(self.judge_by_similarity(encoder))


@dataclass(frozen=True)
class Align(_OnFacts, Prompt[Verdict]):
    """The first question on its own: whether the facts are about the sub-goal."""

    role: ClassVar[str] = "parog.align"

    @property
    def template(self) -> Template:
        return ALIGN

    def parse(self, text: str) -> Verdict:
        return Verdict(aligned=read_flag(twice(lambda text: read_object(text, "aligned"), text)["aligned"]))

    def fallback(self, text: str) -> Verdict:
        return Verdict()

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        return write_object(aligned=self.judge_as_oracle(truth, slip).aligned)

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        return write_object(aligned=True)


@dataclass(frozen=True)
class Correct(_OnFacts, Prompt[Verdict]):
    """The second question on its own: the answers by the facts."""

    role: ClassVar[str] = "parog.correct"

    @property
    def template(self) -> Template:
        return CORRECT

    def parse(self, text: str) -> Verdict:
        return Verdict(answers=read_texts(twice(lambda text: read_object(text, "answers"), text)["answers"]))

    def fallback(self, text: str) -> Verdict:
        return Verdict()

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        return write_object(answers=self.judge_as_oracle(truth, slip).answers)

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        return write_object(answers=self.judge_by_similarity(encoder).answers)


@dataclass(frozen=True)
class Suffice(_OnFacts, Prompt[Verdict]):
    """The third question on its own: whether that is enough, for the sub-goal and for the question."""

    role: ClassVar[str] = "parog.suffice"

    @property
    def template(self) -> Template:
        return SUFFICE

    def parse(self, text: str) -> Verdict:
        reply = twice(lambda text: read_object(text, "done"), text)
        return Verdict(done=read_flag(reply["done"]), final=_final(reply), raw=text)

    def fallback(self, text: str) -> Verdict:
        return Verdict()

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        verdict = self.judge_as_oracle(truth, slip)
        return write_object(done=verdict.done, question_answered=bool(verdict.final), final=verdict.final)

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        verdict = self.judge_by_similarity(encoder)
        return write_object(done=True, question_answered=True, final=verdict.final)


@dataclass(frozen=True)
class Read(_OnFacts, Prompt[tuple[str, ...]]):
    """The answers to a sub-goal from its facts alone: retrieve, then answer (§5.8, without self-refinement)."""

    role: ClassVar[str] = "parog.read"

    @property
    def template(self) -> Template:
        return READ

    def parse(self, text: str) -> tuple[str, ...]:
        return read_texts(twice(lambda text: read_object(text, "answers"), text)["answers"])

    def fallback(self, text: str) -> tuple[str, ...]:
        return ()

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """As when refining; but who must answer from the facts does so even when they are beside the point."""
        right = self.judge_as_oracle(truth, None).answers
        ends = dict.fromkeys(self.showing.text(fact.end) for fact in self.facts)
        wrong = [text for text in ends if text not in right] or [self.showing.text(self.facts[0].start)]
        return write_object(answers=[slip.choice(wrong)] if slip else right or wrong[:1])

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        return write_object(answers=self.judge_by_similarity(encoder).answers)


def _final(reply: dict[str, Value]) -> tuple[str, ...]:
    return read_texts(reply.get("final")) if read_flag(reply.get("question_answered")) else ()


def _write(verdict: Verdict) -> str:
    return write_object(
        aligned=verdict.aligned,
        answers=verdict.answers,
        done=verdict.done,
        question_answered=bool(verdict.final),
        final=verdict.final,
    )
