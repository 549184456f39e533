"""The `kgqa` command as the fixtures hand it out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """What the user is told is wrong: one line, the last one, and no traceback before it."""
        assert self.code == 2
        assert "Traceback" not in self.out + self.err
        *before, last = self.err.splitlines()
        assert not [line for line in before if line.startswith("kgqa: ")]
        return last.removeprefix("kgqa: ")


Kgqa = Callable[..., Outcome]
