"""The settings of the whole suite."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent


def test_the_suite_runs_without_xdist() -> None:
    """A debugger, for example, needs all tests in one process, without the plugin that distributes them."""
    words = ("-p", "no:xdist", "--collect-only", "-q", "tests/test_text.py")
    command = [sys.executable, "-m", "pytest", *words]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
