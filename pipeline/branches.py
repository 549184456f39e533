"""The concurrent parts of one question, and which of its steps follow one another.

Tasks say so, and not the clock: a stored reply takes no time, and parts that have only stored replies would seem to run
one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, eq=False)
class Branch:
    """A part of a question: the steps of one task."""

    parent: Branch | None = None
    """The part that has started this one; None for the first one of a question."""
    began_after: Sequence[int] = ()
    """The steps that the first step of this part follows."""
    _after: Sequence[int] = ()
    """The steps that the next step follows, without those of parts that have ended since the last one."""
    _ended: list[Branch] = field(default_factory=list)
    """The parts that have ended since the last step, of those that this one has started."""
    _has_ended: bool = False
    last_decision: int = 0
    """The last decision of this part, which no step waits for."""

    @property
    def root(self) -> Branch:
        """The first part of the question."""
        branch = self
        while branch.parent is not None:
            branch = branch.parent
        return branch

    def part(self) -> Branch:
        """Return a new part, which begins after all steps that this one has waited for."""
        after = self._settle()
        return Branch(self, after, after)

    def add(self, step: int) -> Sequence[int]:
        """Add a step, and return the steps that it follows."""
        follows, self._after = self._settle(), (step,)
        return follows

    @property
    def latest(self) -> int:
        """The last step of this part, or of those that it has waited for; 0 before the first one."""
        return max(self.last_decision, *self._settle(), 0)

    def end(self) -> None:
        """Note that the task has ended: the next step of the part that has started it follows its steps."""
        self._settle()
        self._has_ended = True
        parent = self.parent
        while parent is not None and parent._has_ended:
            parent = parent.parent
        if parent is not None:
            parent._ended.append(self)

    def _settle(self) -> Sequence[int]:
        """Return the steps that the next step follows: the last ones of this part, and of its parts that have ended."""
        if ended := [each for each in self._ended if each._after is not each.began_after]:
            followed = {step for each in ended for step in each.began_after}
            own = [step for step in self._after if step not in followed]
            self._after = [*dict.fromkeys([*own, *(step for each in ended for step in each._after)])]
        self._ended.clear()
        return self._after


_BRANCH: ContextVar[Branch | None] = ContextVar("branch", default=None)


def begin_question() -> Branch:
    """Make the current task the first part of a question, and return it."""
    branch = Branch()
    _BRANCH.set(branch)
    return branch


def current() -> Branch | None:
    """Return the part that the current task runs; None outside of a question."""
    return _BRANCH.get()


@contextmanager
def tasks_as_parts() -> Iterator[None]:
    """Make each task that the current event loop starts a part of the question of the task that starts it."""
    loop = asyncio.get_running_loop()
    before = loop.get_task_factory()
    loop.set_task_factory(_make_task)
    try:
        yield
    finally:
        if loop.get_task_factory() is _make_task:
            loop.set_task_factory(before)


def _make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, /, **options: Any) -> asyncio.Task[Any]:
    branch, given = _BRANCH.get(), options.get("context")
    if branch is None:
        return asyncio.Task(coroutine, loop=loop, **options)
    part, context = branch.part(), copy_context() if given is None else given.copy()
    context.run(_BRANCH.set, part)
    task = asyncio.Task(coroutine, loop=loop, **{**options, "context": context})
    task.add_done_callback(lambda _: part.end())
    return task
