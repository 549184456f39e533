"""Explains why a run that reuses earlier runs made new model calls."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from pipeline import config
from pipeline.grouping import grouped
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import OTHER_DATA, RecordedCalls, explain_miss, read_shards

NEW_QUESTION = "a question of which no earlier run has a call"
"""The reason for all calls of such a question."""


def explain_misses(folder: RunFolder, earlier: Sequence[str]) -> Counter[str]:
    """Count a finished run's new calls by how they differ from the most similar call of the earlier runs."""
    run = RecordedCalls(folder.path)
    earlier_runs = [RecordedCalls(name) for name in earlier]
    otherwise = _beside_the_prompt([each.saved for each in earlier_runs], run.saved)
    reasons: Counter[str] = Counter()
    graphs = {served["graph"] for served in run.saved["served"]}
    for question_id in pl.concat(read_shards(folder, ["question_id"]))["question_id"].unique():
        recorded = {key: call for each in earlier_runs for key, call in each.calls(question_id).items()}
        gold = run.gold_of_replies(question_id)
        usable = {key for each in earlier_runs for key in each.reusable(question_id, gold, graphs)}
        by_role = grouped(recorded.values(), lambda call: call.role)
        for key, call in run.calls(question_id).items():
            if not recorded:
                reasons[NEW_QUESTION] += 1
            elif key not in recorded:
                reasons[explain_miss(call, by_role.get(call.role, []), otherwise=otherwise)] += 1
            elif key not in usable:
                reasons[OTHER_DATA] += 1
    return reasons


def _beside_the_prompt(before: Sequence[Mapping[str, Any]], now: Mapping[str, Any]) -> str:
    """Name what two calls with the same prompt and sampling differ in: the model, or keys of the model, or the seed."""
    models_before = {served["model"] for run in before for served in run["served"]}
    models_now = {served["model"] for served in now["served"]}
    if models_before != models_now:
        others, own = models_before - models_now or models_before, models_now - models_before or models_now
        return f"the model ({', '.join(sorted(others))}, now {', '.join(sorted(own))})"
    values_before = _values(point["config"] for run in before for point in run["points"])
    values_now = _values(point["config"] for point in now["points"])
    changed = [key for key, found in values_now.items() if values_before.get(key, found) != found]
    return " or ".join(changed) or "the model or the seed"


def _values(configs: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    """Return the values of each key that decides a reply to the same prompt."""
    values: defaultdict[str, set[str]] = defaultdict(set)
    for each in configs:
        deciding = {"run.seed": each["run"]["seed"], **config.deciding_keys({"llm": each["llm"]})}
        for key, value in deciding.items():
            values[key].add(config.canonical(value))
    return values
