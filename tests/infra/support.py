"""The expressions of the dashboards, with Grafana's variables filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

INFRA = Path(__file__).resolve().parents[2] / "infra"
MONITORING = INFRA / "monitoring"

OF_VLLM = {
    *("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"),
    *("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:request_success_total"),
    *("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "vllm:num_preemptions_total"),
    *("vllm:time_to_first_token_seconds_bucket", "vllm:inter_token_latency_seconds_bucket"),
    "vllm:e2e_request_latency_seconds_bucket",
}
"""vLLM's metrics that dashboards and rules use; a test checks that a real server exports them."""

_RANGE = re.compile(r"\$__rate_interval\b")
_VARIABLE = re.compile(r"\$\w+")
_METRIC = re.compile(r"\b(?:kgqa_|vllm:)\w+")


@cache
def dashboards() -> dict[str, dict[str, Any]]:
    """Return the dashboards by file name."""
    return {file.name: json.loads(file.read_text()) for file in (MONITORING / "grafana" / "dashboards").glob("*.json")}


def expressions(dashboard: dict[str, Any]) -> Iterator[str]:
    """Return the expressions of its panels, over one minute and all label values."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield _VARIABLE.sub(".*", _RANGE.sub("1m", target["expr"]))


def metrics_in(text: str) -> set[str]:
    """Return the names of our metrics and of vLLM's in an expression."""
    return set(_METRIC.findall(text))
