"""The transcript that grows along a path, and the prompts that show it to a generator (specification §4.3, §4.8)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pipeline.llm.prompt import Prompt, Template
from pipeline.methods.arg.tokens import (
    CLOSE,
    NO_RETRIEVAL,
    OPEN,
    RETRIEVE_RELATION,
    ReflectionToken,
    find_tokens,
)
from pipeline.methods.parsing import match_key
from pipeline.methods.rendering import as_question, one_line
from pipeline.types import Question

T = TypeVar("T")

FINETUNED = Template(system="", user="{{question}}", assistant="{{text}}")
"""For a model trained on transcripts: it continues its own turn, which holds the transcript so far."""

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
    """A piece of the transcript that the generator writes. Subclasses are frozen dataclasses."""

    question: Question
    prompted: bool
    """Whether the prompt explains the tokens, for a model that was not fine-tuned on them."""

    @property
    @abstractmethod
    def text_so_far(self) -> str:
        """The transcript up to where the model continues."""

    @property
    def template(self) -> Template:
        return PROMPTED if self.prompted else FINETUNED

    def inputs(self) -> dict[str, str]:
        text = self.question.text
        return {"question": as_question(text) if self.prompted else one_line(text), "text": self.text_so_far}


@dataclass(frozen=True)
class TokenChoice(Prompt[str]):
    """The choice of one reflection token of a segment among its class; the method reads the probabilities."""

    role = "arg.token"

    segment: Segment[object]
    written: str
    """The segment up to the token."""
    token: ReflectionToken

    @property
    def template(self) -> Template:
        return self.segment.template

    def inputs(self) -> dict[str, str]:
        return self.segment.inputs() | {"text": self.segment.text_so_far + self.written}

    def parse(self, text: str) -> str:
        return text

    def fallback(self, text: str) -> str:
        return text


@dataclass(frozen=True, slots=True)
class Labelled:
    """A name with its relevance."""

    name: str
    token: ReflectionToken


def paragraph(items: Iterable[str]) -> str:
    """Render a paragraph of graph content."""
    return f"{OPEN}{';'.join(items)}{CLOSE}"


def write_labelled(labelled: Iterable[tuple[str, str]]) -> str:
    """Render names with their relevance, as `read_labelled` reads them."""
    return "".join(f"{name}{label}" for name, label in labelled)


def read_labelled(text: str) -> list[Labelled]:
    """Read the `name[relevance]` pairs of a segment.

    Reading stops at the first retrieval token. If the model wrote a paragraph itself, it starts after that.
    """
    tokens = find_tokens(text)
    end = next((token.start for token in tokens if token.kind == "retrieval"), len(text))
    own_paragraph = text.rfind(CLOSE, 0, end)
    position = own_paragraph + len(CLOSE) if own_paragraph >= 0 else 0
    pairs: list[Labelled] = []
    for token in (token for token in tokens if position <= token.start < end):
        if token.kind == "relevance":
            pairs.append(Labelled(text[position : token.start].strip(), token))
        position = token.end
    return pairs


def find_name(written: str, by_key: Mapping[str, str]) -> str | None:
    """Return the offered name that was written, ignoring remarks and list bullets before it; None if there is none.

    `by_key` holds the offered names by their `match_key`.
    """
    last_line = written.rpartition("\n")[2]
    for candidate in (written, last_line, last_line.strip(" \t;,*-")):
        if (name := by_key.get(match_key(candidate))) is not None:
            return name
    return None


def end_with(written: str, retrieval: str) -> str:
    """Cut a segment at its first retrieval token, and end it with the token `retrieval`."""
    starts = (token.start for token in find_tokens(written) if token.kind == "retrieval")
    return written[: next(starts, len(written))].rstrip() + retrieval


def without_retrieval(transcript: str) -> str:
    """Replace `[Retrieve Relation]` at the end of a transcript so that the model answers instead."""
    return f"{transcript.removesuffix(RETRIEVE_RELATION)}{NO_RETRIEVAL}Answer:"
