"""Why a run that reuses earlier ones made calls of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import polars as pl

from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import RecordedCall, RecordedCalls, explain_miss, read_shards


def explain_misses(folder: RunFolder, earlier: Sequence[str]) -> Counter[str]:
    """How many calls of a finished run were made anew, by what tells them from the nearest call of the earlier runs."""
    made = RecordedCalls(folder.path)
    known = [RecordedCalls(run) for run in earlier]
    then = {served["model"] for run in known for served in run.saved["served"]}
    now = {served["model"] for served in made.saved["served"]}
    of_model = f"the model ({', '.join(sorted(then))}, now {', '.join(sorted(now))})" if then != now else "the seed"
    reasons: Counter[str] = Counter()
    for question_id in _questions(folder):
        recorded = {key: call for run in known for key, call in run.calls(question_id).items()}
        by_role: dict[str, list[RecordedCall]] = {}
        for call in recorded.values():
            by_role.setdefault(call.role, []).append(call)
        for key, call in made.calls(question_id).items():
            if key not in recorded:
                reasons[explain_miss(call, by_role.get(call.role, []), otherwise=of_model)] += 1
    return reasons


def _questions(folder: RunFolder) -> list[str]:
    return pl.concat(read_shards(folder, ["question_id"])).unique()["question_id"].to_list()
