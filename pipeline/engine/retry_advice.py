"""What to do about failed and open questions, for messages. It imports nothing that a run names: it may be foreign."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from pipeline.config import shell_override
from pipeline.errors import ContextOverflow, Unanswerable
from pipeline.imports import is_own
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import FailedRows

_TOO_LONG = f"{ContextOverflow.__name__}:"
RESTART = "run.restart=true deletes its results and starts again"

TOO_LONG = (
    "a prompt that is longer than the model's context (ContextOverflow) is as long with run.retry_failed=true: use a "
    "model with a longer context, or keys of the method that make prompts shorter"
)
"""What to do where `run.retry_failed` does not help."""


def is_too_long(failed: FailedRows) -> bool:
    """Whether these rows failed because of a prompt that is too long: `TOO_LONG` is about them."""
    return failed.error.startswith(_TOO_LONG)


def is_final(failed: FailedRows) -> bool:
    """Whether these rows would fail again, as the model can never answer their calls."""
    return failed.error.startswith((_TOO_LONG, f"{Unanswerable.__name__}:"))


def with_new_folder(run: object) -> str:
    """Return what to do with answers that do not belong to a command, if another run may take over their calls.

    It never takes those of a journal.
    """
    reuse = shell_override("run.reuse", [str(run)])
    return f"{RESTART}; another run.dir with {reuse} takes over the calls of its finished shards that stay the same"


def restart_search(search: RunFolder) -> str:
    """Return what to do with the batches of a search that do not belong to a command."""
    runs = list(map(str, [search.path, *search.batches()]))
    return (
        f"run.restart=true deletes all batches of the search in {search.path} and starts again; another run.dir with "
        f"{shell_override('run.reuse', runs)} takes over the calls of their finished shards that stay the same"
    )


def can_retry(
    configs: Sequence[Mapping[str, Any]],
    head: Mapping[str, Any],
    counts: Iterable[tuple[int, int]],
    search: RunFolder | None,
) -> bool:
    """Whether `run.retry_failed=true` is taken for a run whose methods are as they were.

    The arguments are those of `retry_refusals`.
    """
    has_decided = _has_early_stopping(configs[0]) or search is not None
    return not (has_decided or _is_refused_for_version(head, *_totals(counts)))


def retry_in_search(run: object, search: RunFolder) -> str:
    """Say that the failed questions of a run are not asked again, because a search has chosen by its scores."""
    return (
        f"run.retry_failed=true is refused for {run}: its search has chosen later configurations by the scores as they "
        f"are. Without it, the same command goes on. Or: {restart_search(search)}"
    )


def begun_by_other(head: Mapping[str, Any]) -> str:
    """Return the other version of the project that began a run, which this one does not continue; empty if none did.

    `head` is as for `retry_refusals`.
    """
    before = head.get("versions", {}).get("kgqa-pipeline")
    return f"kgqa-pipeline {before}" if "id" in head and before != version("kgqa-pipeline") else ""


def _is_refused_for_version(head: Mapping[str, Any], failed: int, asked: int) -> bool:
    return 0 < failed < asked and bool(begun_by_other(head))


def _totals(counts: Iterable[tuple[int, int]]) -> tuple[int, int]:
    failed, asked = map(sum, zip(*counts, strict=True))
    return failed, asked


def _has_early_stopping(resolved: Mapping[str, Any]) -> bool:
    return bool(resolved["run"].get("early_stopping"))


def retry_refusals(
    run: object,
    configs: Sequence[Mapping[str, Any]],
    head: Mapping[str, Any],
    counts: Iterable[tuple[int, int]],
    search: RunFolder | None,
) -> list[str]:
    """Return when `run.retry_failed=true` is refused, and what to do then; nothing if no question failed.

    A run without an answer may be begun again in its folder, so nothing is refused there, unless it is a sweep with
    `run.early_stopping` or a search has gone on from its scores.

    Args:
        run: The run folder, or a word that stands for it.
        configs: The resolved configurations.
        head: `id` and `versions` of `run.yaml`; without `id`, no version is compared.
        counts: The failed and the asked questions of each configuration.
        search: `RunFolder.deciding_search`.
    """
    failed, asked = _totals(counts)
    if failed and _has_early_stopping(configs[0]):
        return [f"run.retry_failed=true is refused for {run}, whose run.early_stopping has decided: start a new run"]
    if failed and search:
        return [retry_in_search(run, search)]
    if not 0 < failed < asked:
        return []
    if _is_refused_for_version(head, failed, asked):
        return [f"{begun_by_other(head)} began {run}, so run.retry_failed=true is refused: {with_new_folder(run)}"]
    methods = (str(each["method"].get("_target_")) for each in configs)
    own = dict.fromkeys(method for method in methods if not is_own(method))
    return [f"after an edit of {method}, run.retry_failed=true is refused: {with_new_folder(run)}" for method in own]
