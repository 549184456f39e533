"""Reproduces how published code scores answers, errors included (specification §9.1).

On one file of predictions the rules differ by up to 28 percentage points, so they explain numbers in papers and are
not for reporting. Each function is one rule, and `RULES` lists all of them. A rule that returns None excludes the
question from its mean. No published code detects missing or repeated questions in its output.
"""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from rich.table import Table

from pipeline.evaluation import paper_metrics
from pipeline.evaluation.grbench import join_answers, rouge_l
from pipeline.evaluation.paper_metrics import lower_without_spaces, rog_scores, without_articles
from pipeline.evaluation.score_tables import percent, plain_table
from pipeline.types import Answer, Example

_YEAR = re.compile(r"\b[12][0-9]{3}\b")
_SEPARATORS = re.compile(r"[,;|\n]")
_POG_ANSWER = re.compile(r'"Answer"\s*:\s*(\[[^\]]*\]|"[^"]*"|[^,}\s]+)')
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, slots=True)
class Response:
    """The input of a rule."""

    text: str
    """The model's last completion, or the answers joined by commas if it is unknown."""
    lines: Sequence[str]
    """The lines of the completion, or one `ans:` line per answer if it is unknown."""
    answers: Sequence[str]
    names: Sequence[str]
    """Gold names."""
    accepted: Sequence[str]
    """Gold names and aliases."""
    has_topic: bool
    """Whether the dataset gives a topic entity."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The scoring rule of one published system."""

    system: str
    metric: str
    """The paper's name of the metric."""
    criterion: str
    """When an answer is correct."""
    score: Callable[[Response], float | None]


@dataclass(frozen=True, slots=True)
class RuleMean:
    """The mean score by one rule."""

    rule: Rule
    mean: float | None
    """In [0, 1], but RoG's F1 can exceed 1; None if no question has a score."""
    questions: int
    """Number of scores in the mean."""


def tog(text: str, golds: Collection[str]) -> bool:
    """Match the first `{…}`, else all of the text, with a gold: one contains the other, ignoring spaces and case.

    Errors of the rule: ToG's own format `{Yes} … {answer}` puts "Yes" first, an empty block matches every gold, and a
    block without a closing brace loses its last letter.
    """
    return _contains_either_way(_first_block(text), golds)


def pog(text: str, golds: Collection[str]) -> bool:
    """Apply ToG's rule to the `Answer` of the JSON reply.

    If the JSON cannot be read, the rule is applied to the text matched by a pattern, else to the whole reply.
    """
    return _contains_either_way(_pog_answer(text), golds)


def readi(text: str, golds: Collection[str]) -> bool:
    """Return whether the first `{…}`, else all of the text, contains a gold, ignoring spaces and case."""
    response = lower_without_spaces(_first_block(text))
    return response != "" and any(lower_without_spaces(gold) in response for gold in golds)


def structgpt(text: str, golds: Collection[str]) -> bool:
    """Return whether the text contains a gold or alias, ignoring case."""
    return any(gold.lower() in text.lower() for gold in golds)


def dog(texts: Iterable[str], golds: Collection[str]) -> bool:
    """Return whether one of the texts contains a gold, ignoring spaces and case.

    DoG's code asks the model again if the first text is wrong according to the gold answer, so it has two texts.
    """
    return any(lower_without_spaces(gold) in text.replace(" ", "").lower() for text in texts for gold in golds)


def gnn_rag_hit1(lines: Sequence[str], golds: Collection[str]) -> bool:
    """Apply RoG's hit rule to the first line only."""
    return rog_scores(lines[:1], golds).hit


def subgraphrag_hit1(lines: Sequence[str], golds: Collection[str]) -> bool:
    """Return whether the first line with `ans:` contains a gold, in RoG's normal form."""
    return rog_scores(_answer_lines(lines)[:1], golds).hit


def subgraphrag_f1(lines: Sequence[str], golds: Collection[str]) -> float:
    """Return F1 of golds and lines with `ans:`. Each line matches one gold.

    Golds choose their lines in order of length, longest first, and each takes the longest line that contains it.
    The code's lenient treatment of "when" and "where" questions is not reproduced.
    """
    free = predicted = sorted(_answer_lines(lines), key=len, reverse=True)
    expected = sorted(set(golds), key=len, reverse=True)
    for gold in expected:
        match = next((line for line in free if without_articles(gold) in without_articles(line)), None)
        free = [line for line in free if line != match]
    matched = len(predicted) - len(free)
    return 2 * matched / (len(predicted) + len(expected)) if matched else 0.0


def arg_hit(labels: Collection[str], golds: Collection[str]) -> bool:
    """Return whether a label equals a gold label exactly. Without gold answers, every question is a hit."""
    return not golds or paper_metrics.arg_hit3(labels, golds)


def arg_f1(labels: Collection[str], golds: Collection[str]) -> float | None:
    """Return F1 of exact labels; None without gold answers.

    The code sets precision to 1 without predictions, but recall is then 0, so F1 does not change.
    """
    return paper_metrics.arg_f1(labels, golds) if golds else None


def aog(text: str, golds: Collection[str]) -> bool | None:
    """Return whether a part of the answer, split at separators, is similar to a gold; None without gold answers.

    Similar means, in lower case and without accents and punctuation: one contains the other, both contain the same
    year, the Jaccard index of their words is at least 0.6, or `SequenceMatcher.ratio` is at least 0.72.
    """
    parts = [part for part in map(_plain, _SEPARATORS.split(text)) if part]
    return any(_is_similar(part, gold) for part in parts for gold in map(_plain, golds)) if golds else None


