"""Benchmarks run, and their figures are consistent. Speed is not tested."""

from __future__ import annotations

import pytest

from pipeline.cli.benchmarks.client import measure_client
from pipeline.cli.benchmarks.scheduling import scheduling
from pipeline.cli.benchmarks.search import search
from pipeline.cli.benchmarks.servers import servers
from pipeline.cli.benchmarks.viewer import viewer


async def test_measures_three_clients_against_one_server() -> None:
    figures = await measure_client(calls=128, in_flight=8)
    assert all(value > 0 for value in figures.values())
    assert figures["endpoint_to_openai"] == pytest.approx(figures["endpoint_ms"] / figures["openai_ms"], rel=0.01)
    assert figures["endpoint_to_bare_http"] == pytest.approx(figures["endpoint_ms"] / figures["bare_http_ms"], rel=0.01)


def test_measures_what_the_client_gets_through_several_servers() -> None:
    figures = servers(counts=(2,), warm_s=0.5, measured_s=1.0)
    assert figures["2_servers_to_sum_of_rates"] == figures["2_servers_requests_per_s"] / 80
    assert all(value > 0 for value in figures.values())


@pytest.mark.exhaustive
def test_measures_how_fast_shards_are_handed_out() -> None:
    figures = scheduling(shards=50)
    assert all(value > 0 for value in figures.values())
    assert figures["ray_to_queue"] == figures["leases_per_s"] / figures["leases_without_ray_per_s"]


@pytest.mark.exhaustive
def test_measures_the_viewer_on_copies_of_a_shard() -> None:
    figures = viewer(shards=6)
    assert figures["questions"] == 6 * 100 * 10
    assert all(figures[name] > 0 for name in ("index_s", "first_page_s", "text_search_s", "question_s", "peak_mib"))


def test_measures_the_compressed_search_after_two_kills_of_its_build() -> None:
    figures = search(nodes=4000)
    assert figures["shards_written_again"] == 0
    assert figures["shards_kept_after_kill"] >= 1
    assert figures["recall_at_1"] >= 0.95
    assert figures["flat_to_approximate"] == figures["flat_ms_per_query"] / figures["ms_per_query"]
