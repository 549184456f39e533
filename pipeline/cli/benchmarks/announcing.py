"""Says on stderr what a benchmark measures, before each measurement: most take minutes."""

from __future__ import annotations

import sys


def announce(what: str) -> None:
    """Print what is measured now."""
    print(f"measuring {what}", file=sys.stderr, flush=True)