def graph_cot_em(answers: Sequence[str], golds: Sequence[str]) -> bool:
    """Return whether the answer equals the gold text exactly; the library that the code calls does not normalise."""
    return join_answers(answers) == join_answers(golds)


def graph_cot_rouge_l(answers: Sequence[str], golds: Sequence[str]) -> float:
    """Return the F-measure of the longest common subsequence of words."""
    return rouge_l(join_answers(answers), join_answers(golds))


RULES: tuple[Rule, ...] = (
    Rule("ToG", "EM", "first {…} block and a gold contain one another", lambda r: tog(r.text, r.names)),
    Rule("PoG", "EM", "JSON answer and a gold contain one another", lambda r: pog(r.text, r.accepted)),
    Rule("Readi", "Hit@1", "gold in the first {…} block", lambda r: readi(r.text, r.accepted) if r.has_topic else None),
    Rule("StructGPT", "Hit@1", "gold in the text", lambda r: structgpt(r.text, r.accepted)),
    Rule("DoG", "EM", "gold in the text, with one attempt", lambda r: dog([r.text], r.names)),
    Rule("RoG", "Hit", "gold in the joined lines", lambda r: rog_scores(r.lines, r.names).hit),
    Rule("RoG", "F1", "golds in the joined lines, per line and gold", lambda r: rog_scores(r.lines, r.names).f1),
    Rule("GNN-RAG", "Hit@1", "gold in the first line", lambda r: gnn_rag_hit1(r.lines, r.names)),
    Rule("SubgraphRAG", "Hit@1", "gold in the first `ans:` line", lambda r: subgraphrag_hit1(r.lines, r.names)),
    Rule("SubgraphRAG", "F1", "golds in `ans:` lines, one to one", lambda r: subgraphrag_f1(r.lines, r.names)),
    Rule("ArG", "Hit@1", "an answer equals a gold label exactly", lambda r: arg_hit(r.answers, r.names)),
    Rule("ArG", "F1", "answers that equal gold labels exactly", lambda r: arg_f1(r.answers, r.names)),
    Rule(
        "AoG",
        "accuracy",
        "a part of the answer is similar to a gold",
        lambda r: aog(", ".join(r.answers) or r.text, r.accepted),
    ),
    Rule("Graph-CoT", "EM", "answer equals the gold text exactly", lambda r: graph_cot_em(r.answers, r.names)),
    Rule("Graph-CoT", "ROUGE-L", "common words in order", lambda r: graph_cot_rouge_l(r.answers, r.names)),
)


def scores_by_rule(example: Example, answer: Answer) -> list[float | None]:
    """Return the score of one answer by each of `RULES`."""
    response = _response(example, answer)
    scores = (rule.score(response) for rule in RULES)
    return [None if score is None else float(score) for score in scores]


def compare_rules(lines: Iterable[tuple[Example, Answer]]) -> list[RuleMean]:
    """Return the mean by each of `RULES` over the lines of an output. Repeated questions count every time."""
    scores = [scores_by_rule(example, answer) for example, answer in lines]
    return [_mean(rule, [row[index] for row in scores]) for index, rule in enumerate(RULES)]


def rules_table(means: Sequence[RuleMean]) -> Table:
    """Build a table of the means, with the criterion of each rule and the number of lines it counts."""
    table = plain_table("the same predictions, scored by the rules of published code")
    for heading in ("system", "metric", "criterion"):
        table.add_column(heading)
    for heading in ("%", "lines counted"):
        table.add_column(heading, justify="right")
    for mean in means:
        value = "–" if mean.mean is None else percent(mean.mean)
        table.add_row(mean.rule.system, mean.rule.metric, mean.rule.criterion, value, str(mean.questions))
    return table


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
        has_topic=bool(example.question.topic_entities),
    )


def _first_block(text: str) -> str:
    if "{" not in text:
        return text
    block = text[text.find("{") + 1 : text.find("}")]
    return text if block == "NULL" else block


def _contains_either_way(text: str, golds: Collection[str]) -> bool:
    response = lower_without_spaces(text)
    return any(response in gold or gold in response for gold in map(lower_without_spaces, golds))


def _pog_answer(text: str) -> str:
    try:
        reply = json.loads(text[text.find("{") : text.rfind("}") + 1])
        return str(reply["A"]["Answer"])
    except (ValueError, RecursionError, KeyError, TypeError):
        found = _POG_ANSWER.search(text)
        return found.group(1).strip('"') if found else text


def _answer_lines(lines: Sequence[str]) -> list[str]:
    """Return the distinct lines that give an answer."""
    given = [line for line in lines if "ans:" in line and "none" not in line.lower()]
    refusals = ("ans: not available", "ans: no information available")
    return list(dict.fromkeys(line for line in given if not any(refusal in line.lower() for refusal in refusals)))


def _plain(text: str) -> str:
    letters = (letter for letter in unicodedata.normalize("NFD", text) if not unicodedata.combining(letter))
    return " ".join("".join(letters).translate(_NO_PUNCTUATION).lower().split())


def _is_similar(part: str, gold: str) -> bool:
    if part in gold or gold in part or not set(_YEAR.findall(part)).isdisjoint(_YEAR.findall(gold)):
        return True
    words, gold_words = set(part.split()), set(gold.split())
    overlap = len(words & gold_words) / len(words | gold_words)
    return overlap >= 0.6 or SequenceMatcher(None, part, gold).ratio() >= 0.72
