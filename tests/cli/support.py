"""The result of a `kgqa` command in tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """Exit code and streams of a command."""

    code: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """The error message: the last line of stderr, with no other message or traceback before it."""
        assert self.code == 2
        assert "Traceback" not in self.out + self.err
        *before, last = self.err.splitlines()
        assert not [line for line in before if line.startswith("kgqa: ")]
        return last.removeprefix("kgqa: ")


Kgqa = Callable[..., Outcome]
