"""Which server the calls of a question prefer: every server its part, and few move when one joins or leaves."""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest

from pipeline.net.replicated_client import preferred_server
from pipeline.net.server import Server

QUESTIONS = [f"question {number}" for number in range(800)]


def servers(count: int, first_port: int) -> list[Server]:
    return [
        Server("model", f"http://10.0.0.{number}:{first_port + number}/v1", slots=contextlib.nullcontext())
        for number in range(count)
    ]


@pytest.mark.parametrize("first_port", range(8000, 8050, 10))
def test_eight_servers_get_about_the_same_number_of_questions(first_port: int) -> None:
    replicas = servers(8, first_port)
    parts = Counter(preferred_server(question, replicas).url for question in QUESTIONS)
    assert len(parts) == 8
    assert min(parts.values()) > 65  # the mean is 100, the standard deviation 9
    assert max(parts.values()) < 140


def test_a_server_that_leaves_moves_only_its_questions() -> None:
    replicas = servers(8, 8000)
    gone, *rest = replicas
    for question in QUESTIONS:
        before = preferred_server(question, replicas)
        assert before is gone or preferred_server(question, rest) is before
