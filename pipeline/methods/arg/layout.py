"""The text that grows along a path, and how it is put before either kind of generator (methods.md §4.3, §4.8)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar, TypeVar

from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.arg.tokens import CLASSES, CLOSE, NO_RETRIEVAL, OPEN, RETRIEVE_RELATION, Mark, find_marks
from pipeline.methods.parsing import loose
from pipeline.methods.rendering import as_question, one_line
from pipeline.types import Question

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

T = TypeVar("T")

FINETUNED = Template(system="", user="{{question}}", assistant="{{text}}")
"""The model was trained on this layout: its turn has begun, and it goes on with it."""

PROMPTED = Template(
    system="""\
You answer a question by a walk through a knowledge graph. The walk is one text, written in turns:
you write reflection tokens and names, and between them paragraphs are put in that hold what the graph
has. You get the text so far and go on with it, exactly where it stops. Write only what belongs into the
text, without line breaks, remarks or quotation marks, and never write a paragraph yourself unless the
text so far ends in [Retrieve Relation].

The tokens, spelled as here:
- [Retrieve Relation] asks for relations, [Retrieve Entity] for entities. [No Retrieval] ends the walk.
- [Fully Relevant], [Partially Relevant], [Unrelevant] come after a relation or an entity and say whether
  it leads towards the answer.
- [Fully Reasonable], [Partially Reasonable], [Unreasonable] say whether the path so far makes sense.
- [Fully Useful], [Partially Useful], [Not Useful] come after an answer.
- [Utility:1] to [Utility:5] close the text: how well the answers serve the question, 5 is best.

After a paragraph of relations, parted by semicolons, repeat each relation with its relevance and close
with [Retrieve Entity]. After a paragraph of facts (head, relation, tail) repeat each tail with its
relevance and judge the path. If the tails do not answer the question yet, close with [Retrieve Relation].
If they do, or if the path is unreasonable, write [No Retrieval]Answer: and the answers, each with its
usefulness, parted by semicolons, and the utility. Unknown Entity stands for nodes without a name, which
hold a fact of several parts together: they are relevant where the way leads through them, and never an
answer. Where the text so far ends in [Retrieve Relation], make up the relations that you would hope to
find, and go on to [Retrieve Entity].

Two complete texts

Question: what movies has Lirae Dobson played in?
Text: [Retrieve Relation]<paragraph>film.actor.film;people.person.nationality;award.award_nominee.award_nominations\
</paragraph>film.actor.film[Fully Relevant]people.person.nationality[Unrelevant]award.award_nominee.award_nominations\
[Unrelevant][Retrieve Entity]<paragraph>(Lirae Dobson, film.actor.film, Unknown Entity)</paragraph>Unknown Entity\
[Fully Relevant][Fully Reasonable][Retrieve Relation]<paragraph>film.performance.film;film.performance.character\
</paragraph>film.performance.film[Fully Relevant]film.performance.character[Partially Relevant][Retrieve Entity]\
<paragraph>(Unknown Entity, film.performance.film, The Salt Road);(Unknown Entity, film.performance.film, Nine \
Lanterns)</paragraph>The Salt Road[Fully Relevant]Nine Lanterns[Fully Relevant][Fully Reasonable][No Retrieval]\
Answer: The Salt Road[Fully Useful];Nine Lanterns[Fully Useful][Utility:5]

Question: who leads the country that Tavin Orsa comes from?
Text: [Retrieve Relation]<paragraph>people.person.children;people.person.profession</paragraph>people.person.children\
[Partially Relevant]people.person.profession[Unrelevant][Retrieve Entity]<paragraph>(Tavin Orsa, people.person.\
children, Edda Orsa)</paragraph>Edda Orsa[Unrelevant][Unreasonable][No Retrieval]Answer: Jorun Vask[Partially Useful]\
[Utility:2]\
""",
    user="""\
Question: {{question}}
Text so far: {{text}}

Go on with the text.""",
)


class Segment(Prompt[T], ABC):
    """A piece of the text that the generator writes. Subclasses are frozen dataclasses."""

    alternatives: ClassVar[Sequence[Sequence[str]]] = tuple(CLASSES.values())

    question: Question
    prompted: bool
    """Whether the model has to be told what the tokens mean."""

    @property
    @abstractmethod
    def shown(self) -> str:
        """The text so far, up to where the model goes on."""

    @property
    def template(self) -> Template:
        return PROMPTED if self.prompted else FINETUNED

    def inputs(self) -> dict[str, str]:
        text = self.question.text
        return {"question": as_question(text) if self.prompted else one_line(text), "text": self.shown}


@dataclass(frozen=True, slots=True)
class Labelled:
    """A name with the relevance that it was given."""

    name: str
    mark: Mark


def paragraph(items: Iterable[str]) -> str:
    """What the graph has, as it is put into the text."""
    return f"{OPEN}{';'.join(items)}{CLOSE}"


def write_labelled(labelled: Iterable[tuple[str, str]]) -> str:
    """Names with their relevance, as `read_labelled` reads them."""
    return "".join(f"{name}{label}" for name, label in labelled)


def read_labelled(text: str) -> list[Labelled]:
    """The `name[relevance]` pairs of a segment, up to its first retrieval token and after a paragraph of its own."""
    marks = find_marks(text)
    end = next((mark.start for mark in marks if mark.kind == "retrieval"), len(text))
    own_paragraph = text.rfind(CLOSE, 0, end)
    at = own_paragraph + len(CLOSE) if own_paragraph >= 0 else 0
    pairs: list[Labelled] = []
    for mark in (mark for mark in marks if at <= mark.start < end):
        if mark.kind == "relevance":
            pairs.append(Labelled(text[at : mark.start].strip(), mark))
        at = mark.end
    return pairs


def find_name(written: str, by_name: dict[str, str]) -> str | None:
    """Which of the offered names, by their `loose` form, was written; remarks and list marks before it aside."""
    last_line = written.rpartition("\n")[2]
    for candidate in (written, last_line, last_line.strip(" \t;,*-")):
        if (name := by_name.get(loose(candidate))) is not None:
            return name
    return None


def closed(written: str, token: str) -> str:
    """What was written up to its first retrieval token, with `token` in its place."""
    marks = (mark.start for mark in find_marks(written) if mark.kind == "retrieval")
    return written[: next(marks, len(written))].rstrip() + token


def without_retrieval(text: str) -> str:
    """A text that asks for relations, made to answer instead."""
    return f"{text.removesuffix(RETRIEVE_RELATION)}{NO_RETRIEVAL}Answer:"


@dataclass(frozen=True)
class TokenChoice(Prompt[str]):
    """Which member of its class a reflection token of a segment should be: its probabilities are what is wanted."""

    role = "arg.token"

    segment: Segment[object]
    written: str
    """The segment up to the token."""
    mark: Mark

    @property
    def template(self) -> Template:
        return self.segment.template

    def inputs(self) -> dict[str, str]:
        return self.segment.inputs() | {"text": self.segment.shown + self.written}

    def parse(self, text: str) -> str:
        return text

    def fallback(self, text: str) -> str:
        return text

    def write_as_oracle(self, truth: Truth, slip: Random | None) -> str:
        """The token that stands at this place in what the oracle writes, or the one that was written."""
        return self._same_place(self.segment.write_as_oracle(truth, slip))

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        return self._same_place(self.segment.write_by_similarity(encoder))

    def _same_place(self, text: str) -> str:
        same = (mark.token for mark in find_marks(text) if (mark.kind, mark.place) == (self.mark.kind, self.mark.place))
        return next(same, self.mark.token)
