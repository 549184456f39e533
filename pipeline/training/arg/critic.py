"""The critic: a model that labels reference paths for ArG's training data, in four prompts (specification §7.2).

Its labels are reflection tokens, which the training text takes over.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pipeline.errors import ParseError
from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.arg.entities import UNKNOWN_ENTITY, EntitySegment
from pipeline.methods.arg.relations import RelationSegment
from pipeline.methods.arg.tokens import CLASSES, Kind, find_tokens
from pipeline.methods.arg.transcript import find_name
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parsing import LenientPrompt, first_line, match_key, numbered, parse_leniently, truncate
from pipeline.methods.rendering import Names, Printer, as_question, one_line, print_facts
from pipeline.types import Question

_SCORE = re.compile(r"\(\s*score\s*:\s*(\[[^\[\]\n]{1,40}\])\s*\)", re.IGNORECASE)
_NEUTRAL = "[Utility:3]"

RELATIONS = Template(
    system="""\
A question is to be answered by a walk through a knowledge graph. You judge the relations that the walk
could take from the entity that it has reached. Each gets one of these labels:
[Fully Relevant] - the way to the answer leads along this relation
[Partially Relevant] - it may help, on a detour or for a part of the question
[Unrelevant] - it has nothing to do with what is asked

Write one numbered line for each relation, in the order given:
1. {relation (Score: [label])}: your reason

Example

Question: which films did the director of Nine Lanterns write?
Entity: Nine Lanterns
Facts so far: none
Relations:
1. film.film.directed_by
2. film.film.written_by
3. film.film.runtime
Judgement:
1. {film.film.directed_by (Score: [Fully Relevant])}: the question goes by way of the director.
2. {film.film.written_by (Score: [Partially Relevant])}: writers are asked for, though not those of this film.
3. {film.film.runtime (Score: [Unrelevant])}: how long it runs says nothing about its director.

Example

Question: what do people speak in the country that Tavin Orsa comes from?
Entity: Quessland
Facts so far: [("Tavin Orsa", "people.person.nationality", "Quessland")]
Relations:
1. location.country.official_language
2. location.country.currency_used
Judgement:
1. {location.country.official_language (Score: [Fully Relevant])}: it is what people there speak.
2. {location.country.currency_used (Score: [Unrelevant])}: money is not asked for.""",
    user="""\
Question: {{question}}
Entity: {{entity}}
Facts so far: {{facts}}
Relations:
{{candidates}}
Judgement:""",
)

ENTITIES = Template(
    system="""\
A question is to be answered by a walk through a knowledge graph. The walk has followed a relation, and
you judge the entities that it led to. Each gets one of these labels:
[Fully Relevant] - it is an answer, or the way to the answer leads through it
[Partially Relevant] - it may help, on a detour or for a part of the question
[Unrelevant] - it has nothing to do with what is asked
Unknown Entity stands for nodes without a name that hold a fact of several parts together.

Write one numbered line for each entity, in the order given, and spell it as it is:
1. {entity (Score: [label])}: your reason

Example

Question: which children of Tavin Orsa became sailors?
Facts so far: none
New facts: [("Tavin Orsa", "person.children", "Edda Orsa"), ("Tavin Orsa", "person.children", "Nils Orsa")]
Entities:
1. Edda Orsa
2. Nils Orsa
Judgement:
1. {Edda Orsa (Score: [Fully Relevant])}: a child, whose profession is to be looked at next.
2. {Nils Orsa (Score: [Fully Relevant])}: the same holds for him.

Example

Question: what was the first film of Lirae Dobson?
Facts so far: [("Lirae Dobson", "film.actor.film", "The Salt Road")]
New facts: [("The Salt Road", "film.film.release_year", "1961"), ("The Salt Road", "film.film.release_year", "1987")]
Entities:
1. 1961
2. 1987
Judgement:
1. {1961 (Score: [Partially Relevant])}: an early year, which helps to tell which film came first.
2. {1987 (Score: [Unrelevant])}: a later showing, which decides nothing.""",
    user="""\
Question: {{question}}
Facts so far: {{facts}}
New facts: {{new}}
Entities:
{{candidates}}
Judgement:""",
)

RATIONALITY = Template(
    system="""\
A question is to be answered by a walk through a knowledge graph. You are told the answers, and judge the
walk as far as it has come: does it make sense as a way to them? Write one of these labels on the first
line, and your reason on the second:
[Fully Reasonable] - each step follows what the question says
[Partially Reasonable] - it leads to the answers or towards them, but not as the question says
[Unreasonable] - whoever reads the question would not go this way

Example

Question: what do people speak in the country that Tavin Orsa comes from?
Answers: Orsish
Walk: [("Tavin Orsa", "people.person.nationality", "Quessland")]
Judgement: [Fully Reasonable]
His country is what the question names first, and its language is only one step away.

Example

Question: which films did the director of Nine Lanterns write?
Answers: The Salt Road
Walk: [("Nine Lanterns", "film.film.country", "Quessland")]
Judgement: [Unreasonable]
The country of a film does not lead to its director.""",
    user="""\
Question: {{question}}
Answers: {{answers}}
Walk: {{walk}}
Judgement:""",
)

UTILITY = Template(
    system="""\
You judge how well answers serve a question. Each answer gets one of the labels [Fully Useful],
[Partially Useful] and [Not Useful]; all of them together get a label from [Utility:1], which does not help
at all, to [Utility:5], which is a full and precise answer. Write a JSON object and nothing else.

Example

