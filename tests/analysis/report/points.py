"""Points with scores, settings and costs of a test's own choosing, without a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipeline.analysis.report.measured import CHARTED, Measured, Run
from pipeline.evaluation.settings import Evaluation
from pipeline.evaluation.statistics import bootstrap_mean
from pipeline.evaluation.summary import Group, PointSummary

QUICK = Evaluation(bootstrap_resamples=500)
RUN = Run("run", Path("runs/run"), {"seed": 0, "started": "2026-11-21T15:09:08+0000"}, {"complete": True}, QUICK)


def point(
    hits: Sequence[float],
    settings: Mapping[str, Any] | None = None,
    *,
    implied: Mapping[str, Any] | None = None,
    method: str = "srp",
    name: str | None = None,
    label: str | None = "oracle",
    calls: float = 1.0,
    tokens: float = 100.0,
    run: Run = RUN,
    model: str = "a model",
    sources: Sequence[str] | None = None,
    breakdown: Mapping[str, Sequence[Group]] | None = None,
    **changed: Any,
) -> Measured:
    """A point whose questions have these scores by every measure that is charted.

    `settings` are what a command set, `implied` what follows from that; a key without a dot is one of the method's.
    """
    overrides, others = (
        {key if "." in key else f"method.{key}": value for key, value in (given or {}).items()}
        for given in (settings, implied)
    )
    values = np.array(hits, dtype=np.float64)
    estimate = bootstrap_mean(values, resamples=QUICK.bootstrap_resamples)
    summary = {
        "point": 0,
        "method": name or method,
        "dataset": "sample",
        "overrides": tuple(f"{key}={value}" for key, value in overrides.items()),
        "label": label,
        "questions": len(values),
        "not_run": 0,
        "failed": 0,
        "empty_gold": 0,
        "statuses": {"ok": len(values)},
        "scores": dict.fromkeys(CHARTED, estimate),
        "confidence": 0.95,
        "counters": {"llm_calls": calls * len(values), "tokens": tokens * len(values), "wall_s": 2.0 * len(values)},
        "breakdown": breakdown or {},
    }
    return Measured(
        run=run,
        summary=PointSummary(**{**summary, **changed}),
        family=method,
        settings={"method": method, "experiment": "none", "method.name": name or method, **overrides, **others},
        served={"model": model, "label": label, "graph": "a graph", "roles": {}},
        rows=pl.DataFrame(
            {
                "question": range(len(values)),
                "source": sources or range(len(values)),
                **dict.fromkeys(CHARTED, pl.Series(values, dtype=pl.Float32)),
            }
        ),
    )
