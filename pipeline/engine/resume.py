"""Decides whether the results in a run folder still belong to the command: same keys, code, questions and backends.

What was computed from other data or other code is refused with a sentence that names the difference. Only new gold
answers and labels are taken over: they need no call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

import polars as pl

from pipeline import config
from pipeline.console import Console
from pipeline.datasets.subsample import stratified_order
from pipeline.engine.components import Backends
from pipeline.engine.dataset_changes import (
    DatasetChanges,
    extension,
    find_changes,
    no_extension,
    read_origins,
)
from pipeline.engine.gold_changes import renew_rows
from pipeline.engine.rejections import rows_sentence
from pipeline.engine.retry_advice import RESTART, restart_search, with_new_folder
from pipeline.engine.shard import Part, shards
from pipeline.engine.sources import edited_with_method, model_sources, project_sources, user_sources
from pipeline.errors import ServiceError, UserError
from pipeline.evaluation.configuration_summary import differing_overrides
from pipeline.llm.interface import replies_from_gold
from pipeline.text import counted
from pipeline.traces.folder import RunFolder
from pipeline.traces.reader import read_shards
from pipeline.traces.storage import storage_path
from pipeline.types import Rejected

Configs = Sequence[Mapping[str, Any]]
"""The resolved configurations of a run."""
_NAMED = 6
"""Differences between two runs that a message names."""


def refuse_other_configurations(folder: RunFolder, saved: Mapping[str, Any], configs: Configs) -> None:
    """Raise UserError if the run folder holds a run of other keys."""
    before = [point["config"] for point in saved["points"]]
    if len(before) != len(configs):
        counts = f"{counted(len(before), 'configuration')}, not {len(configs)}"
        raise UserError(f"{folder.path} holds a run of {counts}. {ways_out(folder)}")
    pairs = list(zip(before, configs, strict=True))
    drifted = list(dict.fromkeys(line for old, new in pairs for line in _differences(old, new)))
    if drifted and sorted(map(config.identity_hash, before)) == sorted(map(config.identity_hash, configs)):
        own = differing_overrides([point["overrides"] for point in saved["points"]])
        order = "; ".join([*map(" ".join, own[:_NAMED]), *(["…"] if len(own) > _NAMED else [])])
        said = "holds these configurations in another order: give the values in that order"
        raise UserError(f"{folder.path} {said}, which is {order}")
    if drifted:
        rest = [f"and {len(drifted) - _NAMED} more"] if len(drifted) > _NAMED else []
        listed = "; ".join([*drifted[:_NAMED], *rest])
        raise UserError(f"{folder.path} holds another run. What differs: {listed}. {ways_out(folder)}")
    hindrance = no_extension(configs)
    for old, new in pairs:
        changed = config.drift(old, new)
        may_extend = asks_more(old, new) and not hindrance
        if changed and not (may_extend and new["run"]["extend"]):
            more = extension(hindrance) if asks_more(old, new) else ""
            raise UserError(f"{folder.path} asked another number of questions: {changed[0]}. {more}{ways_out(folder)}")


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return `key: old → new` for what differs, other than the number of questions.

    The keys of a method, a model, … that was replaced whole are left out.
    """
    drifted = config.drift(old, {**new, "run": {**new["run"], "limit": old["run"]["limit"]}})
    sections = {line.partition("._target_: ")[0] for line in drifted if "._target_: " in line}
    replaced = sorted(sections & old["choices"].keys())
    chosen = [f"{section}: {old['choices'][section]} → {new['choices'][section]}" for section in replaced]
    return [*chosen, *(line for line in drifted if line.partition(".")[0] not in replaced)]


