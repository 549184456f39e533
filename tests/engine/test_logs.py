"""The log as JSON lines: what every line says, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from rich.console import Console

from pipeline.engine.logs import console_of, json_lines, shard_of

JSON, TEXT = {"log": "json"}, {"log": "text"}
LOGGER = logging.getLogger("pipeline.net.replicated_client")


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_line_says_which_run_worker_and_shard(capsys: pytest.CaptureFixture[str]) -> None:
    async def work(shard: int) -> None:
        shard_of.set(shard)
        await asyncio.sleep(0)
        LOGGER.info("committed", extra={"rows": 32})

    async def both() -> None:
        await asyncio.gather(work(4), work(7))

    with json_lines(JSON, run="x", worker="w1"):
        asyncio.run(both())
        LOGGER.warning("put %s aside", "a server")
    first, second, last = lines(capsys)
    assert (
        first.items()
        >= {
            "level": "INFO",
            "logger": "pipeline.net.replicated_client",
            "message": "committed",
            "run": "x",
            "worker": "w1",
            "rows": 32,
            "shard": 4,
        }.items()
    )
    assert second["shard"] == 7
    assert last["message"] == "put a server aside"
    assert "shard" not in last
    assert str(last["timestamp"]).endswith("+00:00")


def test_others_are_heard_when_they_warn(capsys: pytest.CaptureFixture[str]) -> None:
    other = logging.getLogger("another.library")
    other.setLevel(logging.DEBUG)
    with json_lines(JSON, run="x", worker="w1"):
        other.info("chatter")
        other.warning("trouble")
        try:
            raise ValueError("no\nnumber")
        except ValueError:
            LOGGER.exception("a bug")
    heard = lines(capsys)
    assert [line["message"] for line in heard] == ["trouble", "a bug"]
    assert "ValueError: no\nnumber" in str(heard[1]["exc_info"])


def test_what_the_driver_says_is_a_record_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    console = console_of(JSON, Console(stderr=True))
    long = "run folder: /" + 40 * "folder/"
    with json_lines(JSON, run="x", worker="driver"):
        shard = shard_of.set(4)  # the driver prints while a row of this shard finishes
        console.print(f"{long}\n\nsecond", markup=False)
        shard_of.reset(shard)
    said = lines(capsys)
    assert [line["message"] for line in said] == [long, "second"]
    assert not any("shard" in line for line in said)


def test_text_is_left_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console()
    assert console_of(TEXT, console) is console
    before = logging.getLogger().handlers[:]
    with json_lines(TEXT, run="x", worker="w1"):
        assert logging.getLogger().handlers == before
        assert not LOGGER.isEnabledFor(logging.INFO)
    with json_lines(JSON, run="x", worker="w1"):
        pass
    assert logging.getLogger().handlers == before
    assert not LOGGER.isEnabledFor(logging.INFO)
