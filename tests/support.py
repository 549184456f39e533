"""What the tests of several packages share."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import pytest

from pipeline.traces.origin import ShardOrigin
from pipeline.types import Rejected

KGQA = [sys.executable, "-m", "pipeline.cli.main"]
"""The command in a process of its own."""

ORIGIN = ShardOrigin(run="a test", index=0, questions=())
"""For a shard that no run wrote."""


def refuse(row: Rejected) -> None:
    """For a dataset whose rows can all be read."""
    pytest.fail(f"rejected: {row}")


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that is bound to happen."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