Question: which rivers run through the town where Odo Marrick was born?
Answers: ["Vell", "Marrick"]
Judgement: {"answers": {"Vell": "[Fully Useful]", "Marrick": "[Not Useful]"}, "utility": "[Utility:4]"}""",
    user="""\
Question: {{question}}
Answers: {{answers}}
Judgement:""",
)


class Relevance(LenientPrompt[Mapping[str, str]], ABC):
    """The relevance of each of some names; empty if no reply can be read."""

    @property
    @abstractmethod
    def judged(self) -> Sequence[str]:
        """The names, in the order shown."""

    def fallback(self, text: str) -> Mapping[str, str]:
        return {}

    def read(self, text: str) -> Mapping[str, str]:
        known = {match_key(name): name for name in self.judged}
        labels: dict[str, str] = {}
        for _, item in numbered(text):
            scored = _SCORE.search(item)
            name = find_name(item[: scored.start()].strip().removeprefix("{"), known) if scored else None
            if scored and name is not None:
                labels.setdefault(name, _label(scored[1], "relevance"))
        if missing := [name for name in self.judged if name not in labels]:
            raise ParseError(f"no numbered line of the form {{name (Score: [label])}} for {truncate(missing[0])}")
        return {name: labels[name] for name in self.judged}


@dataclass(frozen=True)
class RelationRelevance(Relevance):
    """The relevance of each relation offered at the end of a walk."""

    role: ClassVar[str] = "critic.relations"
    template = RELATIONS

    segment: RelationSegment
    """Offered to exactly one walk."""
    names: Names

    @property
    def judged(self) -> Sequence[str]:
        return self.segment.group

    def inputs(self) -> dict[str, str]:
        (walk,) = self.segment.walks
        printer = _printer(self.names)
        return {
            "question": as_question(self.segment.question.text),
            "entity": one_line(printer.node(walk.end)),
            "facts": _facts(walk, printer),
            "candidates": _numbered_list(self.judged),
        }


@dataclass(frozen=True)
class EntityRelevance(Relevance):
    """The relevance of each shown tail of a relation."""

    role: ClassVar[str] = "critic.entities"
    template = ENTITIES

    segment: EntitySegment

    @property
    def judged(self) -> Sequence[str]:
        return list(self.segment.shown_tails)

    def inputs(self) -> dict[str, str]:
        segment, printer = self.segment, _printer(self.segment.names)
        head = one_line(printer.node(segment.source.end))
        return {
            "question": as_question(segment.question.text),
            "facts": _facts(segment.source, printer),
            "new": print_facts((head, segment.relation, name) for name in self.judged),
            "candidates": _numbered_list(self.judged),
        }


@dataclass(frozen=True)
class Rationality(Prompt[str | None]):
    """The rationality token of a walk so far; None if no reply can be read."""

    role: ClassVar[str] = "critic.rationality"
    template = RATIONALITY

    question: Question
    walk: GroundedPath
    answers: tuple[str, ...]
    """The first gold answers."""
    names: Names

    def inputs(self) -> dict[str, str]:
        return {
            "question": as_question(self.question.text),
            "answers": "; ".join(map(one_line, self.answers)),
            "walk": _facts(self.walk, _printer(self.names)),
        }

    def parse(self, text: str) -> str | None:
        return parse_leniently(lambda text: _label(first_line(text), "rationality"), text)

    def fallback(self, text: str) -> str | None:
        return None


@dataclass(frozen=True, slots=True)
class Judgement:
    """The usefulness of answers."""

    usefulness: Mapping[str, str]
    """The label of each answer, in the order shown; an empty label if no reply could be read."""
    utility: str
    """The utility token of all answers together."""


@dataclass(frozen=True)
class Utility(LenientPrompt[Judgement]):
    """The usefulness of each answer to the question, and the utility of all of them together."""

    role: ClassVar[str] = "critic.utility"
    template = UTILITY

    question: Question
    answers: tuple[str, ...]

    def inputs(self) -> dict[str, str]:
        answers = json.dumps(self.answers, ensure_ascii=False)
        return {"question": as_question(self.question.text), "answers": answers}

    def fallback(self, text: str) -> Judgement:
        """Return neutral labels."""
        return Judgement(dict.fromkeys(self.answers, ""), _NEUTRAL)

    def read(self, text: str) -> Judgement:
        begin, end = text.find("{"), text.rfind("}") + 1
        try:
            reply = json.loads(text[begin:end] if 0 <= begin < end else text)
            labels = {match_key(answer): label for answer, label in reply["answers"].items()}
            usefulness = {answer: _label(labels[match_key(answer)], "usefulness") for answer in self.answers}
            return Judgement(usefulness, _label(reply["utility"], "utility"))
        except KeyError as error:
            raise ParseError(f"there is no label for {truncate(str(error))}") from None
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise ParseError(f"not a JSON object with answers and utility: {truncate(text)}") from None


def _label(text: str, kind: Kind) -> str:
    """Return the first token of a class in a text. Raises ParseError if there is none."""
    for token in find_tokens(text):
        if token.kind == kind:
            return token.text
    raise ParseError(f"none of {', '.join(CLASSES[kind])}: {truncate(text)}")


def _printer(names: Names) -> Printer:
    return Printer(names, unnamed=UNKNOWN_ENTITY)


def _facts(walk: GroundedPath, printer: Printer) -> str:
    return printer.chain(walk.triples) if walk.length else "none"


def _numbered_list(names: Iterable[str]) -> str:
    return "\n".join(f"{number}. {name}" for number, name in enumerate(names, start=1))
