"""Tests that need a GPU: `pytest tests/gpu`. They need no network. The whole suite leaves them out."""

from __future__ import annotations

import pytest

from pipeline.errors import UserError
from pipeline.training.gpu import require_gpu


def pytest_sessionstart() -> None:
    """Say in one sentence that there is no GPU, and fail: skipped tests would look like success."""
    try:
        require_gpu("tests/gpu")
    except UserError as error:
        pytest.exit(str(error), returncode=1)
