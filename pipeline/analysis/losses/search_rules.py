"""The rules for a gold answer that was not found: where the search left the gold path that it followed furthest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from typing import Any

from pipeline.analysis.losses.stage_names import STAGES, Loss, Reason, Stage
from pipeline.analysis.losses.traced_question import NOT_EXPLORED, Event, NumberedPath, TracedQuestion


class SearchRules(TracedQuestion):
    """From the topic entity to a gold answer."""

    def search_loss(self) -> Loss | None:
        """Return the loss of a question whose gold answer was not found in the graph; None if it was."""
        if self._row["followed_relations"] is None or self._was_seen:
            return None
        is_walked = any(self._progress(path) == len(path.edges) for path in self._paths)
        if self._is_counted or (self._of("found") and (is_walked or not self._paths)):
            return None
        lookups = self._steps_of("kg")
        if not self._is_topic_known(lookups):
            reason: Reason = "no topic entity" if self._row["topic_entities"] == [] else "graph"
            return Loss("topic known", reason, self.last_step)
        if self._paths:
            losses = [self._path_loss(path) for path in self._paths]
            return max(losses, key=lambda loss: (loss.hop or 0, STAGES.index(loss.stage)))
        reason = "cap" if self._at_limit else "no gold path"
        return Loss("node reached", reason, lookups[-1]["index"] if lookups else self.last_step)

    def _is_topic_known(self, lookups: Sequence[Mapping[str, Any]]) -> bool:
        """Whether a topic entity is in the graph; of a trace that does not say it, as far as the lookups show it."""
        if topics := self._of("topics"):
            return bool(topics[-1].number)
        if self._paths:
            return True
        return any(step["rows"] for step in lookups) if lookups else bool(self._row["topic_entities"])

    @property
    def _was_seen(self) -> bool:
        """Whether a gold answer was found, and stands in the prompt of the call that answers.

        One that was met off the gold paths, and dropped again, does not count: it was met by chance. Nor does one that
        was met only on the way to others (`pipeline.engine.gold_trail`).
        """
        found = self._of("found")
        shown = (event for event in self._of("shown") if event.step in self._answering)
        return bool(found) and any(event.at > found[0].at for event in shown)

    def _path_loss(self, path: NumberedPath) -> Loss:
        """Return where a gold path was left. If it leads nowhere, limits and dropped nodes have lost nothing."""
        loss = self._departure(path)
        if not self._of("no_way", path.edges[-1]):
            return loss
        if loss.stage == "node kept" and loss.hop:
            return self._loss_at("node reached", "graph", loss.step, path, loss.hop - 1)
        return replace(loss, reason="graph") if loss.reason in {"beam", "cap"} else loss

    def _departure(self, path: NumberedPath) -> Loss:
        """Return where a gold path was left, if it leads to a gold answer."""
        hop = self._progress(path)
        if hop == len(path.edges):
            return self._loss_of_nodes(path)
        edge = path.edges[hop]
        if followed := self._of("followed", edge):
            return self._loss_at("node reached", self._graph_or_cap(followed[-1].step), followed[-1].step, path, hop)
        listed, passed = self._of("listed", edge), self._of("passed", edge)
        if not (listed or passed):
            return self._loss_before(path, hop)
        is_absent = bool(listed) and not any(event.number for event in listed)
        # All relations of a node are listed together: the graph lacks one that is not among them.
        if is_absent and (hop == 0 or self._were_listed(passed, listed)):
            return self._loss_at("relation offered", "graph", listed[-1].step, path, hop)
        if hop and not passed and self._was_only_looked_at(edge):
            return self._loss_before(path, hop)
        return self._loss_of_relation(path, hop)

    @staticmethod
    def _were_listed(passed: Sequence[Event], listed: Sequence[Event]) -> bool:
        """Whether lookups had listed the relations of the nodes from which only other edges were followed."""
        return all(any(one.at < each.at and (one.of or 0) >= (each.of or 0) for one in listed) for each in passed)

    def _was_only_looked_at(self, edge: int) -> bool:
        """Whether a method listed an edge only to select among its nodes, and never offered it from them."""
        kept = self._of("kept", edge)
        survived = next((event.at for event in kept if event.number), None)
        if survived is None:
            return bool(kept)
        if any(event.number and event.at > survived for event in self._of("listed", edge)):
            return False
        cut = [event for event in self._of("cut", edge) if event.number is None]
        offered = any(event.at > survived for event in (*self._of("shown", edge), *cut))
        return not offered or not self._survivors(edge)

    def _survivors(self, edge: int, after: int = -1) -> int | None:
        """Return how many nodes of an edge a selection kept that nothing cut then; None if there was no selection."""
        cut = [event for event in self._of("cut", edge) if event.number and event.by not in NOT_EXPLORED]
        survivors: int | None = None
        until = math.inf
        for kept in reversed([event for event in self._of("kept", edge) if event.at > after]):
            left = (kept.number or 0) - sum(event.number or 0 for event in cut if kept.at < event.at < until)
            survivors, until = max(left, survivors or 0), kept.at
        return survivors

    def _progress(self, path: NumberedPath) -> int:
        """Return how many edges of a path were followed, one after the other, to at least one node."""
        for hop, edge in enumerate(path.edges):
            if not any(event.number for event in self._of("reached", edge)):
                return hop
        return len(path.edges)

    def _loss_of_relation(self, path: NumberedPath, hop: int) -> Loss:
        """Return the loss of a path whose next relation is in the graph, and was not followed.

        If a limit of hops or of edits ended the search, only the first hop counts at which the edge was in reach.
        """
        edge = path.edges[hop]
        lists = [event for event in self._of("listed", edge) if event.number]
        until = self._next_hop_after(lists[0].step) if lists and self._ended_at_depth else math.inf
        within_reach = [event for event in lists + self._of("passed", edge) if event.step <= until]
        cut = [event for event in self._of("cut", edge) if event.number is None and event.step < until]
        calls = {call for call in self._calls_that_chose(edge) if call < until}
        shown = calls & {event.step for event in self._of("shown", edge)}
        is_final = bool(cut) and all(event.at < cut[-1].at for event in lists if event.step < until)
        if cut and (all(cut[-1].step >= call for call in shown) or (is_final and cut[-1].by != "beam")):
            # what a later prompt names, and no lookup has listed since, is an equal relation of another node
            stage: Stage = "relation chosen" if cut[-1].by == "beam" else "relation offered"
            listed = max((event.step for event in within_reach if event.at < cut[-1].at), default=-1)
            return self._loss_at(stage, *self._cause_of(cut[-1], listed), path, hop)
        choosing = calls - self._tries_of_the_answer
        # Where code follows a plan, the call that answers chooses no relation, though the facts that it reads may have
        # an equal one. Nor does it if it was not shown the relation.
        is_planned = any(event.by == "plan" for event in self._of("cut", edge))
        call = max((shown & choosing if is_planned else shown) or choosing, default=None)
        call = self._call_before(within_reach[-1].step) if call is None else call
        call = max(calls, default=None) if call is None else call
        interrupted = self._was_interrupted(call, edge, was_shown=bool(shown - self._tries_of_the_answer))
        reason: Reason = "cap" if interrupted else self._model_reason(call)
        return self._loss_at("relation chosen", reason, call, path, hop)

    @cached_property
    def _ended_at_depth(self) -> bool:
        """Whether a limit of hops or of edits ended the search: only calls that answer came after it."""
        cut = [event.step for event in self._events if event.by == "depth" and event.number is not None]
        return bool(cut) and all(call <= cut[-1] or call in self._tries_of_the_answer for call in self._calls())

    def _was_interrupted(self, call: int | None, edge: int, *, was_shown: bool = True) -> bool:
        """Whether the budget ended the search before it followed what a call chose, and no call left an edge out.

        An unreadable reply leaves nothing out, as code chooses in its place, and neither does a call that was not shown
        the edge.
        """
        if call is None or self._row["status"] != "budget_exhausted" or self._next_hop_after(call) < math.inf:
            return False
        is_written = any(event.step == call for event in self._of("written", edge))
        return not was_shown or is_written or bool(self._step(call).get("error"))

    def _calls_that_chose(self, edge: int) -> set[int]:
        """Return the calls that could choose an edge: after a lookup that listed it, before the next hop.

        The call that answers is the last resort.
        """
        windows = [(event.step, self._next_hop_after(event.step)) for event in self._of("listed", edge)]
        within = {call for call in self._calls() if any(start < call < end for start, end in windows)}
        return within - self._tries_of_the_answer or within

    def _detour(self, path: NumberedPath, hop: int) -> Loss | None:
        """Return the first edge up to a hop that was in reach at one hop of the search and followed only later."""
        for number, edge in enumerate(path.edges[: hop + 1]):
            listed, kept = self._of("listed", edge), self._of("kept", edge)
            if number and kept and not kept[0].number:
                reached = self._of("reached", path.edges[number - 1])[0]
                call = self._call_in(reached.step, kept[0].step)
                if call is not None:
                    return self._loss_at("node kept", self._model_reason(call), call, path, number - 1)
            if not listed:
                continue
            next_hop = self._next_hop_after(listed[0].step)
            followed = min((event.step for event in self._of("followed", edge)), default=math.inf)
            if any(next_hop < call < followed for call in self._calls()):
                call = max((call for call in self._calls() if call < next_hop), default=None)
                return self._loss_at("relation chosen", self._model_reason(call), call, path, number)
        return None

    def _loss_before(self, path: NumberedPath, hop: int) -> Loss:
        """Return the loss of a path whose last node was not explored: it was dropped, or the search ended."""
        if hop == 0:
            return self._loss_of_topic(path)
        edge, reached = path.edges[hop], self._of("reached", path.edges[hop - 1])[-1]
        kept = [event for event in self._of("kept", edge) if event.at > reached.at]
        cut = [event for event in self._of("cut", edge) if event.number and event.at > reached.at]
        if cut and cut[-1].by == "depth":
            at_depth = self._loss_at("relation offered", "cap", cut[-1].step, path, hop)
            return self._detour(path, hop) or self._chance(path, hop) or at_depth
        if cut and cut[-1].by == "plan":
            call = self._call_after(-1)
            reason = "cap" if self._was_planned_too_long(path) else self._model_reason(call)
            return self._loss_at("relation offered", reason, call, path, hop)
        survivors = self._survivors(edge, reached.at)
        if survivors is None and not self._lookups_after(reached.step):
            # nothing was explored any more, and the method does not say what it kept
            survivors = 1 - sum(event.number or 0 for event in cut)
        if survivors is not None and survivors > 0:
            return self._loss_of_end(path, hop, (kept or [reached])[-1].step)
        if survivors is None and self._acting:
            return self._loss_of_agent(path, hop, reached.step)
        return self._loss_of_dropped(path, hop, reached, kept, cut)

    def _loss_of_dropped(
        self, path: NumberedPath, hop: int, reached: Event, kept: Sequence[Event], cut: Sequence[Event]
    ) -> Loss:
        """Return the loss of a path whose last node was dropped: by a selection, or by code."""
        call = self._call_in(reached.step, kept[0].step if kept else None)
        if cut and (call is None or not self._was_partial(cut, kept)):
            return self._loss_at("node kept", *self._cause_of(cut[-1], reached.step), path, hop - 1)
        return self._loss_at("node kept", self._model_reason(call), call or reached.step, path, hop - 1)

    @staticmethod
    def _was_partial(cut: Sequence[Event], kept: Sequence[Event]) -> bool:
        """Whether all cuts came before a selection that kept nothing, and left it nodes to keep."""
        before = bool(kept) and not kept[0].number and cut[-1].at < kept[0].at
        return before and sum(event.number or 0 for event in cut) < (kept[0].of or 0)

    def _loss_of_topic(self, path: NumberedPath) -> Loss:
        """Return the loss of a path whose topic entity was not explored."""
        if self._was_asked_last(path.edges[0]):
            return self._loss_at("relation chosen", "cap", max(self._acting), path, 0)
        finished = self._acting & self._answering or self._answered_at_once
        call = max(finished, default=self._ending_call(-1))
        left_out = any(event.number for event in self._of("cut", path.edges[0])) or self._was_planned_too_long(path)
        reason: Reason = "cap" if left_out or self._at_limit else self._model_reason(call)
        return self._loss_at("relation offered", reason, call, path, 0)

    @property
    def _answered_at_once(self) -> Set[int]:
        """The answering call of an agent that looked nothing up; empty if a reply before it could not be read.

        That reply could have been a plan, and with it there would have been lookups.
        """
        unread = any(step.get("error") for step in self._steps_of("llm"))
        return set() if unread or self._lookups_after(-1) else self._answering

    def _was_planned_too_long(self, path: NumberedPath) -> bool:
        """Whether a plan that begins like the path was dropped for its length."""
        return any(event.by == "depth" and event.number is None for event in self._of("cut", path.edges[0]))

    def _loss_of_end(self, path: NumberedPath, hop: int, after: int) -> Loss:
        """Return the loss of a search that ended at a node of a path, although the path leads on."""
        if self._was_asked_last(path.edges[hop]):
            return self._loss_at("relation chosen", "cap", max(self._acting), path, hop)
        call = self._ending_call(after)
        call = self._answer_that_ended(after) if call is None else call
        reason: Reason = "cap" if self._at_limit else self._model_reason(call)
        ended = self._loss_at("relation offered", reason, after if call is None else call, path, hop)
        return self._chance(path, hop) or ended

    def _loss_of_agent(self, path: NumberedPath, hop: int, after: int) -> Loss:
        """Return the loss of an agent that asked nothing about a node that it had reached, but something else.

        An agent selects among no nodes, so it dropped none. An attempt that a limit ended was lost by the action that
        left the path, and any other one by the action that ended it.
        """
        if self._was_asked_last(path.edges[hop]):
            return self._loss_at("relation chosen", "cap", max(self._acting), path, hop)
        ended = max((call for call in self._acting & self._answering if call > after), default=None)
        is_finished = ended is not None and not self._at_limit and not self._step(ended).get("error")
        call = ended if is_finished else self._ending_call(after)
        return self._loss_at("relation offered", self._model_reason(call), call, path, hop)

    def _was_asked_last(self, edge: int) -> bool:
        """Whether the budget ended the search before what the last action of an agent asked for was looked up."""
        action = max(self._acting, default=None)
        is_named = any(event.step == action for event in self._of("written", edge))
        return is_named and self._was_interrupted(action, edge)

    def _chance(self, path: NumberedPath, hop: int) -> Loss | None:
        """Return the loss of the first edge up to a hop that was followed although each readable reply left it out.

        Code may follow what no call chose, such as the relations most similar to the chosen one. A search that ends
        after such a step was lost where the edge was left out.
        """
        for number, edge in enumerate(path.edges[:hop]):
            followed = min((event.step for event in self._of("followed", edge)), default=0)
            shown, named = (
                {event.step for event in self._of(name, edge) if event.step < followed} for name in ("shown", "written")
            )
            read = {step for step in shown if not self._step(step).get("error")}
            if read and not named:
                call = max(read)
                return self._loss_at("relation chosen", self._model_reason(call), call, path, number)
        return None

    def _loss_of_nodes(self, path: NumberedPath) -> Loss:
        """Return the loss of a path that was followed to its end, from nodes that lead to no gold answer."""
        for hop in range(len(path.edges) - 1, 0, -1):
            followed = self._of("followed", path.edges[hop])
            numbers, of = ([getattr(event, name) or 0 for event in followed] for name in ("number", "of"))
            if max(numbers, default=0) < max(of, default=0):
                reached = self._of("reached", path.edges[hop - 1])[-1]
                cut = [event for event in self._of("cut", path.edges[hop]) if event.number]
                if cut:
                    return self._loss_at("node kept", *self._cause_of(cut[-1], reached.step), path, hop - 1)
                if self._acting:
                    return self._loss_of_agent(path, hop, reached.step)
                call = self._call_in(reached.step, followed[-1].step)
                reason = self._model_reason(call)
                return self._loss_at("node kept", reason, reached.step if call is None else call, path, hop - 1)
        last = (self._of("followed", path.edges[-1]) or self._of("reached", path.edges[-1]))[-1].step
        return self._loss_at("node reached", self._graph_or_cap(last), last, path, len(path.edges) - 1)

    def _loss_at(self, stage: Stage, reason: Reason, step: int | None, path: NumberedPath, hop: int) -> Loss:
        left_at = hop + (stage in {"node reached", "node kept"})
        return Loss(stage, reason, step, hop + 1, path.departure(left_at))
