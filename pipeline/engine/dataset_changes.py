"""Compares a dataset with the questions that a run has answered, so that no result outlives its data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pipeline.config import canonical
from pipeline.datasets.selection import Selection
from pipeline.engine.shard import Shard
from pipeline.errors import UserError
from pipeline.text import counted
from pipeline.traces.folder import RunFolder
from pipeline.traces.origin import QuestionDigest, ShardOrigin
from pipeline.traces.reader import open_shards
from pipeline.types import Example


@dataclass
class DatasetChanges:
    """How a dataset differs from the finished shards of a run."""

    edited: list[str] = field(default_factory=list)
    """Ids of answered questions that have changed."""
    moved: list[str] = field(default_factory=list)
    """Ids of answered questions that are as they were, in another place."""
    is_inserted: bool = False
    """Whether questions have only moved back, in their order, because other questions now stand before them."""
    gone: list[str] = field(default_factory=list)
    """Ids of answered questions that the dataset has no more, or that are no longer among those that a run selects."""
    selects: bool = False
    """Whether the run asks only some questions: `run.limit` or `run.sample` is set."""
    added: int = 0
    """Number of questions that a complete run has not asked."""
    grown: set[int] = field(default_factory=set)
    """Finished shards that have more questions now."""
    renewed: dict[int, list[Example]] = field(default_factory=dict)
    """Shard → the questions of which only the gold answers or the labels have changed, with those of today."""
    gold: int = 0
    """Number of these with other gold answers."""
    labels: int = 0
    """Number of these with other labels."""

    def refuse(
        self, folder: RunFolder, ways_out: str, *, extend: bool, hindrance: str, has_early_stopping: bool
    ) -> None:
        """Raise UserError if the results of the run are not those of the dataset.

        `extend` allows added questions, unless there is a `hindrance`, a sentence of `no_extension`.
        """
        if self.is_inserted and not hindrance:
            answers = f"{'a higher run.limit with ' if self.selects else ''}run.extend=true answers"
            raise UserError(
                f"the dataset has new questions before {self.moved[0]}, which {folder.path} has answered in another "
                f"place ({len(self.moved):,} moved): put the new ones at the end, where {answers} them. Or: {ways_out}"
            )
        asked = "among the questions that run.limit or run.sample selects" if self.selects else "in the dataset"
        differing = {"changed": self.edited, f"no longer {asked}": self.gone, "moved": self.moved}
        if named := [
            f"{what}: {counted(len(ids), 'question')}, the first is {ids[0]}" for what, ids in differing.items() if ids
        ]:
            why = hindrance if self.moved and not has_early_stopping else ""
            raise UserError(f"{folder.path} holds answers to other questions ({'; '.join(named)}). {why}{ways_out}")
        if self.gold and has_early_stopping:
            raise UserError(
                f"the gold answers of {counted(self.gold, 'question')} have changed since {folder.path} was begun, and "
                f"run.early_stopping has decided by the old ones which configurations answer all questions. {ways_out}"
            )
        if (self.added or self.grown) and (hindrance or not extend):
            more = f"the dataset has more questions than {folder.path} has answered"
            raise UserError(f"{more}: {extension(hindrance)}{ways_out}")


def no_extension(configs: Sequence[Mapping[str, Any]]) -> str:
    """Say why a run of these configurations cannot answer further questions; empty if it can."""
    if configs[0]["run"]["early_stopping"]:
        return "run.early_stopping asks the questions in an order of its own, so its run cannot be extended. "
    asked = {canonical([each["dataset"], asdict(Selection.of_run(each["run"]))]) for each in configs}
    if len(asked) > 1:
        return "its configurations do not all ask the same questions, so the run cannot be extended. "
    return ""


def extension(hindrance: str) -> str:
    """Return the beginning of the advice: how the run answers further questions, or why it cannot."""
    return hindrance or "run.extend=true answers them, too. Or: "


def read_origins(folder: RunFolder, finished: Collection[int], run: str | None) -> dict[int, ShardOrigin]:
    """Return the origins of finished shards. Raises UserError naming a shard that is not this run's.

    `run` is the id of the run; None for a run of an older version, whose shards name no origin.
    """
    if run is None:
        return {}
    shards = open_shards(folder, sorted(finished), run=run)
    return {index: shard.origin for index, shard in shards if shard.origin is not None}


def find_changes(
    origins: Mapping[int, ShardOrigin],
    shards: Iterable[Shard],
    *,
    asked: Mapping[int, int] | None,
    may_read_labels: bool,
    selections: Collection[Selection],
) -> DatasetChanges:
    """Compare the shards of today's dataset with the origins of the finished ones.

    `asked` is the number of questions of each configuration when the run was complete; None if it never was.
    `may_read_labels` is whether a method may have read the labels of a question. If so, a question with other labels
    counts as changed.
    """
    changes = DatasetChanges(selects=any(not each.is_whole for each in selections))
    left = dict(origins)
    differing: list[str] = []
    asked_now: set[str] = set()
    later: dict[str, str] = {}
    total: Counter[tuple[int, ...]] = Counter()
    for shard in shards:
        total[shard.configurations] += len(shard.examples)
        asked_now |= {example.question.id for example in shard.examples}
        origin = left.pop(shard.index, None)
        if origin is not None:
            differing += _compare(origin, shard, changes, may_read_labels=may_read_labels)
        if differing:
            later |= {each.id: each.question for each in map(QuestionDigest.of, shard.examples)}
    differing += [question.id for origin in left.values() for question in origin.questions]
    answered = {each.id: each.question for origin in origins.values() for each in origin.questions}
    for id in dict.fromkeys(differing):
        if id not in asked_now:
            changes.gone.append(id)
        elif later.get(id) == answered[id]:
            changes.moved.append(id)
        else:
            changes.edited.append(id)
    tail = [*answered][len(answered) - len(changes.gone) :] if all(each.is_first for each in selections) else []
    changes.is_inserted = not left and _have_moved_back(changes, later, tail)
    if asked is not None:  # early stopping has dropped some of the configurations, and never all
        most = {each: max(asked[configuration] for configuration in each) for each in total}
        changes.added = sum(max(0, count - most[each]) for each, count in total.items())
    return changes


def _have_moved_back(changes: DatasetChanges, later: Collection[str], tail: Sequence[str]) -> bool:
    """Whether questions have moved, in their order, and none has changed or is gone, but those moved past `run.limit`.

    `later` holds the ids of the dataset's questions from the first difference on, in their order, and `tail` those of
    the last answered ones.
    """
    if changes.edited or changes.gone != tail or not changes.moved:
        return False
    moved = set(changes.moved)
    return [id for id in later if id in moved] == changes.moved


def _compare(origin: ShardOrigin, shard: Shard, changes: DatasetChanges, *, may_read_labels: bool) -> Iterator[str]:
    """Yield the ids of answered questions that changed, moved or vanished. Add new gold and labels to `changes`."""
    now = list(map(QuestionDigest.of, shard.examples))
    yield from (question.id for question in origin.questions[len(now) :])
    if len(now) > len(origin.questions):
        changes.grown.add(shard.index)
    for before, after, example in zip(origin.questions, now, shard.examples, strict=False):
        relabelled = not may_read_labels and before.differs_in_labels(after)
        if before.id != after.id or (before.question != after.question and not relabelled):
            yield before.id
        elif relabelled or before.gold != after.gold:
            changes.renewed.setdefault(shard.index, []).append(example)
            changes.labels += relabelled
            changes.gold += before.gold != after.gold
