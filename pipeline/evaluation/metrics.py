"""Computes all scores of one question from its answer and gold answers (specification §9.2–9.5)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pipeline.evaluation import grbench, paper_metrics
from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.evidence import collect_evidence
from pipeline.evaluation.matching import AnswerCandidate, GoldGroups, distinct, group_gold, matching_size
from pipeline.types import Answer, Gold, Prediction, Scores


def score_question(
    answer: Answer,
    gold: Gold,
    *,
    dataset: str = "",
    method: str = "",
    scoring: ScoringConfig,
    followed: Collection[str] | None = None,
    gold_relations: Collection[str] | None = None,
) -> Scores:
    """Score one question. A failed question is wrong, even if it has partial answers.

    A question without gold answers has no scores, unless `scoring.empty_gold` is `strict_empty`. The GRBench scores
    are computed only if `dataset` starts with `grbench`. The name of the `method` decides which text the metrics of
    papers read. `followed` are the relations whose nodes the method looked up, `gold_relations` those of the gold
    query, as far as they are known.
    """
    if answer.status == "failed":
        answer, followed = Answer(status="failed"), None if followed is None else ()
    candidates = distinct(answer.predictions, strip_accents=scoring.strip_accents)
    groups = group_gold(gold, strip_accents=scoring.strip_accents)
    if not groups.count:
        return _without_gold(answer, candidates, groups, scoring)
    standard, papers = _standard(candidates, groups), _as_in_papers(answer, gold, method)
    is_grbench = dataset.startswith("grbench")
    return Scores(
        **standard,
        **papers,
        **(_grbench(answer, gold) if is_grbench else {}),
        **_evidence(answer, candidates, groups, scoring, is_hit=bool(papers["compat_readi_hit"])),
        relation_recall=_recall(followed, gold_relations),
        **_reflection(answer, groups, standard["hits_at_1"], scoring),
        **_recovery(answer, gold, groups, scoring, by_rouge=is_grbench),
    )


def _standard(candidates: tuple[AnswerCandidate, ...], groups: GoldGroups) -> dict[str, float]:
    matches = [groups.matched_by(candidate) for candidate in candidates]
    size = matching_size(matches)
    return {
        "hits_at_1": float(bool(matches and matches[0])),
        "hits_any": float(any(matches)),
        "precision": size / len(candidates) if candidates else 0.0,
        "recall": size / groups.count,
        "f1": 2 * size / (len(candidates) + groups.count),
        "exact_match": float(size == len(candidates) == groups.count),
    }


def _as_in_papers(answer: Answer, gold: Gold, method: str) -> dict[str, float | None]:
    labels = [prediction.text for prediction in answer.predictions]
    names = [gold_answer.name for gold_answer in gold.answers]
    accepted = [*names, *(alias for gold_answer in gold.answers for alias in gold_answer.aliases)]
    text = paper_metrics.answer_text(answer.raw, labels, method=method)
    tog_em = paper_metrics.tog_em(text, accepted)
    rog = paper_metrics.rog_scores(labels, names)
    return {
        "compat_tog_em": float(tog_em),
        "compat_readi_hit": float(paper_metrics.readi_hit(text, accepted)),
        "compat_rog_hit": float(rog.hit),
        "compat_rog_precision": rog.precision,
        "compat_rog_recall": rog.recall,
        "compat_rog_f1": rog.f1,
        "compat_arg_hit3": float(paper_metrics.arg_hit3(labels, names)),
        "compat_arg_f1": paper_metrics.arg_f1(labels, names),
        **_correction_by_tog_em(answer, accepted, float(tog_em)),
    }


def _correction_by_tog_em(answer: Answer, accepted: list[str], final: float) -> dict[str, float | None]:
    if answer.initial is None:
        return {}
    was_correct = paper_metrics.tog_em(", ".join(prediction.text for prediction in answer.initial), accepted)
    return {
        "corrected_tog_em": None if was_correct else final,
        "damaged_tog_em": 1 - final if was_correct else None,
    }


def _grbench(answer: Answer, gold: Gold) -> dict[str, float]:
    prediction = grbench.join_answers(prediction.text for prediction in answer.predictions)
    reference = grbench.join_answers(gold_answer.name for gold_answer in gold.answers)
    return {
        "rouge_l": grbench.rouge_l(prediction, reference),
        "grbench_em": float(grbench.exact_match(prediction, reference)),
        "grbench_f1": grbench.set_f1(prediction, reference),
    }


def _evidence(
    answer: Answer,
    candidates: tuple[AnswerCandidate, ...],
    groups: GoldGroups,
    scoring: ScoringConfig,
    *,
    is_hit: bool,
) -> dict[str, float | None]:
    """Compare the evidence with the answers; `is_hit` is whether Readi's rule counts them as correct."""
    evidence = collect_evidence(answer, strip_accents=scoring.strip_accents)
    correct = bool(candidates and groups.matched_by(candidates[0]))
    supported = float(bool(candidates and evidence.contains(candidates[0])))
    return {
        "answer_in_evidence": float(evidence.contains_gold(groups)),
        "answer_supported": supported if correct else None,
        "supported_readi_hit": supported if is_hit else None,
        "faithfulness": evidence.faithfulness(candidates),
    }


def _recall(followed: Collection[str] | None, gold_relations: Collection[str] | None) -> float | None:
    """Return the relation recall (specification §9.5)."""
    if followed is None or not gold_relations:
        return None
    return len(set(followed).intersection(gold_relations)) / len(set(gold_relations))


def _reflection(
    answer: Answer, groups: GoldGroups, hits_at_1: float, scoring: ScoringConfig
) -> dict[str, float | None]:
    """Compare the answers before and after reflection. Without gold answers, only an empty answer is correct."""
    if answer.initial is None:
        return {}
    initial = distinct(answer.initial, strip_accents=scoring.strip_accents)
    was_correct = bool(initial and groups.matched_by(initial[0])) if groups.count else not initial
    return {
        "initial_hits_at_1": float(was_correct),
        "corrected": None if was_correct else hits_at_1,
        "damaged": 1 - hits_at_1 if was_correct else None,
    }


def _recovery(
    answer: Answer, gold: Gold, groups: GoldGroups, scoring: ScoringConfig, *, by_rouge: bool
) -> dict[str, float | None]:
    """Compare the answers before and after a retry, where the first attempt failed (specification §9.5)."""
    if answer.first_attempt is None:
        return {}

    def score(predictions: Sequence[Prediction]) -> float:
        if by_rouge:
            return _grbench(Answer(tuple(predictions)), gold)["rouge_l"]
        return _standard(distinct(predictions, strip_accents=scoring.strip_accents), groups)["hits_at_1"]

    halted = answer.first_attempt == "halted"
    before = 0.0 if halted else score(answer.initial or ())
    recovered = None if before >= 1 else float(score(answer.predictions) > before)
    return {"recovered_halted" if halted else "recovered_incorrect": recovered}


def _without_gold(
    answer: Answer, candidates: tuple[AnswerCandidate, ...], groups: GoldGroups, scoring: ScoringConfig
) -> Scores:
    if scoring.empty_gold == "exclude":
        return Scores()
    score = float(not candidates and answer.status != "failed")
    standard = dict.fromkeys(("hits_at_1", "hits_any", "precision", "recall", "f1", "exact_match"), score)
    return Scores(**standard, **_reflection(answer, groups, score, scoring))
