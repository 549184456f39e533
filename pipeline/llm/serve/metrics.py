"""Exports the metrics of a vLLM server by the agent of its Ray node.

Servers have ports that nobody knows before they start, and may listen on loopback only. Prometheus reads Ray's agents.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.samples import Sample
from ray.util.metrics import Gauge


class Exporter:
    """Exports vLLM's samples through Ray as `ray_vllm_…`, under which `infra/monitoring` expects them."""

    def __init__(self) -> None:
        self._gauges: dict[str, Gauge] = {}

    def export(self, samples: Iterable[Sample]) -> None:
        """Set each of vLLM's metrics to its value. Counters and buckets are sums already: Ray's would add."""
        for name, labels, value, *_ in samples:
            if not name.startswith("vllm:"):
                continue
            if name not in self._gauges:
                self._gauges[name] = Gauge(name.replace(":", "_"), "Of vLLM.", tuple(labels))
            self._gauges[name].set(value, dict(labels))
