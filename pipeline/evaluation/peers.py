"""What each published code base would count for the same answers (methods.md §9.1), faults included.

The rules differ by up to 28 points on one file of predictions, so they serve to explain numbers, not to report them.
`RULES` lists them; each function is one rule. A None leaves the question out of that rule's denominator. None of the
code bases notices a question that is missing from its output, or that is there twice.
"""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from pipeline.evaluation import compat
from pipeline.evaluation.compat import compact, rog_hit_and_f1, without_articles
from pipeline.evaluation.grbench import join_answers, rouge_l
from pipeline.types import Answer, Example

_YEAR = re.compile(r"\b[12][0-9]{3}\b")
_SEPARATORS = re.compile(r"[,;|\n]")
_POG_ANSWER = re.compile(r'"Answer"\s*:\s*(\[[^\]]*\]|"[^"]*"|[^,}\s]+)')
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, slots=True)
class Response:
    """What a rule may look at."""

    text: str
    """All that the model wrote last; the answers joined by commas where it is not known."""
    lines: Sequence[str]
    """Its lines; one `ans:` line per answer where it is not known."""
    answers: Sequence[str]
    names: Sequence[str]
    """Gold names."""
    accepted: Sequence[str]
    """Gold names and aliases."""
    topics: bool
    """Whether the dataset names a topic entity."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How one code base counts."""

    peer: str
    metric: str
    """As the paper calls it."""
    counts: str
    """What is correct, in words."""
    score: Callable[[Response], float | None]


@dataclass(frozen=True, slots=True)
class RuleMean:
    """What a code base would report."""

    rule: Rule
    mean: float | None
    """In [0, 1] (RoG's F1 may exceed 1); None when nothing counts."""
    counted: int
    """The size of its denominator."""


def tog(text: str, golds: Collection[str]) -> bool:
    """The first brace block, else all, equals, contains or is contained in a gold, without blanks and case.

    Its own stop format `{Yes} … {answer}` puts "Yes" first; an empty block is contained in every gold; a block that
    was never closed loses its last letter.
    """
    return _contains_either_way(_first_block(text), golds)


def pog(text: str, golds: Collection[str]) -> bool:
    """As ToG, on the `Answer` of the model's JSON, else what looks like it, else all; a list becomes Python text."""
    return _contains_either_way(_pog_answer(text), golds)


def readi(text: str, golds: Collection[str]) -> bool:
    """The first brace block, else all, equals or contains a gold, without blanks and case."""
    response = compact(_first_block(text))
    return response != "" and any(compact(gold) in response for gold in golds)


def structgpt(text: str, golds: Collection[str]) -> bool:
    """A gold or alias is contained in the text, without case."""
    return any(gold.lower() in text.lower() for gold in golds)


def dog(texts: Iterable[str], golds: Collection[str]) -> bool:
    """A gold is contained in one of the texts, without blanks and case.

    The code asks the model again when the first text is wrong by the gold answer, so its method has two texts.
    """
    return any(compact(gold) in text.replace(" ", "").lower() for text in texts for gold in golds)


def gnn_rag_hit1(lines: Sequence[str], golds: Collection[str]) -> bool:
    """RoG's hit on the first line alone."""
    return rog_hit_and_f1(lines[:1], golds)[0]


def subgraphrag_hit1(lines: Sequence[str], golds: Collection[str]) -> bool:
    """A gold is contained in the first line with `ans:`, in RoG's normal form."""
    return rog_hit_and_f1(_answer_lines(lines)[:1], golds)[0]


def subgraphrag_f1(lines: Sequence[str], golds: Collection[str]) -> float:
    """F1 of golds and lines with `ans:`, each line good for one gold: long golds choose first, among long lines first.

    The code's leniency towards questions of when and where is left out.
    """
    free = predicted = sorted(_answer_lines(lines), key=len, reverse=True)
    expected = sorted(set(golds), key=len, reverse=True)
    for gold in expected:
        holder = next((line for line in free if without_articles(gold) in without_articles(line)), None)
        free = [line for line in free if line != holder]
    matched = len(predicted) - len(free)
    return 2 * matched / (len(predicted) + len(expected)) if matched else 0.0


def arg_hit(labels: Collection[str], golds: Collection[str]) -> bool:
    """A label is a gold label to the letter; without gold answers every question is a hit."""
    return not golds or compat.arg_hit3(labels, golds)


def arg_f1(labels: Collection[str], golds: Collection[str]) -> float | None:
    """F1 of labels to the letter; None without gold answers.

    The code's precision of 1 where nothing was predicted meets a recall of 0, so it does not lift F1.
    """
    return compat.arg_f1(labels, golds) if golds else None


def aog(text: str, golds: Collection[str]) -> bool | None:
    """A part of the answer, between commas and the like, resembles a gold; None without gold answers.

    Resembling is: one contains the other, both hold the same year, their words overlap by 0.6 (Jaccard), or their
    letters by 0.72 (`SequenceMatcher.ratio`), all in lower case, without accents and punctuation.
    """
    parts = [part for part in map(_plain, _SEPARATORS.split(text)) if part]
    return any(_resembles(part, gold) for part in parts for gold in map(_plain, golds)) if golds else None


def graph_cot_em(answers: Sequence[str], golds: Sequence[str]) -> bool:
    """The answer is the gold text to the letter; the library that the code calls normalises nothing."""
    return join_answers(answers) == join_answers(golds)


