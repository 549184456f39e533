"""What a run was asked to do for each configuration, from its `run.yaml`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from pipeline import config
from pipeline.evaluation.configuration_summary import RequestedConfiguration


def requested(
    point: Mapping[str, Any], served: Mapping[str, Any], questions: int | None = None
) -> RequestedConfiguration:
    """Return what a configuration was asked, from its entries in `points` and `served`.

    `questions` is the number of questions that it was asked; None if that is not known.
    """
    resolved = point["config"]
    return RequestedConfiguration(
        overrides=tuple(point["overrides"]),
        label=served["label"],
        questions=questions,
        retriever=config.retriever(resolved),
        departures=config.departures(resolved),
        asked=_asked(resolved, str(served.get("graph"))),
    )


def _asked(resolved: Mapping[str, Any], graph: str) -> str:
    """Return a digest of the choice of questions, and of the graph without the sum that not all fingerprints have."""
    run = [resolved["run"].get(key) for key in config.QUESTION_KEYS]
    text = config.canonical([resolved["dataset"], run, graph.split("-")[:2]])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
