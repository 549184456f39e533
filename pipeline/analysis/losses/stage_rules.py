"""Finds the stage, the step and the reason for which a wrong question lost its answer, from its trace row alone.

A gold answer passes the stages hop by hop along a gold path. The loss is where the attempt that came furthest ended:
dead ends that a method recovered from do not count. Everything is read from the `trail` of the row, which the engine
writes for every method in the same way (`pipeline.traces.trail`). So a new method needs no change here, but it has to
record `kept` and `cut`, or else the model counts as the cause of its losses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import Any

from pipeline.analysis.losses.search_rules import SearchRules
from pipeline.analysis.losses.stage_names import Loss, Stage
from pipeline.analysis.losses.traced_question import NOT_EXPLORED, Event
from pipeline.normalisation import normalise

_FEW_WORDS = 5
"""By how many words an answer that is nearly right may differ in length from a gold answer."""

LOSS_COLUMNS = (
    *("question_id", "method", "status", "hits_at_1", "hits_any"),
    *("answers", "answer_ids", "gold", "gold_ids", "gold_aliases"),
    *("followed_relations", "topic_entities", "gold_paths"),
    *("trail", "steps", "at_limit"),
)
"""The columns of a trace row from which its loss is found."""


def find_loss(row: Mapping[str, Any]) -> Loss | None:
    """Return where a question lost its answer; None if its first answer is right, or it has no gold answers.

    `row` holds the `LOSS_COLUMNS`.
    """
    if row["hits_at_1"] is None or row["hits_at_1"] >= 1:
        return None
    if row["trail"] is None:
        return Loss("unknown", "old trace")
    question = _Question(row)
    loss = question.search_loss() or question.evidence_loss() or question.answer_loss()
    if row["status"] == "failed":
        return Loss(loss.stage, "error", question.last_step)  # wherever the search stood, the cause is the same
    return loss


class _Question(SearchRules):
    """From a gold answer that was found to the score."""

    def evidence_loss(self) -> Loss | None:
        """Return the loss of a gold answer that was found and is not in the prompt of the answering call."""
        found = self._of("found")
        if not found or self._row["hits_any"]:  # a gold answer that was given, though not as the first one, was found
            return None
        shown = [event for event in self._of("shown") if event.at > found[0].at]
        if not shown and (unnamed := self._of("unnamed")) and unnamed[-1].number:
            return Loss("shown", "graph", unnamed[-1].step)
        if len(self._row["topic_entities"] or ()) > 1 and (loss := self._side_loss(found)):
            return loss
        if self._is_counted:
            return self._count_loss(found[0])
        is_shown = any(event.step in self._answering for event in shown) or not self._answering
        return None if is_shown else self._unshown_loss(found, shown)

    def _unshown_loss(self, found: Sequence[Event], shown: Sequence[Event]) -> Loss:
        """Return the loss of a gold answer that the answering call did not see; other calls may have been shown it."""
        cut = [event for event in self._of("cut") if event.at > found[0].at and event.by not in NOT_EXPLORED]
        kept = [event for event in self._of("kept") if event.at > found[0].at]
        if self._acting:  # a reflection of an agent reads what a limit kept from its actions, and drops nothing
            shown = [event for event in shown if event.step in self._acting]
        if cut and (not shown or cut[-1].at > shown[-1].at):
            stage: Stage = "shown" if cut[-1].by == "evidence" else "node kept"
            return Loss(stage, *self._cause_of(cut[-1], max(event.step for event in found if event.at < cut[-1].at)))
        if kept and not any(event.number for event in kept):
            call = self._call_in(found[0].step, kept[0].step)
            call = self._call_before(found[0].step) if call is None else call  # a plan decided before the lookup
            return Loss("node kept", self._model_reason(call), found[0].step if call is None else call)
        if not shown:
            is_ended = any(event.at > found[-1].at and event.by == "depth" for event in self._of("cut"))
            call = None if self._at_limit or is_ended else self._call_after(found[-1].step)
            if call is None:  # if it was kept, only its name was not looked up any more
                unseen = [answering for answering in self._answering if kept and answering > found[-1].step]
                return Loss("shown" if unseen else "node kept", "cap", max(unseen, default=found[-1].step))
            return Loss("node kept", self._model_reason(call), call)  # it was asked again, and went on to other nodes
        if self._acting and not kept:  # each call of an agent may answer, and nothing selects what it sees
            return Loss("answered", self._model_reason(shown[0].step), shown[0].step)
        # Without a selection, the first call that saw the answer dropped it: an editor after it plans another search.
        later = [event.step for event in shown if event.at > found[-1].at]
        call = shown[-1].step if kept or not later else self._last_try(later[0])
        return Loss("shown" if kept else "node kept", self._model_reason(call), call)

    def _side_loss(self, found: Sequence[Event]) -> Loss | None:
        """Return the loss of an answer that is sought from each of several topic entities, and was dropped once."""
        for event in found:
            kept = next((each for each in self._of("kept") if each.at > event.at), None)
            if not kept or kept.number:
                continue
            between = (each for each in self._of("cut") if event.at < each.at < kept.at)
            cut = [each for each in between if each.number and each.by not in NOT_EXPLORED]
            if sum(each.number or 0 for each in cut) >= (event.number or 1):
                return Loss("node kept", *self._cause_of(cut[-1], event.step))
            if (call := self._call_in(event.step, kept.step)) is not None:
                return Loss("node kept", self._model_reason(call), call)
        return None

    def _count_loss(self, found: Event) -> Loss | None:
        """Return the loss of a count of which some nodes were dropped."""
        kept = [event for event in self._of("kept") if event.at > found.at]
        cut = [event for event in self._of("cut") if event.at > found.at and event.number]
        if cut and (not kept or cut[0].at < kept[0].at):  # no reply could count what code dropped before it
            return Loss("node kept", *self._cause_of(cut[-1] if not kept else cut[0], found.step))
        if not kept or max(event.number or 0 for event in kept) >= int(self._row["gold"][0]):
            return None
        call = self._call_in(found.step, kept[0].step)
        return Loss("node kept", self._model_reason(call), found.step if call is None else call)

    def answer_loss(self) -> Loss:
        """Return the loss of a gold answer that the answering call could have given, or gave."""
        answered = self._of("answered")
        call = answered[-1].step if answered else self.last_step
        if self._row["hits_any"]:
            return Loss("answered", "model", call)
        if self._is_nearly_right:
            return Loss("matched", "match rule", call)
        if not answered:
            is_cut = self._at_limit or any(event.by == "depth" for event in self._of("cut"))
            return Loss("answered", "cap" if is_cut else "model", call)
        return Loss("answered", self._model_reason(call), call)

    @cached_property
    def _is_nearly_right(self) -> bool:
        """Whether an answer contains a gold answer as whole words, or is a part of one, with few other words.

        An answer that is another node of the graph is not: `Japan` for `Japan Airlines` is no matter of spelling.
        """
        row = self._row
        golds = zip(row["gold"], row["gold_ids"] or repeat(None), row["gold_aliases"], strict=False)
        forms = [
            (f" {form} ", id) for name, id, aliases in golds for text in (name, *aliases) if (form := normalise(text))
        ]
        answers = zip(row["answers"], row["answer_ids"] or repeat(None), strict=False)
        given = [(f" {form} ", id) for text, id in answers if (form := normalise(text))]
        return any(
            (one in other or other in one)
            and abs(one.count(" ") - other.count(" ")) <= _FEW_WORDS
            and not self._is_other_node(id, gold_id)
            for one, gold_id in forms
            for other, id in given
        )

    def _is_other_node(self, id: str | None, gold_id: str | None) -> bool:
        """Whether a wrong answer is a node of the graph, and the gold answer another one.

        If a gold answer was found in the graph by its name, the names of the dataset are those of the graph.
        """
        return id is not None and (gold_id is not None or bool(self._of("found")))
