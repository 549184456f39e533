"""Metrics as the methods' papers define them, stored in the `compat_*` columns (specification §9.3).

They are more lenient than the standard metrics. Tables print them next to the standard metrics, so that a number can
be compared with the number in a paper. `pipeline.papers.paper_rules` reproduces the rules of other published code,
with their errors.
"""

from __future__ import annotations

import re
import string
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

_BLOCK = re.compile(r"\{([^{}]*)\}")
_VERDICT = re.compile(r"\s*(?:yes|no)\s*(?:[.,:;!].*)?", re.IGNORECASE | re.DOTALL)
"""A verdict, perhaps with its reason, as in `{Yes, the facts suffice}`. Only the first block can be one: later ones are
answers, such as "No, No, Nanette"."""
_JSON_OBJECT = re.compile(r"\{\s*[\"'][^\"'{}]*[\"']\s*:")
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)

ROG_F1 = "compat_rog_f1"
ROG_F1_ABOVE_1 = "RoG's own F1 (rog_f1) can exceed 100: a line with several gold names counts once for each"

METRICS_OF_METHOD: dict[str, tuple[str, ...]] = {
    "tog": ("compat_tog_em",),
    "pog": ("compat_tog_em",),
    "parog": ("compat_tog_em",),
    "srp": ("compat_readi_hit",),
    "readi": ("compat_readi_hit",),
    "cot": ("compat_readi_hit",),
    "dog": ("compat_readi_hit",),
    "rog": ("compat_rog_hit", ROG_F1),
    "gnn-rag": ("compat_rog_hit", ROG_F1),
    "arg": ("compat_arg_hit3", "compat_arg_f1"),
    "graph-cot": ("rouge_l",),
    "rag": ("rouge_l",),
    "r3": ("rouge_l",),
}
"""By method, the scores that are comparable with the numbers in its paper; `cot` is a baseline in the SRP paper."""


_SCORED_BY_ANSWERS = ("pog", "parog", "dog")
"""Methods whose parsed answers are scored, not their replies (§9.3, §16.4)."""


def paper_metrics_of(method: str) -> tuple[str, ...]:
    """Return the paper metrics of a method, given its name or a variant's name (`arg-prompted`, `srp (readi)`)."""
    return METRICS_OF_METHOD.get(_family(method), ())


def _family(method: str) -> str:
    found = re.match(r"gnn-rag|graph-cot|[a-z0-9]+", method.lower())
    return found[0] if found else ""


def answer_text(raw: str, answers: Iterable[str], *, method: str) -> str:
    """Return the text that ToG's rule matches: the first `{…}` that is no verdict, else the first one, else all of it.

    For PoG, PARoG and DoG, without a model's text, or if it is JSON, return the answers joined by commas: otherwise the
    JSON key "aligned" would match the gold answer "Ali".
    """
    if scores_parsed_answers(method) or not raw.strip() or _JSON_OBJECT.search(raw):
        return ", ".join(answers)
    blocks: list[str] = _BLOCK.findall(raw)
    if not blocks:
        return raw
    first, *later = blocks
    if not _VERDICT.fullmatch(first):
        return first
    return next((block for block in later if block.strip().lower() not in {"yes", "no"}), first)


def scores_parsed_answers(method: str) -> bool:
    """Whether the metrics of papers read the parsed answers of a method with this name, not its reply."""
    return _family(method) in _SCORED_BY_ANSWERS


def tog_em(text: str, golds: Iterable[str]) -> bool:
    """Return whether the text contains a gold name or a gold name contains the text. An empty text is wrong."""
    text = lower_without_spaces(text)
    return text != "" and any(gold in text or text in gold for gold in map(lower_without_spaces, golds) if gold)


def readi_hit(text: str, golds: Iterable[str]) -> bool:
    """Return whether the text contains a gold name."""
    text = lower_without_spaces(text)
    return any(gold in text for gold in map(lower_without_spaces, golds) if gold)


class RoGScores(NamedTuple):
    """The scores of one answer by RoG's published code."""

    hit: bool
    precision: float
    recall: float
    f1: float


def rog_scores(lines: Sequence[str], golds: Collection[str]) -> RoGScores:
    """Count the gold names in the joined lines, per line (precision) and per gold name (recall).

    These are the published formulas: a name may span two lines, and a line with several gold names makes precision,
    and with it F1, exceed 1.
    """
    if not lines or not golds:
        return RoGScores(False, 0.0, 0.0, 0.0)
    joined = without_articles("\n".join(lines))
    found = sum(without_articles(gold) in joined for gold in golds)
    return RoGScores(found > 0, found / len(lines), found / len(golds), 2 * found / (len(lines) + len(golds)))


def arg_hit3(labels: Iterable[str], golds: Collection[str]) -> bool:
    """Return whether any label equals a gold label exactly.

    The labels are the union of the answers of the three best leaves, which is what ArG returns.
    """
    return not set(golds).isdisjoint(labels)


def arg_f1(labels: Collection[str], golds: Collection[str]) -> float:
    """Return F1 of exact labels as sets. Without predictions it is 0, although the paper's code sets precision to 1."""
    predicted, expected = set(labels), set(golds)
    common = len(predicted & expected)
    return 2 * common / (len(predicted) + len(expected)) if common else 0.0


def lower_without_spaces(text: str) -> str:
    """Return ToG's normal form."""
    return text.strip().replace(" ", "").lower()


def without_articles(text: str) -> str:
    """Return RoG's normal form: lower case, without ASCII punctuation and articles, spaces collapsed."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())