def asks_more(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether a configuration asks the questions of an earlier one, and further ones: a higher `run.limit`."""
    old, new = before["run"]["limit"], now["run"]["limit"]
    return old is not None and (new is None or new > old)


def refuse_other_code(folder: RunFolder, saved: Mapping[str, Any], configs: Configs, version: str | None) -> None:
    """Raise UserError if the project has another version now, or the user's own code has another source."""
    if "id" not in saved:  # a run of an older version, which did not record its code
        return
    if (before := saved["versions"]["kgqa-pipeline"]) != version:
        raise UserError(f"{folder.path} was begun by kgqa-pipeline {before}, and this is {version}. {ways_out(folder)}")
    for point, now in zip(saved["points"], configs, strict=True):
        if changed := changed_sources(point, now):
            ways = ways_out(folder, keeps_calls=not _changed_models(_digests(saved["points"], "models"), now))
            retried = ", so run.retry_failed=true would mix the answers of both" if now["run"]["retry_failed"] else ""
            raise UserError(f"the source of {changed[0]} has changed since {folder.path} was begun{retried}. {ways}")


def changed_sources(point: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the classes of a configuration whose source is another one than a `point` of `run.yaml` has recorded."""
    sources = point.get("sources", {})
    changed = [name for name, digest in user_sources(now).items() if sources.get(name) != digest]
    for name, digest in project_sources(now).items():
        if sources.get(name, digest) != digest:  # older runs did not record it
            changed.append(f"{name}, or one of its prompts,")
    return changed


def edited_sources(point: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return `changed_sources` of a configuration that may be wrong; empty if one of its classes cannot be imported."""
    try:
        return changed_sources(point, now)
    except (ImportError, AttributeError, SyntaxError, ValueError):
        return []


def has_answers(folder: RunFolder) -> bool:
    """Whether the folder holds a question that did not fail, or a model call of an open shard. Raises UserError."""
    if folder.journal_calls():
        return True
    rows = read_shards(folder, ["status"], indices=sorted(folder.finished()))
    return any((shard["status"] != "failed").any() for shard in rows)


def has_results(folder: RunFolder) -> bool:
    """Whether the folder holds an answer, or a reply of a model to a question that failed. Raises UserError."""
    return has_answers(folder) or _has_replies(folder)


def _has_replies(folder: RunFolder) -> bool:
    tokens = pl.col("steps").struct.field("prompt_tokens")  # of a call that failed there are none
    rows = read_shards(folder, ["steps"], indices=sorted(folder.finished()))
    return any(shard.explode("steps").select(tokens.is_not_null().any()).item() for shard in rows)


def check_reuse(configs: Configs) -> list[str]:
    """Raise UserError if what answered the calls of a run in `run.reuse` or `llm.run` has another source now.

    A changed method is no hindrance: the key of a call has its prompt. Returns a sentence for each method that has
    changed.
    """
    remarks: dict[str, None] = {}
    for key, run in replayed_runs(configs):
        points = (RunFolder(storage_path(run)).read_run() or {"points": []})["points"]
        models, sources = _digests(points, "models"), _digests(points, "sources")
        for now in configs:
            if stale := _changed_models(models, now):
                raise UserError(
                    f"{key}={run}: the source of {stale[0]} has changed since, so its replies would be those of "
                    f"the old source: leave this run out of {key}"
                )
            method = str(now["method"]["_target_"])
            digest = {**user_sources(now), **project_sources(now)}[method]
            if sources.get(method, digest) != digest:
                said = f"the source of {method} has changed since: only calls with an unchanged prompt are taken over"
                remarks[f"{key}={run}: {said}"] = None
    return list(remarks)


def replayed_runs(configs: Configs) -> list[tuple[str, str]]:
    """Return the earlier runs whose calls a run takes over, each once, with the key that names it."""
    return list(dict.fromkeys(chain.from_iterable(map(_replayed, configs))))


def _replayed(now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the earlier runs whose calls a configuration takes over, each with the key that names it."""
    yield from (("run.reuse", run) for run in now["run"]["reuse"])
    if now["llm"]["_target_"].endswith(".Replay"):
        yield "llm.run", str(now["llm"]["run"])


def _changed_models(models: Mapping[str, str], now: Mapping[str, Any]) -> list[str]:
    """Return what answers the prompts and has another source than in `models`, the digests of an earlier run.

    The key of a call names the model, and not its source: a changed simulator would repeat its old replies.
    """
    changed = [name for name, digest in model_sources(now).items() if models.get(name, digest) != digest]
    return [name for name in changed if name not in edited_with_method(now)]


def _digests(points: Sequence[Mapping[str, Any]], key: str) -> dict[str, str]:
    """Return the digests that the configurations of a run have under a key of `run.yaml`; older runs have none."""
    return dict(chain.from_iterable(point.get(key, {}).items() for point in points))


def refuse_other_backends(folder: RunFolder, saved: Mapping[str, Any], backends: Sequence[Backends]) -> None:
    """Raise UserError unless the models and the graphs are those that the run began with."""
    for before, now in zip(saved["served"], backends, strict=True):
        for name, value in asdict(now).items():
            _refuse_other(folder, name, before.get(name), value, before["label"])


async def refuse_other_models(folder: RunFolder, saved: Mapping[str, Any], configs: Configs, console: Console) -> None:
    """Raise UserError unless the models that run in this process are those that a finished run began with.

    Models behind servers are not compared: the servers may be gone. A model that cannot be opened is reported.
    """
    sections = {config.canonical(keys): keys for each in configs for keys in config.models(each["llm"]).values()}
    try:
        identities = {key: await _identity_in_process(keys) for key, keys in sections.items()}
    except (ServiceError, UserError) as error:
        console.print(f"the model could not be compared: {error}", markup=False, soft_wrap=True)
        return
    for before, now in zip(saved["served"], configs, strict=True):
        for role, keys in config.models(now["llm"]).items():
            if identity := identities[config.canonical(keys)]:
                began_with = before["model"] if role is None else before.get("roles", {}).get(role, identity)
                _refuse_other(folder, "model", began_with, identity, before["label"])


async def _identity_in_process(keys: Mapping[str, Any]) -> str | None:
    """Return the identity of a model that runs in this process; None for one behind a server."""
    model = config.build("llm", {"llm": keys})
    if getattr(model, "starts_servers", False) or hasattr(type(model), "server_stats"):
        return None
    async with model as opened:
        return str(opened.identity)


async def refuse_other_graphs(folder: RunFolder, saved: Mapping[str, Any], configs: Configs, console: Console) -> None:
    """Raise UserError unless the graphs of a finished run are those that it began with.

    Only the graphs are opened. One that does not answer is reported: the results can still be printed.
    """
    fingerprints: dict[str, str] = {}
    for before, now in zip(saved["served"], configs, strict=True):
        key = config.canonical(now["kg"])
        if key not in fingerprints:
            try:
                async with config.build("kg", now) as graph:
                    fingerprints[key] = graph.fingerprint
            except (ServiceError, UserError) as error:  # no server answers
                console.print(f"the graph could not be compared: {error}", markup=False, soft_wrap=True)
                return
        _refuse_other(folder, "graph", before["graph"], fingerprints[key], before["label"])


def _refuse_other(folder: RunFolder, what: str, before: object, now: object, label: str | None) -> None:
    """Raise UserError unless a part of a run is the one that it began with. `label` is that of the run's model."""
    if before != now:
        ways = ways_out(folder, keeps_calls=not (what == "graph" and replies_from_gold(label)))
        facts = ", which has other facts" if what == "graph" else ""
        raise UserError(f"{folder.path} began with the {what} {before}, but now it is {now}{facts}. {ways}")


def unchanged_shards(
    folder: RunFolder, saved: Mapping[str, Any], finished: set[int], parts: Sequence[Part], configs: Configs
) -> tuple[set[int], DatasetChanges]:
    """Compare the dataset with the finished shards, and return those that stay finished, and how the dataset differs.

    Raises UserError if results do not belong to the dataset.
    """
    run, size = configs[0]["run"], configs[0]["engine"]["shard_size"]
    origins = read_origins(folder, finished, saved.get("id"))
    if not origins:
        return finished, DatasetChanges()
    order = (lambda examples: iter(stratified_order(list(examples)))) if run["early_stopping"] else iter
    summary = folder.read_summary()
    asked = {index: point["questions"] for index, point in enumerate(summary["points"])} if summary else None
    unreadable: list[Rejected] = []
    today = shards(parts, unreadable.append, size=size, order=order)
    may_read_labels, selections = any(map(_may_read_labels, configs)), [part.selection for part in parts]
    changes = find_changes(origins, today, asked=asked, may_read_labels=may_read_labels, selections=selections)
    try:
        changes.refuse(
            folder,
            ways_out(folder),
            extend=run["extend"],
            hindrance=no_extension(configs),
            has_early_stopping=bool(run["early_stopping"]),
        )
    except UserError as error:
        raise (UserError(f"{rows_sentence(unreadable)}. {error}") if unreadable else error) from None
    return finished - changes.grown, changes


def _may_read_labels(now: Mapping[str, Any]) -> bool:
    """Whether the method or a simulator is the user's own: those of the project read no labels of questions."""
    return not user_sources(now).keys().isdisjoint([now["method"]["_target_"], *(now["llm"].get("simulators") or ())])


def score_again(folder: RunFolder, saved: Mapping[str, Any], changes: DatasetChanges, first: Mapping[str, Any]) -> None:
    """Score the shards again whose gold answers or labels have changed."""
    scoring = config.build("evaluation", first)
    for index, origin in read_origins(folder, set(changes.renewed), saved.get("id")).items():
        renew_rows(folder, origin, changes.renewed[index], scoring)


def ways_out(folder: RunFolder, *, keeps_calls: bool = True) -> str:
    """Return the sentence about what to do with results that do not belong to the command.

    `keeps_calls` is whether `run.reuse` accepts the calls of finished shards.
    """
    if keeps_calls and (search := folder.search) and folder.is_batch:
        others = "A search asks for other configurations if its scores have changed, as by new gold answers"
        return f"{others}: {restart_search(RunFolder(search))}"
    if keeps_calls and folder.batches():
        return restart_search(folder)
    if not folder.finished():
        return f"{RESTART}; without this change, the run goes on with the calls that it has made"
    if not keeps_calls:
        return f"{RESTART}; another run.dir keeps them, and makes every call again"
    open_calls = folder.journal_calls()
    again = f"; {counted(open_calls, 'call')} of unfinished shards would be made again: to keep them, undo the change"
    return f"{with_new_folder(folder.path)}{again if open_calls else ''}"
