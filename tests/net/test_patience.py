"""How many rounds a request goes on: those in which a server is busy with others do not count, for a time."""

from __future__ import annotations

import contextlib
import time

import pytest

from pipeline.net import attempts
from pipeline.net.attempts import Patience
from pipeline.net.http_connections import Response
from pipeline.net.server import Server, is_busy


def server(*answers_ago_s: float) -> Server:
    found = Server("graph", "http://one", slots=contextlib.nullcontext())
    found.answers.extend(time.monotonic() - ago for ago in answers_ago_s)
    return found


def rounds(busy: list[list[Server]], most: int = 3) -> Patience:
    patience = Patience(most, lately_s=10)
    for each in busy:
        patience.add_round(each)
    return patience


def test_a_round_without_a_busy_server_counts_whatever_came_between() -> None:
    assert not rounds([[], []]).is_over
    assert rounds([[], [server(1)], [], [server(1)], []]).is_over


def test_rounds_at_a_busy_server_count_only_while_it_serves_nobody() -> None:
    assert not rounds([[server(1)]] * 50).is_over
    assert rounds([[server(11)]] * 3).is_over
    assert not rounds([[server(11)], [server(11)], [server(1)], [server(11)]]).is_over, "it is never so in a row"


def test_a_server_that_is_at_work_on_a_long_request_serves_others() -> None:
    slow = server()
    slow.requests[object()] = time.monotonic() - 5  # type: ignore[index]
    assert not rounds([[slow]] * 50).is_over


def test_a_server_that_takes_long_to_send_requests_away_is_at_work_on_none() -> None:
    slow = server()
    slow.sent_away_s = 3
    slow.requests[object()] = time.monotonic() - 5  # type: ignore[index]
    assert rounds([[slow]] * 3).is_over


def test_a_turn_is_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "_TURN_S", -1)
    assert rounds([[server(1)]] * 3).is_over


def test_a_rate_is_of_late() -> None:
    assert server(600, 500).answers_per_s == 0
    assert server(*(10 - n / 10 for n in range(100))).answers_per_s == pytest.approx(10, rel=0.05)
    assert server(0.001).answers_per_s == pytest.approx(1, rel=0.05), "one answer is no high rate"
    assert server(*(0.5 - n / 200 for n in range(100))).answers_per_s == pytest.approx(200, rel=0.1)


@pytest.mark.parametrize(
    ("status", "headers", "busy"),
    [(429, {}, True), (503, {"retry-after": "2"}, True), (503, {}, False), (200, {"retry-after": "2"}, False)],
)
def test_a_busy_server_asks_for_the_request_later(status: int, headers: dict[str, str], busy: bool) -> None:
    assert is_busy(Response(status, headers, b"")) is busy
