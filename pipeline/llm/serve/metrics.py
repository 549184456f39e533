"""The metrics of a vLLM server, read from its page and exported by the agent of its Ray node.

Servers have ports that nobody knows before they start, and may listen on loopback only. Prometheus reads Ray's agents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from ray.util.metrics import Gauge

from pipeline.net.subprocess_server import fetch


class Sample(NamedTuple):
    """One value."""

    name: str
    labels: Mapping[str, str]
    value: float


def read_samples(url: str) -> list[Sample]:
    """Return vLLM's samples of a page. Raises OSError if the server does not answer."""
    text = fetch(url).decode()
    families = (family for family in text_string_to_metric_families(text) if family.name.startswith("vllm:"))
    return [Sample(each.name, each.labels, each.value) for family in families for each in family.samples]


def total(samples: list[Sample], *names: str) -> float:
    """Return the sum of the samples with these names, over all labels."""
    return sum(each.value for each in samples if each.name in names)


class Exporter:
    """Exports samples through Ray as `ray_vllm_…`, under which `infra/monitoring` expects them."""

    def __init__(self) -> None:
        self._gauges: dict[str, Gauge] = {}

    def export(self, samples: list[Sample]) -> None:
        """Set every metric to the value that vLLM gives. Counters and buckets are sums already: Ray's would add."""
        for name, labels, value in samples:
            if name not in self._gauges:
                self._gauges[name] = Gauge(name.replace(":", "_"), "Of vLLM.", tuple(labels))
            self._gauges[name].set(value, dict(labels))
