"""Stops a run whose first rows all fail with the same error, as all others would (`run.max_equal_failures`)."""

from __future__ import annotations

from pipeline.engine.worker_reports import FinishedRows
from pipeline.errors import UserError
from pipeline.text import counted


class EqualFailures:
    """Checks the finished rows of a run."""

    def __init__(self, most: int | None) -> None:
        """Stop the run after `most` rows if all have failed with one error; None never stops it."""
        self._most = most
        self.error = ""
        """Why the run was stopped, with the traceback; empty if it was not."""

    def check(self, rows: FinishedRows) -> None:
        """Raise UserError if these rows, all that have finished so far, have failed with one error."""
        if self._most is None or not self._most <= rows.failed == rows.questions or len(rows.errors) > 1:
            return
        (details,) = rows.errors.values()
        said = (
            f"the first {counted(self._most, 'question')} all failed with the same error "
            "(run.max_equal_failures=null goes on):"
        )
        self.error = f"{said}\n{details}"
        *traceback, error = details.splitlines()
        where = "; stopped.txt in the run folder has the traceback" if traceback else ""
        raise UserError(f"{said} {error}{where}")
