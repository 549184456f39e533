"""The prompt `arg.entities`: judges the tails of one relation, then the path, then asks for a hop or answers.

See specification §4.5.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, TypeAlias

from pipeline.errors import ParseError
from pipeline.grouping import grouped
from pipeline.methods.arg.answers import ParsedAnswers, known_names, read_answers
from pipeline.methods.arg.tokens import (
    NO_RETRIEVAL,
    RETRIEVE_RELATION,
    UNREASONABLE,
    UNRELEVANT,
    ReflectionToken,
    find_tokens,
)
from pipeline.methods.arg.transcript import (
    UNKNOWN_ENTITY,
    Segment,
    find_name,
    paragraph,
    printed_node,
    read_labelled,
    write_labelled,
)
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.parsing import match_key, truncate
from pipeline.methods.rendering import Fact, Names
from pipeline.methods.templates import load_template

FactLayout: TypeAlias = Literal["graph", "walk"]
"""Whether a fact is written with the graph's own subject and object, or beginning at the entity that was reached."""

_PROMPTED = load_template(__file__, "entities")


@dataclass(frozen=True, slots=True)
class TailJudgement:
    """The generator's judgement of the tails of one relation."""

    relevant: tuple[GroundedPath, ...] = ()
    """The walk, one hop longer, to each tail that is fully or partially relevant."""
    relevance: tuple[ReflectionToken, ...] = ()
    """All relevance tokens of the segment."""
    rationality: ReflectionToken | None = None
    ends: bool = False
    """Whether the walk ends here: by `[No Retrieval]`, or because the segment is incomplete."""
    answers: ParsedAnswers | None = None
    """The answers after `[No Retrieval]`."""

    @property
    def is_unreasonable(self) -> bool:
        return self.rationality is not None and self.rationality.text == UNREASONABLE

    @property
    def is_all_unrelevant(self) -> bool:
        """Whether there are relevance tokens, and all are `[Unrelevant]`."""
        return bool(self.relevance) and all(token.text == UNRELEVANT for token in self.relevance)


@dataclass(frozen=True)
class EntitySegment(Segment[TailJudgement]):
    """The relevance of each tail of a relation, the rationality of the path, and the next retrieval or the answers."""

    role: ClassVar[str] = "arg.entities"
    explained = _PROMPTED

    source: GroundedPath
    """The walk to the head entity of the relation."""
    relation: str
    tails: tuple[GroundedPath, ...]
    """The walk to each fetched tail."""
    names: Names
    max_shown: int
    """Maximum number of distinct tail names in the paragraph."""
    cvt_fanout: int
    """Maximum number of unnamed tails that a relevant placeholder selects."""
    facts: FactLayout

    @property
    def text_so_far(self) -> str:
        return self.transcript + paragraph(f"({', '.join(fact)})" for fact in self.shown_facts(self.facts))

    def shown_facts(self, layout: FactLayout) -> list[Fact]:
        """Return a fact for each shown name, from the first tail of that name."""
        return [
            (name, self.relation, self.head)
            if layout == "graph" and _is_incoming(tails[0])
            else (self.head, self.relation, name)
            for name, tails in self.shown_tails.items()
        ]

    @property
    def head(self) -> str:
        """The printed name of the entity from which the relation was followed."""
        return printed_node(self.source.end, self.names)

    def turn(self) -> dict[str, str]:
        return {"head": self.head, "shown": str(len(self.shown_tails)), "found": str(len(self.by_name))}

    @property
    def shown_tails(self) -> dict[str, list[GroundedPath]]:
        """The tails of each name in the paragraph."""
        return {name: self.by_name[name] for name in list(self.by_name)[: self.max_shown]}

    @cached_property
    def by_name(self) -> dict[str, list[GroundedPath]]:
        """The tails by their printed names, in the order of the tails."""
        return grouped(self.tails, lambda tail: printed_node(tail.end, self.names))

    def render(self, labels: Mapping[str, str], rationality: str, answers: str | None) -> str:
        """Render the segment that labels the shown tails and the path; without answers it asks for more relations."""
        labelled = write_labelled((name, labels[name]) for name in self.shown_tails)
        end = RETRIEVE_RELATION if answers is None else f"{NO_RETRIEVAL}Answer: {answers}"
        return f"{labelled}{rationality}{end}"

    def fallback(self, text: str) -> TailJudgement:
        """Return a leaf without an answer; of a prompted model, walk on from the tails judged before the text was cut.

        A trained model was taught to end its segment, so a segment without an end is an error (§4.5.3).
        """
        tokens = find_tokens(text)
        if not self.prompted or any(token.kind == "retrieval" for token in tokens):
            return TailJudgement(ends=True)
        relevant = self._relevant_tails(text)
        return self._judgement(tokens, relevant, None) if relevant else TailJudgement(ends=True)

    def read(self, text: str) -> TailJudgement:
        tokens = find_tokens(text)
        retrieval = next((token for token in tokens if token.text in (RETRIEVE_RELATION, NO_RETRIEVAL)), None)
        if retrieval is None:
            raise ParseError(f"there is neither {RETRIEVE_RELATION} nor {NO_RETRIEVAL}: {truncate(text)}")
        answers = None
        if retrieval.text == NO_RETRIEVAL:
            answers = read_answers(text, known_names(self.tails, self.names), retrieval.end)
            if not answers.texts and not answers.is_none:
                raise ParseError(f"there is no answer after {NO_RETRIEVAL}: {truncate(text)}")
        before = [token for token in tokens if token.start < retrieval.start]
        return self._judgement(before, self._relevant_tails(text[: retrieval.start]), answers)

    def _judgement(
        self, tokens: Sequence[ReflectionToken], relevant: tuple[GroundedPath, ...], answers: ParsedAnswers | None
    ) -> TailJudgement:
        return TailJudgement(
            relevant=relevant,
            relevance=tuple(token for token in tokens if token.kind == "relevance"),
            rationality=next((token for token in tokens if token.kind == "rationality"), None),
            ends=answers is not None,
            answers=answers,
        )

    def _relevant_tails(self, text: str) -> tuple[GroundedPath, ...]:
        labelled = ((self._fetched(pair.name), pair.token) for pair in read_labelled(text))
        relevant = dict.fromkeys(name for name, token in labelled if name is not None and token.text != UNRELEVANT)
        return tuple(tail for name in relevant for tail in self._tails_of(name))

    def _fetched(self, written: str) -> str | None:
        """Return the fetched name that was written: two may differ in case only, so its own spelling comes first."""
        spelled = written.strip()
        return spelled if spelled in self.by_name else find_name(written, self._by_key)

    @cached_property
    def _by_key(self) -> dict[str, str]:
        return {match_key(name): name for name in self.by_name}

    def _tails_of(self, name: str) -> list[GroundedPath]:
        tails = self.by_name[name]
        return tails[: self.cvt_fanout] if name == UNKNOWN_ENTITY else tails


def _is_incoming(tail: GroundedPath) -> bool:
    return tail.steps[-1].relation.direction == "in"
