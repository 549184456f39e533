"""`parog.entities`: which of the nodes reached to keep (methods.md §5.6)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.instance import Instance
from pipeline.methods.parog.guidance import steps_towards
from pipeline.methods.parog.plan import SubGoal
from pipeline.methods.parog.relations import print_subgoal
from pipeline.methods.parsing import Value, loose, read_records, twice
from pipeline.methods.rendering import as_question
from pipeline.retrieval.relations import as_text
from pipeline.types import Question

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

ENTITIES = Template(
    system="""\
You explore a knowledge graph for one sub-goal of a question. Each numbered group holds what one relation
leads to from one entity. Keep what the sub-goal is about, and what may lead on to it; leave out the rest.
Copy names as they are, with a #2 behind them where there is one. A group of which nothing is of use
gets an empty list.

Reply with a JSON object: {"1": ["name", …], "2": []}.

Example

Question: which languages are spoken where Tavin Orsa comes from?
Sub-goal: 1. Find the country that Tavin Orsa comes from
Groups:
1. Tavin Orsa, people.person.nationality: Quessland; Old Quessland
2. Tavin Orsa, people.person.education / education.education.institution: Mirravel College; Salt Academy
{"1": ["Quessland"], "2": []}""",
    user="""\
Question: {{question}}
Sub-goal: {{goal}}
Groups:
{{groups}}""",
)


@dataclass(frozen=True, slots=True)
class Candidates:
    """A group to choose from."""

    source: str
    """The text of the entity set out from."""
    relations: str
    """What was followed, as printed."""
    facts: tuple[tuple[str, Instance], ...]
    """Each candidate's text, and the fact that ends in it."""

    def read(self, listed: Value) -> tuple[Instance, ...]:
        """The candidates that a reply names, in its order."""
        texts = listed if isinstance(listed, list) else [listed]
        by_text = {loose(text): fact for text, fact in self.facts}
        named = (by_text.get(loose(str(text))) for text in texts)
        return tuple(dict.fromkeys(fact for fact in named if fact is not None))


@dataclass(frozen=True)
class SelectEntities(Prompt[tuple[Instance, ...] | None]):
    """The facts that end in what is worth keeping, group by group; None when no reply could be read."""

    role: ClassVar[str] = "parog.entities"

    question: Question
    subgoal: SubGoal
    groups: tuple[Candidates, ...]

    @property
    def template(self) -> Template:
        return ENTITIES

    def inputs(self) -> dict[str, str]:
        groups = (
            f"{number}. {group.source}, {group.relations}: {'; '.join(text for text, _ in group.facts)}"
            for number, group in enumerate(self.groups, start=1)
        )
        return {
            "question": as_question(self.question.text),
            "goal": print_subgoal(self.subgoal),
            "groups": "\n".join(groups),
        }

    def parse(self, text: str) -> tuple[Instance, ...] | None:
        return twice(self._read, text)

    def fallback(self, text: str) -> tuple[Instance, ...] | None:
        """None: the method then ranks the candidates with the encoder."""
        return None

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """What the sub-goal's step on the gold path leads to; with a slip, other candidates.

        For a sub-goal that no perfect plan has, everything.
        """
        steps = steps_towards(truth, self.subgoal)
        good = [
            [text for text, fact in group.facts if not steps or any(step.is_answer(fact) for step in steps)]
            for group in self.groups
        ]
        if slip:
            others = [
                [text for text, _ in group.facts if not steps or text not in kept]
                for group, kept in zip(self.groups, good, strict=True)
            ]
            return self._write([slip.sample(wrong, min(1, len(wrong))) for wrong in others])
        return self._write(good)

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        """All of the groups whose relations are most like the sub-goal."""
        scores = encoder.similarities(self.subgoal.goal, [as_text(group.relations) for group in self.groups])
        best = max(scores, default=0.0)
        return self._write(
            [
                [text for text, _ in group.facts] if score == best else []
                for group, score in zip(self.groups, scores, strict=True)
            ]
        )

    def _read(self, text: str) -> tuple[Instance, ...]:
        records = read_records(text)
        if not records:
            raise ParseError("there is no JSON object")
        reply = _by_number(records[-1])
        known = [number for number in reply if 0 < number <= len(self.groups)]
        if records[-1] and not known:
            raise ParseError("the JSON object has none of the numbers of the groups")
        picked = [fact for number in sorted(known) for fact in self.groups[number - 1].read(reply[number])]
        if not picked and any(reply[number] for number in known):
            raise ParseError("none of the names is one of those offered")
        return tuple(picked)

    def _write(self, kept: Sequence[Sequence[str]]) -> str:
        reply = {str(number): list(texts) for number, texts in enumerate(kept, start=1)}
        return json.dumps(reply, ensure_ascii=False)


def _by_number(reply: Mapping[str, Value]) -> dict[int, Value]:
    numbers = ((key.strip(), listed) for key, listed in reply.items())
    return {int(key): listed for key, listed in numbers if key.isascii() and key.isdigit() and len(key) < 6}
