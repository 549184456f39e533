"""Settings of the interpreter under which an event loop with many questions in flight makes only short pauses."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_GENERATIONS = (20_000, 5, 500)
"""Thresholds of the garbage collector. After 20,000 new objects, it looks through the young ones; after five times,
also through those that stayed; after 500 times of that, through all. A question makes hundreds of objects, and leaves
hardly any cycle. A look through all took 0.3 to 0.5 s with 2,048 questions in flight, and one through 50,000 young
objects 0.1 s."""
_SWITCH_INTERVAL_S = 0.0005
"""Seconds after which a thread that computes lets the loop go on. The loop asks for it after each write to a socket, so
that Python's default of 5 ms made a round with a hundred replies 0.2 s long while shards were written."""


@contextmanager
def short_pauses() -> Iterator[None]:
    """Change the settings, and change them back at the end. All that exists now is kept until then."""
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.freeze()  # to look through what is open, in every full collection, would block the loop for 0.1 s
    gc.set_threshold(*_GENERATIONS)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)
        gc.unfreeze()
