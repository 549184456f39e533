"""The simulated cluster agrees with queueing theory and with cases computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest

from pipeline.simulation.cluster.capacity import Cluster, Station, draw_questions, longest_s, simulate
from pipeline.simulation.cluster.workload import QuestionWorkload

FREE = Cluster(
    lease_s=0,
    workers=1,
    call_s=0,
    slots=1,
    replicas=1,
    entity_s=0,
    put_s=0,
    in_flight=1000,
    shard_size=10,
)
ONE = QuestionWorkload(calls=1, rounds=1, prompt_tokens=100, completion_tokens=10, entities=5)


def mean_wait(servers: int, arrivals_per_s: float, service_s: float, customers: int) -> float:
    """The mean wait of customers with exponential arrivals and service times."""
    rng, station = Random(0), Station(servers)
    now, waited = 0.0, 0.0
    for _ in range(customers):
        now += rng.expovariate(arrivals_per_s)
        seconds = rng.expovariate(1 / service_s)
        waited += station.serve(now, seconds) - now - seconds
    return waited / customers


def erlang_c_wait(servers: int, arrivals_per_s: float, service_s: float) -> float:
    """The mean wait in an M/M/c queue."""
    load = arrivals_per_s * service_s
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    waiting = last / (sum(load**k / math.factorial(k) for k in range(servers)) + last)
    return waiting * service_s / (servers - load)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (1, 0.7), (4, 0.7), (16, 0.8)])
def test_waits_agree_with_erlang_c(servers: int, load: float) -> None:
    arrivals = servers * load
    expected = erlang_c_wait(servers, arrivals, 1.0)
    assert mean_wait(servers, arrivals, 1.0, 60_000) == pytest.approx(expected, rel=0.15)  # about four standard errors


@pytest.mark.parametrize(
    ("station", "busy"),
    [
        ({"slots": 4, "answer_s": 0.5}, "slots"),
        ({"slots": 1000, "gpus": 4, "prompt_token_s": 0.005}, "prefill"),
        ({"slots": 1000, "workers": 4, "call_s": 0.5}, "workers"),
        ({"slots": 1000, "replicas": 4, "entity_s": 0.1}, "Virtuoso"),
    ],
)
def test_a_single_busy_station_divides_its_work_by_its_servers(station: dict[str, float], busy: str) -> None:
    outcome = simulate(replace(FREE, **station), [ONE] * 400)
    assert outcome.wall_s == pytest.approx(400 * 0.5 / 4)
    assert (outcome.bottleneck, outcome.busy[busy]) == (busy, pytest.approx(1))


def test_a_server_is_occupied_while_its_request_waits_for_another_station() -> None:
    slots, reading = Station(2), Station(1)
    ends = [slots.serve(0.0, 1.0, first=(reading, 3.0)) for _ in range(3)]
    assert ends == [4.0, 7.0, 10.0], "the third waits for the first server, and then for the second request's reading"
    assert slots.utilisation(10.0) == pytest.approx((4 + 7 + 6) / 20)


@pytest.mark.parametrize(("station", "busy"), [({"lease_s": 2.0}, "coordinator"), ({"put_s": 2.0}, "object store")])
def test_leases_and_writes_happen_once_per_shard(station: dict[str, float], busy: str) -> None:
    outcome = simulate(replace(FREE, slots=1000, **station), [ONE] * 400)
    assert outcome.wall_s == pytest.approx(40 * 2)
    assert outcome.bottleneck == busy


@pytest.mark.parametrize(("rounds", "wall_s"), [(6, 12), (3, 6), (1, 2)])
def test_calls_of_a_round_run_concurrently(rounds: int, wall_s: float) -> None:
    question = QuestionWorkload(calls=6, rounds=rounds, prompt_tokens=0, completion_tokens=0, entities=0)
    assert simulate(replace(FREE, slots=1000, answer_s=2.0), [question] * 10).wall_s == pytest.approx(wall_s)


def test_questions_wait_for_a_slot_in_flight() -> None:
    few = replace(FREE, slots=1000, answer_s=1.0, in_flight=5, shard_size=5)
    assert simulate(few, [ONE] * 100).wall_s == pytest.approx(20)


def test_a_reply_takes_the_time_of_its_prompt_and_its_tokens() -> None:
    cluster = replace(FREE, slots=10, prompt_token_s=0.01, token_s=0.1)
    assert simulate(cluster, [ONE]).wall_s == pytest.approx(100 * 0.01 + 10 * 0.1)


def test_doubling_the_cluster_halves_the_time_of_many_questions_but_not_of_few() -> None:
    chain = QuestionWorkload(calls=4, rounds=4, prompt_tokens=400, completion_tokens=40, entities=0)
    one = replace(FREE, slots=8, answer_s=1.0, in_flight=16)
    two = replace(one, slots=16, in_flight=32)
    assert simulate(two, [chain] * 2000).wall_s == pytest.approx(simulate(one, [chain] * 2000).wall_s / 2, rel=0.02)
    assert simulate(two, [chain] * 8).wall_s == simulate(one, [chain] * 8).wall_s == pytest.approx(4)


def test_no_run_is_shorter_than_its_longest_question_alone() -> None:
    chains = [QuestionWorkload(calls=n, rounds=n, prompt_tokens=0, completion_tokens=0, entities=0) for n in (2, 5, 3)]
    cluster = replace(FREE, slots=1000, answer_s=2.0)
    assert longest_s(cluster, chains) == simulate(cluster, chains).wall_s == pytest.approx(10)
    assert longest_s(cluster, []) == 0


def test_a_question_without_calls_takes_no_time() -> None:
    assert simulate(replace(FREE, answer_s=1.0), [QuestionWorkload(0, 0, 0, 0, 0)] * 20).wall_s == 0


def test_draws_are_reproducible() -> None:
    some = [QuestionWorkload(n, n, n, n, n) for n in range(10)]
    assert draw_questions(some, 50, seed=1) == draw_questions(some, 50, seed=1) != draw_questions(some, 50, seed=2)
