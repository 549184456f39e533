"""Reflection tokens: their spellings, positions and probabilities (specification §4.2, §4.6)."""

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
"""The tokens of each class, best first; utility from 1 to 5."""

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
_PARAGRAPH_MARK = re.compile(r"<(/?paragraph)>", re.IGNORECASE)
_OPEN_BRACKET = re.compile(r"\[([^\[\]]*)(\]?)")
_BRACKETED = re.compile(r"\[([^\[\]\n]{1,40})\]")

Weights: TypeAlias = Mapping[str, float]
"""The probability of each token of a class. The values sum to 1."""

Logprobs: TypeAlias = Sequence[Mapping[str, float]]
"""For each generated token, the reported log-probabilities: the token's own first, then its alternatives."""


@dataclass(frozen=True, slots=True)
class ReflectionToken:
    """A reflection token in a text."""

    kind: Kind
    text: str
    """The canonical spelling."""
    index: int
    """How many tokens of its class come before it in the text."""
    start: int
    end: int


def escape(name: str) -> str:
    """Print text of the graph or the dataset so that no part of it is read as a token or as the mark of a paragraph.

    The brackets of such a part become full-width ones: `[No Retrieval]` becomes `［No Retrieval］`. Other brackets, as
    of the film [REC], stay.
    """
    marked = _PARAGRAPH_MARK.sub(r"＜\1＞", name)
    return _OPEN_BRACKET.sub(_escape_bracket, marked)


def find_tokens(text: str) -> list[ReflectionToken]:
    """Return the reflection tokens of a text in order. Other words in brackets, such as the film [REC], are skipped."""
    tokens: list[ReflectionToken] = []
    counts: Counter[Kind] = Counter()
    for bracketed in _BRACKETED.finditer(text):
        if (canonical := _CANONICAL.get(_without_spaces(bracketed[1]))) is not None:
            kind = _KINDS[canonical]
            tokens.append(ReflectionToken(kind, canonical, counts[kind], bracketed.start(), bracketed.end()))
            counts[kind] += 1
    return tokens


def hard_weights(token: ReflectionToken) -> Weights:
    """Give all weight to the token that was written: the hard score (specification §4.6)."""
    return {member: float(member == token.text) for member in CLASSES[token.kind]}


def reported_weights(token: ReflectionToken, logprobs: Logprobs) -> tuple[Weights, bool]:
    """Compute the weights of a token's class from the log-probabilities of a completion.

    A member that was not reported gets no weight. A reflection token may consist of several vocabulary tokens. Then, at
    each of them, an alternative adds its probability to the one other member that starts that way, if it is only one.

    Returns:
        The weights, and whether every member of the class was reported.
    """
    stream = "".join(_generated(position) for position in logprobs)
    same_class = [found for found in find_tokens(stream) if found.kind == token.kind]
    if token.index >= len(same_class) or same_class[token.index].text != token.text:
        return hard_weights(token), False
    mass = _mass(same_class[token.index], logprobs)
    total = sum(mass.values())
    if not total > 0:
        return hard_weights(token), False
    return {member: share / total for member, share in mass.items()}, all(mass.values())


def _mass(token: ReflectionToken, logprobs: Logprobs) -> dict[str, float]:
    """Return the probability of each member of the class at `token`, a token of the generated stream."""
    mass = dict.fromkeys(CLASSES[token.kind], 0.0)
    starts = accumulate((len(_generated(position)) for position in logprobs), initial=0)
    prefix, prefix_logprob = "", 0.0
    for start, position in zip(starts, logprobs, strict=False):
        generated = _generated(position)
        if start >= token.end or start + len(generated) <= token.start:
            continue
        skipped = max(0, token.start - start)  # a vocabulary token may begin with the end of a name
        for piece, logprob in position.items():
            if piece != generated and piece[:skipped] == generated[:skipped]:
                members = _members_starting_with(token.kind, prefix + piece[skipped:])
                if len(members) == 1:
                    mass[members.pop()] += math.exp(prefix_logprob + logprob)
        prefix += generated[skipped:]
        prefix_logprob += position[generated]
    mass[token.text] += math.exp(prefix_logprob)
    return mass


def _members_starting_with(kind: Kind, text: str) -> set[str]:
    """Return the members of a class that start with `text`, or that `text` starts with."""
    text = text.casefold()
    return {
        member
        for spelling, member in _SPELLINGS_OF[kind]
        if text and (spelling.startswith(text) or text.startswith(spelling))
    }


def _generated(position: Mapping[str, float]) -> str:
    """Return the vocabulary token that was generated at a position."""
    return next(iter(position), "")


def _escape_bracket(opened: re.Match[str]) -> str:
    """Replace a bracket that is a token, begins like one, or may be completed to one by the text after the name."""
    inner = _without_spaces(opened[1])
    is_token_like = any(stem.startswith(inner) if not opened[2] else inner == stem for stem in _CANONICAL)
    if not is_token_like and not inner.startswith("utility"):
        return opened[0]
    return f"［{opened[1]}{'］' if opened[2] else ''}"


def _without_spaces(inner: str) -> str:
    return "".join(inner.split()).casefold()


_CANONICAL = {_without_spaces(spelling[1:-1]): token for spelling, token in _SPELLINGS.items()}
_SPELLINGS_OF: Mapping[Kind, list[tuple[str, str]]] = {
    kind: [(spelling.casefold(), token) for spelling, token in _SPELLINGS.items() if _KINDS[token] == kind]
    for kind in CLASSES
}
