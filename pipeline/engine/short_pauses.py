"""Settings of the interpreter under which an event loop with many questions in flight makes only short pauses."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_YOUNG_OBJECTS = 20_000
"""New objects after which the garbage collector looks through them. A question makes hundreds, and leaves hardly any
cycle. At 50,000, a look took 0.05 to 0.16 s, in which no question went on; at 5,000, they took 7 % of the CPU time."""
_SWITCH_INTERVAL_S = 0.002
"""Seconds for which another thread keeps the interpreter's lock while the event loop waits for it. The loop gives the
lock away at each write to a socket. With Python's default of 5 ms, a round of the loop with a hundred replies took
0.2 s while shards were written. With 0.5 ms, a run took 10 % more CPU time."""


@contextmanager
def short_pauses() -> Iterator[None]:
    """Change the settings, and change them back at the end. Until then, the collector ignores all objects of now."""
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.freeze()  # to look through what is open, in every full collection, would block the loop for 0.1 s
    gc.set_threshold(_YOUNG_OBJECTS)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)
        gc.unfreeze()
