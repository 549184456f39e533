"""The client benchmark runs, and its figures belong together. How fast the clients are is not tested."""

from __future__ import annotations

import pytest

from jobs.benchmarks.client import measure_client


async def test_measures_three_clients_against_one_server() -> None:
    figures = await measure_client(calls=128, in_flight=8)
    assert all(value > 0 for value in figures.values())
    assert figures["endpoint_to_openai"] == pytest.approx(figures["endpoint_ms"] / figures["openai_ms"], rel=0.01)
    assert figures["endpoint_to_bare_http"] == pytest.approx(figures["endpoint_ms"] / figures["bare_http_ms"], rel=0.01)
