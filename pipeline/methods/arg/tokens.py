"""Reflection tokens: their spellings, their places in a text, their probabilities (methods.md §4.2, §4.6)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["retrieval", "relevance", "rationality", "utility", "usefulness"]

RETRIEVE_RELATION, RETRIEVE_ENTITY, NO_RETRIEVAL = "[Retrieve Relation]", "[Retrieve Entity]", "[No Retrieval]"
FULLY_RELEVANT, PARTIALLY_RELEVANT, UNRELEVANT = "[Fully Relevant]", "[Partially Relevant]", "[Unrelevant]"
FULLY_REASONABLE, PARTIALLY_REASONABLE, UNREASONABLE = "[Fully Reasonable]", "[Partially Reasonable]", "[Unreasonable]"
FULLY_USEFUL, PARTIALLY_USEFUL, NOT_USEFUL = "[Fully Useful]", "[Partially Useful]", "[Not Useful]"
OPEN, CLOSE = "<paragraph>", "</paragraph>"

CLASSES: Mapping[Kind, tuple[str, ...]] = {
    "retrieval": (RETRIEVE_RELATION, RETRIEVE_ENTITY, NO_RETRIEVAL),
    "relevance": (FULLY_RELEVANT, PARTIALLY_RELEVANT, UNRELEVANT),
    "rationality": (FULLY_REASONABLE, PARTIALLY_REASONABLE, UNREASONABLE),
    "utility": tuple(f"[Utility:{level}]" for level in range(1, 6)),
    "usefulness": (FULLY_USEFUL, PARTIALLY_USEFUL, NOT_USEFUL),
}
"""The members of each class; the best first, but utility from 1 to 5."""

_ALIASES = {
    "[Relation Retrieval]": RETRIEVE_RELATION,
    "[Entity Retrieval]": RETRIEVE_ENTITY,
    "[Relevant]": FULLY_RELEVANT,
    "[Partially]": PARTIALLY_RELEVANT,
    "[Irrelevant]": UNRELEVANT,
    "[Reasonable]": FULLY_REASONABLE,
}
_KINDS: Mapping[str, Kind] = {token: kind for kind, members in CLASSES.items() for token in members}
_SPELLINGS = {token: token for token in _KINDS} | _ALIASES
_BRACKETED = re.compile(r"\[([^\[\]\n]{1,40})\]")

Weights: TypeAlias = Mapping[str, float]
"""The probability of each member of a class, summing to 1."""

Positions: TypeAlias = Sequence[Mapping[str, float]]
"""Per generated token the log-probabilities that were reported, its own first."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A reflection token in a text."""

    kind: Kind
    token: str
    """In its canonical spelling."""
    place: int
    """How many tokens of its class come before it."""
    start: int
    end: int


def find_marks(text: str) -> list[Mark]:
    """The reflection tokens of a text in order; other words in brackets, as in the film [REC], are none."""
    marks: list[Mark] = []
    seen: Counter[Kind] = Counter()
    for found in _BRACKETED.finditer(text):
        if (token := _CANONICAL.get(_plain(found[1]))) is not None:
            kind = _KINDS[token]
            marks.append(Mark(kind, token, seen[kind], found.start(), found.end()))
            seen[kind] += 1
    return marks


def certain(mark: Mark) -> Weights:
    """All weight on the token that was written: the hard score of §4.6."""
    return {token: float(token == mark.token) for token in CLASSES[mark.kind]}


def reported_weights(mark: Mark, logprobs: Positions) -> tuple[Weights, bool]:
    """What the log-probabilities of a completion say of the class of one of its tokens, and whether of all members.

    A member that was not reported gets no weight. A token of several pieces is weighed along the pieces: where another
    piece could have begun one other member alone, that member gets what was on it.
    """
    stream = "".join(_own(position) for position in logprobs)
    same = [found for found in find_marks(stream) if found.kind == mark.kind]
    if mark.place >= len(same) or same[mark.place].token != mark.token:
        return certain(mark), False
    mass = _mass(same[mark.place], logprobs)
    total = sum(mass.values())
    if not total > 0:
        return certain(mark), False
    return {token: share / total for token, share in mass.items()}, all(mass.values())


def _mass(mark: Mark, logprobs: Positions) -> dict[str, float]:
    """The probability that each member of the class had where `mark`, found in the stream of tokens, was written."""
    mass = dict.fromkeys(CLASSES[mark.kind], 0.0)
    starts = accumulate((len(_own(position)) for position in logprobs), initial=0)
    written, reached = "", 0.0
    for start, position in zip(starts, logprobs, strict=False):
        own = _own(position)
        if start >= mark.end or start + len(own) <= mark.start:
            continue
        skipped = max(0, mark.start - start)  # the piece may begin with the end of a name
        for piece, logprob in position.items():
            if piece != own and piece[:skipped] == own[:skipped]:
                members = _members_begun(mark.kind, written + piece[skipped:])
                if len(members) == 1:
                    mass[members.pop()] += math.exp(reached + logprob)
        written += own[skipped:]
        reached += position[own]
    mass[mark.token] += math.exp(reached)
    return mass


def _members_begun(kind: Kind, text: str) -> set[str]:
    """The members of a class that a text may be the beginning of, or begins with."""
    text = text.casefold()
    return {
        token
        for spelling, token in _SPELLINGS_OF[kind]
        if text and (spelling.startswith(text) or text.startswith(spelling))
    }


def _own(position: Mapping[str, float]) -> str:
    return next(iter(position), "")


def _plain(inner: str) -> str:
    return "".join(inner.split()).casefold()


_CANONICAL = {_plain(spelling[1:-1]): token for spelling, token in _SPELLINGS.items()}
_SPELLINGS_OF: Mapping[Kind, list[tuple[str, str]]] = {
    kind: [(spelling.casefold(), token) for spelling, token in _SPELLINGS.items() if _KINDS[token] == kind]
    for kind in CLASSES
}
