"""Scores by the rules of the papers that our numbers are printed beside (methods.md §9.3).

They are kept apart from the standard metrics because they are laxer, each in its own way; a table that prints a
paper's number prints the matching one of these in the same row and the standard metric next to it. The rules of all
peers, with their faults, are in `peers`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Collection, Iterable, Sequence

_BLOCK = re.compile(r"\{([^{}]*)\}")
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)

PRINTED_BESIDE: dict[str, tuple[str, ...]] = {
    "tog": ("compat_tog_em",),
    "pog": ("compat_tog_em",),
    "parog": ("compat_tog_em",),
    "srp": ("compat_readi_hit",),
    "readi": ("compat_readi_hit",),
    "cot": ("compat_readi_hit",),
    "rog": ("compat_rog_hit", "compat_rog_f1"),
    "gnn-rag": ("compat_rog_hit", "compat_rog_f1"),
    "arg": ("compat_arg_hit3", "compat_arg_f1"),
    "graph-cot": ("rouge_l",),
    "r3": ("rouge_l",),
}
"""Per method the scores that its paper's numbers compare with; `cot` stands in the tables of the SRP paper."""


def printed_beside(method: str) -> tuple[str, ...]:
    """The compatible scores of a method, given its name or that of a variant (`arg-prompted`, `srp (readi)`)."""
    family = re.match(r"gnn-rag|graph-cot|[a-z0-9]+", method.lower())
    return PRINTED_BESIDE.get(family[0], ()) if family else ()


def answer_text(raw: str, answers: Iterable[str]) -> str:
    """What ToG's rule is applied to: the first brace block that is not yes or no, else the first block, else all.

    Without a model's text the answers stand for it.
    """
    if not raw.strip():
        return ", ".join(answers)
    blocks: list[str] = _BLOCK.findall(raw)
    if not blocks:
        return raw
    return next((block for block in blocks if block.strip().lower() not in {"yes", "no"}), blocks[0])


def tog_em(text: str, golds: Iterable[str]) -> bool:
    """Whether the text contains a gold name or a gold name contains the text; an empty text is wrong."""
    text = compact(text)
    return text != "" and any(gold in text or text in gold for gold in map(compact, golds) if gold)


def readi_hit(text: str, golds: Iterable[str]) -> bool:
    """Whether the text contains a gold name."""
    text = compact(text)
    return any(gold in text for gold in map(compact, golds) if gold)


def rog_hit_and_f1(lines: Sequence[str], golds: Collection[str]) -> tuple[bool, float]:
    """Whether any gold name occurs in the joined lines, and F1 of (golds found / lines) and (golds found / golds).

    A name may straddle two lines, and a line that holds several names lifts precision, and with it F1, above 1: those
    are the published formulas.
    """
    if not lines:
        return False, 0.0
    joined = without_articles("\n".join(lines))
    found = sum(without_articles(gold) in joined for gold in golds)
    return found > 0, 2 * found / (len(lines) + len(golds))


def arg_hit3(labels: Iterable[str], golds: Collection[str]) -> bool:
    """Whether any label, as it is, is a gold label.

    The labels are the union of the answers of the three best leaves, which is what a method of that kind returns.
    """
    return not set(golds).isdisjoint(labels)


def arg_f1(labels: Collection[str], golds: Collection[str]) -> float:
    """F1 of exact labels as sets; 0 when nothing was predicted, although the paper's code then calls precision 1."""
    predicted, expected = set(labels), set(golds)
    common = len(predicted & expected)
    return 2 * common / (len(predicted) + len(expected)) if common else 0.0


def compact(text: str) -> str:
    """ToG's normal form: lower case, without blanks."""
    return text.strip().replace(" ", "").lower()


def without_articles(text: str) -> str:
    """RoG's normal form: lower case, without ASCII punctuation and articles, spaces collapsed."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())
