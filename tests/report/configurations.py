"""Configurations with given scores, parameters and costs, without a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipeline.config import default
from pipeline.evaluation.config import ScoringConfig
from pipeline.evaluation.configuration_summary import ConfigurationSummary, Group
from pipeline.evaluation.statistics import estimate_mean
from pipeline.report.data import CHARTED, Configuration, RunInfo
from pipeline.report.details import Details

QUICK = default(ScoringConfig, bootstrap_resamples=500)
RUN = RunInfo("run", Path("runs/run"), {"seed": 0, "started": "2026-11-21T15:09:08+0000"}, {"complete": True}, QUICK)


def make(
    hits: Sequence[float],
    parameters: Mapping[str, Any] | None = None,
    *,
    implied: Mapping[str, Any] | None = None,
    method: str = "srp",
    name: str | None = None,
    label: str | None = "oracle",
    calls: float = 1.0,
    tokens: float = 100.0,
    run: RunInfo = RUN,
    model: str = "a model",
    sources: Sequence[str] | None = None,
    breakdown: Mapping[str, Sequence[Group]] | None = None,
    details: Details | None = None,
    **changed: Any,
) -> Configuration:
    """Build a configuration whose questions have these values of every charted score.

    `parameters` are set by overrides, `implied` are not. A key without a dot is in the section `method`.
    """
    overrides, others = (
        {key if "." in key else f"method.{key}": value for key, value in (given or {}).items()}
        for given in (parameters, implied)
    )
    values = np.array(hits, dtype=np.float64)
    estimate = estimate_mean(values, **QUICK.bootstrap)
    summary = {
        "number": 0,
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
        "counters": {"llm_calls": calls * len(values), "tokens": tokens * len(values), "critical_s": 2.0 * len(values)},
        "breakdown": breakdown or {},
    }
    return Configuration(
        run=run,
        summary=ConfigurationSummary(**{**summary, **changed}),
        family=method,
        parameters={"method": method, "experiment": "none", "method.name": name or method, **overrides, **others},
        resolved={"method": {"name": name or method}, "choices": {"method": "srp"}, "run": {}},
        served={"model": model, "label": label, "graph": "a graph", "roles": {}},
        code={},
        rows=pl.DataFrame(
            {
                "question": range(len(values)),
                "source": sources or range(len(values)),
                **dict.fromkeys(CHARTED, pl.Series(values, dtype=pl.Float32)),
            }
        ),
        details=details or Details(),
    )
