"""Stops a run whose questions fail again and again, as all others would (`run.max_equal_failures`).

Either the first ones all fail with the same kind of error, or because of servers, or a server does not come back. Then
nearly all fail: a few need no server.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping

from pipeline.engine.worker_reports import FinishedRows
from pipeline.errors import Outage, RequestRefused, ServiceError, Unanswerable, UserError
from pipeline.text import counted, counted_questions

_OUTAGE_S = 300.0
"""Seconds during which nearly all questions fail because of a server until the run stops. A restart takes less."""
_OTHERS = 0.1
"""Other questions for each one that fails because of a server, up to which an outage goes on: they need no server, as
what they ask for is in a cache."""
_ANNOUNCED = 5
"""Questions of an outage that fail before this is said."""
_REFUSED = f"{RequestRefused.__name__}:"
"""The beginning of an error with which servers refuse a request, each perhaps in other words."""
_OUTAGE = (f"{ServiceError.__name__}:", _REFUSED)
"""The beginnings of an error that may be gone when a server is up again, or takes requests again."""
_UNANSWERABLE = f"{Unanswerable.__name__}:"
"""The beginning of an error with which a model says that it can never answer a call, each perhaps in other words."""
_NEVER = "(run.max_equal_failures=null goes on)"
_WHEN_BACK = "When it answers again, or takes requests again, the same command goes on"
_RETRIES = ", and run.retry_failed=true asks the failed questions again"


class RepeatedFailures:
    """Checks the finished rows of a run."""

    def __init__(
        self,
        most: int | None,
        *,
        questions: int | None = None,
        configurations: int = 1,
        may_retry: bool = True,
        is_resumed: bool = False,
    ) -> None:
        """Stop the run if all rows have failed with one error, or because of servers, those of `most` questions.

        None never stops it. A question has a row for each of the `configurations`: one bad question fails in all of
        them. `questions` are how many will be asked, if that is known. `may_retry` is whether `run.retry_failed=true`
        is allowed. `is_resumed` is whether earlier attempts have answered questions: only those of this attempt are
        counted.
        """
        self._attempt = " of this attempt" if is_resumed else ""
        self._most = most
        self._may_reach_most = most is not None and (questions is None or questions >= most)
        self._configurations = configurations
        self._when_back = f"{_WHEN_BACK}{_RETRIES if may_retry else ''}"
        self._questions = self._failed = 0
        self._failing: frozenset[tuple[str, str, str]] = frozenset()
        """Those of the first rows, as `FinishedRows.failing`."""
        self._errors: dict[str, str] = {}
        """Those of the first rows, as `FinishedRows.errors`."""
        self._is_announced = False
        """Whether it was said that an outage has begun."""
        self._failed_in_outage = 0
        """Rows that have failed because of a server, since an outage began."""
        self._outage_began_s = 0.0
        """On the clock of `time.monotonic`."""
        self._lately: deque[tuple[float, int, int]] = deque()
        """The latest rows of an outage: when, how many failed because of a server, and how many others there were."""
        self.error = ""
        """Why the run was stopped, with the traceback; empty if it was not."""

    def check(self, new: FinishedRows) -> str | None:
        """Add rows that have finished. Return a sentence when an outage begins. Raises UserError to stop the run."""
        if self._most is None or not new.questions:
            return None
        self._count(new)
        self._count_outage(new)
        cause = self._common_cause
        if cause and self._most <= len(self._failing):
            is_outage = all(kind.startswith(_OUTAGE) and not kind.startswith(_REFUSED) for kind in self._errors)
            said = f"the first {counted(self._most, 'question')}{self._attempt} to finish all failed {cause} {_NEVER}:"
            self._stop(said, self._errors, Outage if is_outage else UserError)
        is_long = time.monotonic() > self._outage_began_s + _OUTAGE_S
        if self._failed_in_outage >= self._most and is_long and _failed_by_servers(new):
            nearly = "nearly " if any(others for _, _, others in self._lately) else ""
            outage = f"for {_OUTAGE_S / 60:.0f} minutes, {nearly}all questions have failed because of a server {_NEVER}"
            self._stop(f"{outage}. {self._when_back}:", new.errors, Outage)
        if self._is_announced or not _failed_by_servers(new):
            return None
        if cause and len(self._failing) >= _ANNOUNCED:
            self._is_announced = True
            failed = f"{counted(len(self._failing), 'question')}{self._attempt} failed {cause}"
            limit = f": if the first {self._most} do, the run stops" if self._may_reach_most else ""
            return f"the first {failed}{limit} ({_last_line(new)})"
        if not cause and self._failed_in_outage >= _ANNOUNCED:
            self._is_announced = True
            failed = f"{counted_questions(self._failed_in_outage, self._configurations)} failed"
            limit = f"if nearly all fail for {_OUTAGE_S / 60:.0f} minutes, the run stops"
            return f"the last {failed} because of a server: {limit} ({_last_line(new)})"
        return None

    @property
    def _common_cause(self) -> str:
        """Why all questions of the run so far have failed; empty if one has not, or if they have several causes."""
        if self._failed < self._questions:
            return ""
        if len(self._errors) == 1:
            return "with the same kind of error"
        if all(kind.startswith(_REFUSED) for kind in self._errors):
            return "because the servers refuse their requests"
        if all(kind.startswith(_UNANSWERABLE) for kind in self._errors):
            return "because the model cannot answer their calls"
        return "because of a server" if all(kind.startswith(_OUTAGE) for kind in self._errors) else ""

    def _count(self, new: FinishedRows) -> None:
        self._questions += new.questions
        self._failed += new.failed
        if self._failed == self._questions:
            self._errors |= new.errors
            self._failing |= new.failing

    def _count_outage(self, new: FinishedRows) -> None:
        now, failed = time.monotonic(), _failed_by_servers(new)
        if not self._failed_in_outage:
            self._outage_began_s = now
            self._lately.clear()
        self._failed_in_outage += failed
        self._lately.append((now, failed, new.questions - failed))
        while self._lately[0][0] < now - _OUTAGE_S:
            self._lately.popleft()
        if sum(others for _, _, others in self._lately) > _OTHERS * sum(failed for _, failed, _ in self._lately):
            self._failed_in_outage, self._is_announced = 0, False

    def _stop(self, said: str, errors: Mapping[str, str], kind: type[UserError] = UserError) -> None:
        details = next(iter(errors.values()))
        self.error = f"{said}\n{details}"
        *traceback, error = details.splitlines()
        where = "; stopped.txt in the run folder has the traceback" if traceback else ""
        raise kind(f"{said} {error}{where}")


def _last_line(rows: FinishedRows) -> str:
    return next(iter(rows.errors.values())).splitlines()[-1]


def _failed_by_servers(rows: FinishedRows) -> int:
    """Return how many of the rows have failed, if all that did failed because of a server, else 0."""
    return rows.failed if all(kind.startswith(_OUTAGE) for kind in rows.errors) else 0
