"""Explains why a run that reuses earlier runs made new model calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import polars as pl

from pipeline.grouping import grouped
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import OTHER_DATA, RecordedCalls, explain_miss, read_shards

NEW_QUESTION = "a question of which no earlier run has a call"
"""The reason for all calls of such a question."""


def explain_misses(folder: RunFolder, earlier: Sequence[str]) -> Counter[str]:
    """Count a finished run's new calls by how they differ from the most similar call of the earlier runs."""
    run = RecordedCalls(folder.path)
    earlier_runs = [RecordedCalls(name) for name in earlier]
    models_before = {served["model"] for earlier_run in earlier_runs for served in earlier_run.saved["served"]}
    models_now = {served["model"] for served in run.saved["served"]}
    if models_before == models_now:
        otherwise = "the seed"
    else:
        otherwise = f"the model ({', '.join(sorted(models_before))}, now {', '.join(sorted(models_now))})"
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
