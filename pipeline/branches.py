"""The concurrent parts of one question, and which of its steps follow one another.

Tasks say so, and not the clock: a stored reply takes no time, and parts that have only stored replies would seem to run
one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Branch:
    """A part of a question: the steps of one task."""

    task: asyncio.Task[Any] | None
    """None if it has not been started yet."""
    after: Sequence[int] = ()
    """The steps that the next step of this part follows."""
    _parts: list[Branch] = field(default_factory=list)
    """The parts that this one has started."""

    def part(self, task: asyncio.Task[Any] | None = None) -> Branch:
        """Return a new part, which begins after what this one has awaited so far."""
        new = Branch(task, self.settle())
        self._parts.append(new)
        return new

    def settle(self) -> Sequence[int]:
        """Return the steps that the next step follows: the last ones of this part, and of its parts that have ended."""
        ended = [each for each in self._parts if each.task is not None and each.task.done()]
        if ended:
            self._parts = [each for each in self._parts if each not in ended]
            self.after = [*dict.fromkeys([*self.after, *(step for each in ended for step in each.settle())])]
        return self.after

    def add(self, step: int) -> Sequence[int]:
        """Add a step, and return the steps that it follows."""
        follows, self.after = self.settle(), (step,)
        return follows


_BRANCH: ContextVar[Branch | None] = ContextVar("branch", default=None)


def begin_question() -> Branch:
    """Make the current task the first part of a question, and return it."""
    branch = Branch(_task())
    _BRANCH.set(branch)
    return branch


def start(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task, as a part of the question that the current one answers."""
    context = copy_context()
    if (branch := current()) is None:
        return asyncio.create_task(coroutine)
    part = branch.part()
    context.run(_BRANCH.set, part)
    part.task = task = asyncio.create_task(coroutine, context=context)
    return task


def current() -> Branch | None:
    """Return the part that the current task runs; None outside of a question."""
    branch, task = _BRANCH.get(), _task()
    if branch is None or branch.task is task:
        return branch
    own = branch.part(task)
    _BRANCH.set(own)
    return own


def _task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop, as where a test opens steps
        return None