def graph_cot_rouge_l(answers: Sequence[str], golds: Sequence[str]) -> float:
    """F of the longest common subsequence of words; order matters."""
    return rouge_l(join_answers(answers), join_answers(golds))


RULES: tuple[Rule, ...] = (
    Rule("ToG", "EM", "first {…} block within a gold or a gold within it", lambda r: tog(r.text, r.names)),
    Rule("PoG", "EM", "JSON answer within a gold or a gold within it", lambda r: pog(r.text, r.accepted)),
    Rule(
        "Readi", "Hit@1", "gold within the first {…} block", lambda r: readi(r.text, r.accepted) if r.topics else None
    ),
    Rule("StructGPT", "Hit@1", "gold within the text", lambda r: structgpt(r.text, r.accepted)),
    Rule("DoG", "EM", "gold within the text, of one try", lambda r: dog([r.text], r.names)),
    Rule("RoG", "Hit", "gold within the joined lines", lambda r: rog_hit_and_f1(r.lines, r.names)[0]),
    Rule(
        "RoG",
        "F1",
        "golds within the joined lines, per line and per gold",
        lambda r: rog_hit_and_f1(r.lines, r.names)[1],
    ),
    Rule("GNN-RAG", "Hit@1", "gold within the first line", lambda r: gnn_rag_hit1(r.lines, r.names)),
    Rule("SubgraphRAG", "Hit@1", "gold within the first `ans:` line", lambda r: subgraphrag_hit1(r.lines, r.names)),
    Rule("SubgraphRAG", "F1", "golds within `ans:` lines, one to one", lambda r: subgraphrag_f1(r.lines, r.names)),
    Rule("ArG", "Hit@1", "some answer is a gold label to the letter", lambda r: arg_hit(r.answers, r.names)),
    Rule("ArG", "F1", "answers that are gold labels to the letter", lambda r: arg_f1(r.answers, r.names)),
    Rule(
        "AoG",
        "accuracy",
        "some part of the answer resembles a gold",
        lambda r: aog(", ".join(r.answers) or r.text, r.accepted),
    ),
    Rule("Graph-CoT", "EM", "answer is the gold text to the letter", lambda r: graph_cot_em(r.answers, r.names)),
    Rule("Graph-CoT", "ROUGE-L", "common words in order", lambda r: graph_cot_rouge_l(r.answers, r.names)),
)


def peer_scores(example: Example, answer: Answer) -> list[float | None]:
    """The score of one answer by each of `RULES`."""
    response = _response(example, answer)
    scores = (rule.score(response) for rule in RULES)
    return [None if score is None else float(score) for score in scores]


def compare_rules(lines: Iterable[tuple[Example, Answer]]) -> list[RuleMean]:
    """The mean by each of `RULES` over the lines of an output, repeated questions counting again."""
    scores = [peer_scores(example, answer) for example, answer in lines]
    return [_mean(rule, [row[index] for row in scores]) for index, rule in enumerate(RULES)]


def _mean(rule: Rule, scores: Sequence[float | None]) -> RuleMean:
    counted = [score for score in scores if score is not None]
    return RuleMean(rule, sum(counted) / len(counted) if counted else None, len(counted))


def _response(example: Example, answer: Answer) -> Response:
    answers = [prediction.text for prediction in answer.predictions]
    golds = example.gold.answers
    names = [gold.name for gold in golds]
    return Response(
        text=answer.raw or ", ".join(answers),
        lines=answer.raw.split("\n") if answer.raw else [f"ans: {text}" for text in answers],
        answers=answers,
        names=names,
        accepted=[*names, *(alias for gold in golds for alias in gold.aliases)],
        topics=bool(example.question.topic_entities),
    )


def _first_block(text: str) -> str:
    if "{" not in text:
        return text
    block = text[text.find("{") + 1 : text.find("}")]
    return text if block == "NULL" else block


def _contains_either_way(text: str, golds: Collection[str]) -> bool:
    response = compact(text)
    return any(response in gold or gold in response for gold in map(compact, golds))


def _pog_answer(text: str) -> str:
    try:
        reply = json.loads(text[text.find("{") : text.rfind("}") + 1])
        return str(reply["A"]["Answer"])
    except (ValueError, RecursionError, KeyError, TypeError):
        found = _POG_ANSWER.search(text)
        return found.group(1).strip('"') if found else text


def _answer_lines(lines: Sequence[str]) -> list[str]:
    """The distinct lines that give an answer."""
    given = [line for line in lines if "ans:" in line and "none" not in line.lower()]
    refusals = ("ans: not available", "ans: no information available")
    return list(dict.fromkeys(line for line in given if not any(refusal in line.lower() for refusal in refusals)))


def _plain(text: str) -> str:
    letters = (letter for letter in unicodedata.normalize("NFD", text) if not unicodedata.combining(letter))
    return " ".join("".join(letters).translate(_NO_PUNCTUATION).lower().split())


def _resembles(part: str, gold: str) -> bool:
    if part in gold or gold in part or not set(_YEAR.findall(part)).isdisjoint(_YEAR.findall(gold)):
        return True
    words, gold_words = set(part.split()), set(gold.split())
    overlap = len(words & gold_words) / len(words | gold_words)
    return overlap >= 0.6 or SequenceMatcher(None, part, gold).ratio() >= 0.72
