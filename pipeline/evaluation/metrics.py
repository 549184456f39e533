"""All that is measured of one question (methods.md §9.2–9.5), from its answer and its gold alone."""

from __future__ import annotations

from pipeline.evaluation import compat, grbench
from pipeline.evaluation.matching import Candidate, GoldGroups, distinct, group_gold, matching_size
from pipeline.evaluation.reliability import collect_evidence
from pipeline.evaluation.settings import DEFAULT, Evaluation
from pipeline.types import Answer, Gold, Scores


def score_question(answer: Answer, gold: Gold, *, dataset: str = "", settings: Evaluation = DEFAULT) -> Scores:
    """Score one question; a failed one is wrong, whatever it left behind.

    A question without gold answers has no scores, unless `settings.empty_gold` is `strict_empty`. The GRBench scores
    are given where `dataset` starts with `grbench`.
    """
    if answer.status == "failed":
        answer = Answer(status="failed")
    candidates = distinct(answer.predictions, strip_accents=settings.strip_accents)
    groups = group_gold(gold, strip_accents=settings.strip_accents)
    if not groups.count:
        return _without_gold(answer, candidates, groups, settings)
    standard = _standard(candidates, groups)
    return Scores(
        **standard,
        **_compatible(answer, gold),
        **(_grbench(answer, gold) if dataset.startswith("grbench") else {}),
        **_reliability(answer, candidates, groups, settings),
        **_reflection(answer, groups, standard["hits_at_1"], settings),
    )


def _standard(candidates: tuple[Candidate, ...], groups: GoldGroups) -> dict[str, float]:
    matches = [groups.of(candidate) for candidate in candidates]
    size = matching_size(matches)
    return {
        "hits_at_1": float(bool(matches and matches[0])),
        "hits_any": float(any(matches)),
        "precision": size / len(candidates) if candidates else 0.0,
        "recall": size / groups.count,
        "f1": 2 * size / (len(candidates) + groups.count),
        "exact_match": float(size == len(candidates) == groups.count),
    }


def _compatible(answer: Answer, gold: Gold) -> dict[str, float]:
    labels = [prediction.text for prediction in answer.predictions]
    names = [gold_answer.name for gold_answer in gold.answers]
    accepted = [*names, *(alias for gold_answer in gold.answers for alias in gold_answer.aliases)]
    text = compat.answer_text(answer.raw, labels)
    rog_hit, rog_f1 = compat.rog_hit_and_f1(labels, names)
    return {
        "compat_tog_em": float(compat.tog_em(text, accepted)),
        "compat_readi_hit": float(compat.readi_hit(text, accepted)),
        "compat_rog_hit": float(rog_hit),
        "compat_rog_f1": rog_f1,
        "compat_arg_hit3": float(compat.arg_hit3(labels, names)),
        "compat_arg_f1": compat.arg_f1(labels, names),
    }


def _grbench(answer: Answer, gold: Gold) -> dict[str, float]:
    prediction = grbench.join_answers(prediction.text for prediction in answer.predictions)
    reference = grbench.join_answers(gold_answer.name for gold_answer in gold.answers)
    return {
        "rouge_l": grbench.rouge_l(prediction, reference),
        "grbench_em": float(grbench.exact_match(prediction, reference)),
        "grbench_f1": grbench.set_f1(prediction, reference),
    }


def _reliability(
    answer: Answer, candidates: tuple[Candidate, ...], groups: GoldGroups, settings: Evaluation
) -> dict[str, float | None]:
    evidence = collect_evidence(answer, strip_accents=settings.strip_accents)
    correct = bool(candidates and groups.of(candidates[0]))
    return {
        "answer_in_evidence": float(evidence.holds_gold(groups)),
        "answer_supported": float(evidence.holds(candidates[0])) if correct else None,
        "faithfulness": evidence.share(candidates),
    }


def _reflection(answer: Answer, groups: GoldGroups, hits_at_1: float, settings: Evaluation) -> dict[str, float | None]:
    """What became of the initial answers; without gold they were right to say nothing."""
    if answer.initial is None:
        return {}
    initial = distinct(answer.initial, strip_accents=settings.strip_accents)
    was_right = bool(initial and groups.of(initial[0])) if groups.count else not initial
    return {
        "initial_hits_at_1": float(was_right),
        "corrected": None if was_right else hits_at_1,
        "damaged": 1 - hits_at_1 if was_right else None,
    }


def _without_gold(
    answer: Answer, candidates: tuple[Candidate, ...], groups: GoldGroups, settings: Evaluation
) -> Scores:
    if settings.empty_gold == "exclude":
        return Scores()
    score = float(not candidates)
    standard = dict.fromkeys(("hits_at_1", "hits_any", "precision", "recall", "f1", "exact_match"), score)
    return Scores(**standard, **_reflection(answer, groups, score, settings))
