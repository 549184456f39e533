"""Turns the trace of one question into trees: what the method did, round by round, and the facts it answered from.

The terminal (`kgqa show`) and the viewer both draw these trees. A decision belongs to the attempt, sub-goal, hop or
round that its payload names. `_beam` and `_object` know the payloads of ArG, R3-Cycle, PARoG and RoG. A new method gets
a plain tree without a change here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal, TypeAlias

from pipeline.analysis.losses.traced_question import deciding_step
from pipeline.analysis.question_trace import QuestionTrace, StepTrace
from pipeline.grouping import grouped
from pipeline.normalisation import normalise
from pipeline.traces.schema import REFUSED_REPLIES

Kind: TypeAlias = Literal["question", "group", "step", "item", "fact"]

_GROUPS = {"attempt": "attempt", "subgoal": "sub-goal", "hop": "hop", "round": "round"}
"""The keys of a payload that say which part of the search a decision belongs to, the widest first."""
_FROM_ZERO = "attempt"
"""The key that counts from 0."""
_OF_ALL = frozenset({"plan", "answered"})
"""Decisions about the whole question."""
_NAMES = ("action", "op")
"""The keys that name a decision with the role `step`."""
_LITERAL = {"value", "datatype", "lang"}
"""The keys of a literal of the graph."""
_PATHS = frozenset({"path", "paths", "candidates"})
"""The keys of a payload under which a list of texts is a path of relations."""
_INCOMING = " (incoming)"


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One node of a tree, with what stands below it."""

    label: str
    kind: Kind
    step: int | None = None
    """The number of the step that the node is, if it is one."""
    before: Sequence[int] = ()
    """Of a decision: the numbers of the calls and lookups that led to it."""
    detail: str = ""
    """The numbers and words of a decision."""
    score: float | None = None
    is_gold: bool = False
    """Whether it is a gold answer or lies on a gold path."""
    is_dropped: bool = False
    """Whether it was offered and not kept."""
    children: Sequence[TreeNode] = ()

    @property
    def steps(self) -> Sequence[int]:
        """The numbers of the node's own steps, in order."""
        return (*self.before, *(() if self.step is None else (self.step,)))


def gold_forms(trace: QuestionTrace) -> Set[str]:
    """Return the normalised names of the gold answers, aliases included."""
    aliases = (alias for of_one in trace.row["gold_aliases"] or () for alias in of_one)
    return {normalise(name) for name in (*trace.gold, *aliases)}


# The walk: the decisions of the method, in the parts of its search


def walk_tree(trace: QuestionTrace) -> TreeNode:
    """Return what the method did: attempts, sub-goals, hops or rounds, in them decisions, in these what was chosen.

    Every step of the trace stands in exactly one node.
    """
    rounds = _Rounds(trace.steps)
    reader = _PayloadReader(trace)
    root = _Group("")
    waiting: list[TreeNode] = []
    for entry in _entries(trace.steps):
        node = _entry_node(entry, reader)
        # A refused reply names no part of the search: it belongs to what the method did next.
        if entry.decision is not None and entry.decision.role in REFUSED_REPLIES:
            waiting.append(node)
            continue
        group = root
        for name, key in rounds.place_of(entry.decision):
            group = group.child(name, reader.group_label(name, key), key)
        group.parts += [*waiting, node]
        waiting = []
    root.parts += waiting
    return TreeNode(trace.text, "question", children=root.finished())


@dataclass
class _Group:
    """A part of the search that is being filled."""

    label: str
    parts: list[TreeNode | _Group] = field(default_factory=list)
    _by_key: dict[tuple[str, Any], _Group] = field(default_factory=dict)

    def child(self, name: str, label: str, key: object) -> _Group:
        """Return the group of a key, which is added where it occurs first."""
        if (name, key) not in self._by_key:
            self._by_key[name, key] = _Group(label)
            self.parts.append(self._by_key[name, key])
        return self._by_key[name, key]

    def finished(self) -> Sequence[TreeNode]:
        return [
            TreeNode(part.label, "group", children=part.finished()) if isinstance(part, _Group) else part
            for part in self.parts
        ]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A decision with the calls and lookups before it; without a decision, one call or lookup."""

    decision: StepTrace | None
    before: Sequence[StepTrace]


def _entries(steps: Sequence[StepTrace]) -> Iterator[_Entry]:
    """Yield the decisions with the steps that led to them.

    Equal decisions in a row, after as many model calls, have one call each. The steps after the last decision follow
    one by one.
    """
    before: list[StepTrace] = []
    for (is_decision, _), run in groupby(steps, lambda step: (step.kind == "decision", step.role)):
        if not is_decision:
            before += run
            continue
        decisions = list(run)
        shares = _share(before, len(decisions))
        yield from (_Entry(decision, share) for decision, share in zip(decisions, shares, strict=True))
        before = []
    yield from (_Entry(None, [step]) for step in before)


def _share(before: Sequence[StepTrace], count: int) -> Sequence[Sequence[StepTrace]]:
    calls = [step for step in before if step.kind == "llm"]
    if count == 1 or len(calls) != count or list(before[-count:]) != calls:
        return [before, *([()] * (count - 1))]
    return [before[: len(before) - count + 1], *([call] for call in calls[1:])]


class _Rounds:
    """Says to which part of the search a decision belongs.

    A search without attempts, sub-goals, hops or rounds in its payloads has rounds that end with a judgement, those of
    each entity apart if judgements name one.
    """

    def __init__(self, steps: Sequence[StepTrace]) -> None:
        decisions = [step for step in steps if step.kind == "decision"]
        judged = [step for step in decisions if step.role == "judged"]
        has_keys = any(key in _payload(step) for step in decisions for key in _GROUPS)
        self._counts_judgements = bool(judged) and not has_keys
        entities = {entity for step in judged if (entity := _entity(step)) is not None}
        self._by_entity = bool(entities)
        self._has_several = len(entities) > 1
        shared = [step.number for step in decisions if _entity(step) is None]
        first = judged[0].number if judged else 0
        self._begins = max((number for number in shared if number < first), default=-1) if entities else -1
        self._judgements: dict[Any, int] = {}

    def place_of(self, decision: StepTrace | None) -> list[tuple[str, Any]]:
        """Return the names and keys of the groups of a decision, the widest first. Takes decisions in order."""
        if decision is None or decision.role in _OF_ALL:
            return []
        payload = _payload(decision)
        if not self._counts_judgements:
            return [(name, payload[name]) for name in _GROUPS if isinstance(payload.get(name), (int, str))]
        entity = _entity(decision) if self._by_entity else None
        if decision.number <= self._begins or (self._by_entity and entity is None):
            return []
        number = self._judgements.get(entity, 0) + 1
        if decision.role == "judged":
            self._judgements[entity] = number
        of_entity = [("entity", entity)] if self._has_several else []
        return [*of_entity, ("round", number)]


def _entry_node(entry: _Entry, reader: _PayloadReader) -> TreeNode:
    before = [step.number for step in entry.before]
    if entry.decision is None:
        step = entry.before[0]
        return TreeNode(step.role, "step", step=step.number, detail=step.error or "")
    decision = entry.decision
    detail, items = reader.contents(decision)
    payload = _payload(decision)
    names = (payload[key] for key in _NAMES if decision.role == "step" and isinstance(payload.get(key), str))
    label = next(names, decision.role.replace("_", " "))
    return TreeNode(label, "step", step=decision.number, before=before, detail=detail, children=items)


def _payload(step: StepTrace) -> Mapping[str, Any]:
    return step.payload if isinstance(step.payload, Mapping) else {}


def _entity(step: StepTrace) -> str | None:
    """Return the entity that a decision is about; None if it names none."""
    entity = _payload(step).get("entity")
    return entity if isinstance(entity, str) else None


class _PayloadReader:
    """Turns the payload of a decision into words and items, with names for ids and marks for what is gold."""

    def __init__(self, trace: QuestionTrace) -> None:
        self._names = _names(trace)
        self._gold = {*gold_forms(trace), *(normalise(id) for id in trace.row["gold_ids"] or () if id)}
        paths = trace.row.get("gold_paths") or ()
        self._paths = [[name.lstrip("^") for name in path["relations"]] for path in paths]
        self._relations = {name for path in self._paths for name in path}
        plans = (_payload(step).get("subgoals") for step in trace.steps if step.role == "plan")
        subgoals = (one for plan in plans if isinstance(plan, list) for one in plan if isinstance(one, Mapping))
        self._goals = {str(one.get("id")): str(one.get("goal", "")) for one in subgoals}

    def group_label(self, name: str, key: object) -> str:
        """Return the heading of a group."""
        if name == "entity":
            return f"from {self._name(key)}"
        number = key + 1 if name == _FROM_ZERO and isinstance(key, int) else key
        goal = self._goals.get(str(key)) if name == "subgoal" else None
        return f"{_GROUPS.get(name, name)} {number}{f': {goal}' if goal else ''}"

    def contents(self, decision: StepTrace) -> tuple[str, Sequence[TreeNode]]:
        """Return the plain values of a payload as words, and its lists as items."""
        left_out = {*_GROUPS, *(_NAMES if decision.role == "step" else ())}
        payload = {key: value for key, value in _payload(decision).items() if key not in left_out}
        if _is_beam(payload):
            return "", self._beam(payload)
        if isinstance(payload.get("scores"), Mapping) and _are_texts(payload.get("relations")):
            payload = {**payload, "relations": {name: payload["scores"].get(name) for name in payload["relations"]}}
            del payload["scores"]
        if "candidates" in payload:
            payload.pop("paths", None)  # the candidates say more about the same paths
        payload = {key: _without_direction(value) for key, value in payload.items()}
        plain = {key: value for key, value in payload.items() if not _is_composite(value)}
        lists = {key: value for key, value in payload.items() if _is_composite(value) and value}
        words = " · ".join(f"{key.replace('_', ' ')} {self._text(value)}" for key, value in plain.items())
        items = {key: list(self._items(value, are_paths=key in _PATHS)) for key, value in lists.items()}
        if len(items) == 1:
            return words, next(iter(items.values()))
        return words, [TreeNode(key.replace("_", " "), "item", children=each) for key, each in items.items()]

    def _beam(self, payload: Mapping[str, Any]) -> Sequence[TreeNode]:
        """Return the relations that ArG offered at a hop, with the scores of the relevant ones, the best first."""
        kept = {name for of_node in payload["kept"] for name in of_node}
        scores = {name: score for of_one in payload["relevant"] for name, score in of_one.items()}
        offered = dict.fromkeys(name for of_one in payload["offered"] for name in of_one)
        ranked = sorted(offered, key=lambda name: (-scores.get(name, -1.0), list(offered).index(name)))
        return [
            self._marked(TreeNode(name, "item", score=scores.get(name), is_dropped=name not in kept), [name])
            for name in ranked
        ]

    def _items(self, value: Any, *, are_paths: bool) -> Iterator[TreeNode]:
        if isinstance(value, Mapping):
            for key, each in value.items():
                yield self._keyed(str(key), each, are_paths=are_paths)
        elif are_paths and all(isinstance(each, str) for each in value):
            yield self._path(value)
        else:
            for each in value:
                if not are_paths and isinstance(each, list) and all(isinstance(part, str) for part in each):
                    yield from map(self._item, each)
                else:
                    yield self._item(each)

    def _keyed(self, key: str, value: Any, *, are_paths: bool) -> TreeNode:
        label = self._name(key)
        if isinstance(value, float):
            return self._marked(TreeNode(label, "item", score=value), [key])
        if _is_composite(value):
            below = list(self._items(value, are_paths=are_paths))
            return self._marked(TreeNode(label, "item", is_dropped=not value, children=below), [key])
        return self._marked(TreeNode(label if value is None else f"{label}: {self._text(value)}", "item"), [key])

    def _item(self, value: Any) -> TreeNode:
        if isinstance(value, Mapping) and not value.keys() <= _LITERAL:
            return self._object(value)
        if not isinstance(value, list) or not value:
            return self._marked(TreeNode(self._text(value), "item"), [value])
        *parts, last = value
        if parts and _is_number(last):
            return self._numbered(parts, last)
        if all(isinstance(part, str) for part in value):
            return self._path(value)
        if len(parts) == 1 and isinstance(parts[0], float) and isinstance(last, list):
            node = TreeNode(self._text(last), "item", score=parts[0])
            return replace(node, is_gold=any(map(self._is_answer, last)))
        return TreeNode(self._text(value), "item")

    def _path(self, value: Sequence[str]) -> TreeNode:
        return self._marked(TreeNode(" → ".join(map(self._name, value)), "item"), value)

    def _numbered(self, parts: Sequence[Any], number: float) -> TreeNode:
        """Return a relation with its direction or a fact, with its score; or a segment, with its number of nodes."""
        flat = [part for each in parts for part in (each if isinstance(each, list) else [each])]
        score = number if isinstance(number, float) else None
        if len(flat) == 2 and flat[1] in {"in", "out"}:
            return self._marked(TreeNode(_without_direction(flat), "item", score=score), flat[:1])
        count = "" if score is not None else f" (× {number})"
        return self._marked(TreeNode(f"{' → '.join(map(self._text, flat))}{count}", "item", score=score), flat[-1:])

    def _object(self, value: Mapping[str, Any]) -> TreeNode:
        """Return a sub-goal, what a call of R3 found out, or a candidate of RoG's planner."""
        if "goal" in value:
            used = f", uses {self._text(value['uses'])}" if value.get("uses") else ""
            return TreeNode(f"{value.get('id')}: {value['goal']} ({value.get('op')}{used})", "item")
        if {"from", "via", "to"} <= value.keys():
            label = " → ".join(self._text(value[key]) for key in ("from", "via", "to"))
            node = TreeNode(label, "item", is_dropped=not value.get("ok", True))
            return self._marked(node, [value["via"]])
        if isinstance(value.get("path"), list):
            node = self._item(value["path"]) if value["path"] else TreeNode(self._text(value.get("text")), "item")
            score = value.get("score") if _is_number(value.get("score")) else None
            problem = value.get("problem")
            return replace(node, score=score, is_dropped=bool(problem), detail=str(problem or ""))
        return TreeNode(self._text(value), "item")

    def _marked(self, node: TreeNode, parts: Sequence[Any]) -> TreeNode:
        """Mark a node as gold if it is a gold answer, or its relations begin a gold path or are one relation of one."""
        relations = [str(part).removesuffix(_INCOMING).lstrip("^") for part in parts]
        is_path = bool(relations) and any(path[: len(relations)] == relations for path in self._paths)
        is_relation = len(relations) == 1 and relations[0] in self._relations
        is_gold = is_path or is_relation or (len(parts) == 1 and self._is_answer(parts[0]))
        return replace(node, is_gold=is_gold)

    def _is_answer(self, value: object) -> bool:
        return isinstance(value, str) and (normalise(value) in self._gold or normalise(self._name(value)) in self._gold)

    def _name(self, value: object) -> str:
        return self._names.get(value, value) if isinstance(value, str) else str(value)

    def _text(self, value: Any) -> str:
        if isinstance(value, Mapping) and value.keys() <= _LITERAL:
            return str(value.get("value"))
        if isinstance(value, bool) or value is None:
            return {True: "yes", False: "no", None: "–"}[value]
        return value_text(value, self._name)


def value_text(value: Any, name: Any = str) -> str:
    """Return a value of a decision with its numbers rounded: scores have many digits. `name` prints a text."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        if any(isinstance(one, (list, Mapping)) for one in value.values()):
            return "; ".join(f"{key}: {value_text(one, name)}" for key, one in value.items())
        return ", ".join(f"{key} {value_text(one, name)}" for key, one in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        texts = [
            f"({value_text(one, name)})" if isinstance(one, (list, Mapping)) else value_text(one, name) for one in value
        ]
        return ", ".join(texts) or "none"
    return str(name(value))


def _is_beam(payload: Mapping[str, Any]) -> bool:
    """Whether a decision has the relations that ArG offers, those that are relevant, and those that it keeps."""
    offered, relevant, kept = (payload.get(name) for name in ("offered", "relevant", "kept"))
    if not (isinstance(offered, list) and isinstance(relevant, list) and isinstance(kept, list)):
        return False
    scores = (score for each in relevant if isinstance(each, Mapping) for score in each.values())
    return (
        all(isinstance(each, Mapping) for each in relevant)
        and all(map(_is_number, scores))
        and all(map(_are_texts, [*offered, *kept]))
    )


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _without_direction(value: Any) -> Any:
    """Return a relation with its direction as one text, and other values as they are."""
    is_relation = isinstance(value, list) and len(value) == 2 and value[1] in ("in", "out")
    return f"{value[0]}{_INCOMING if value[1] == 'in' else ''}" if is_relation else value


def _is_composite(value: object) -> bool:
    return isinstance(value, (list, Mapping))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _names(trace: QuestionTrace) -> Mapping[str, str]:
    """Return the names of entities by id, as far as facts and answers have them."""
    names = {
        fact[end]: fact[f"{end}_name"]
        for fact in trace.row["evidence"] or ()
        for end in ("head", "tail")
        if fact[f"{end}_name"]
    }
    gold = zip(trace.row["gold_ids"] or (), trace.gold, strict=False)
    return {**{id: name for id, name in gold if id}, **names}


# The facts: those shown to the call that answered, as a tree from where they start


def fact_tree(trace: QuestionTrace, most: int) -> TreeNode:
    """Return the first `most` facts in the evidence, as a tree from where their chains start."""
    facts = trace.row["evidence"] or ()
    gold, topics = gold_forms(trace), trace.row.get("topic_entities") or ()
    branches: dict[tuple[str, str], Any] = {}
    for chain in grouped(facts[:most], lambda fact: fact["chain"]).values():
        for walk in _walks(chain, topics):
            branch = branches
            for hop in walk:
                branch = branch.setdefault(hop, {})
    known, shown = _count_distinct(facts), _count_distinct(facts[:most])
    label = f"facts in the evidence: {known}{f', of which {shown} are shown' if shown < known else ''}"
    return TreeNode(label, "question", children=_fact_nodes(branches, gold))


def _count_distinct(facts: Sequence[Mapping[str, Any]]) -> int:
    """Count the facts. Chains that share a fact have a row each for it."""
    return len({(fact["head"], fact["relation"], fact["tail"]) for fact in facts})


def _fact_nodes(branches: Mapping[tuple[str, str], Any], gold: Set[str]) -> Sequence[TreeNode]:
    return [
        TreeNode(
            f"{relation}{name}",
            "fact",
            is_gold=normalise(name) in gold,
            children=_fact_nodes(below, gold),
        )
        for (relation, name), below in branches.items()
    ]


def _walks(facts: Sequence[Mapping[str, Any]], topics: Collection[str]) -> Iterator[list[tuple[str, str]]]:
    """Yield the hops of a chain from where it starts: the relation with its direction, and the name of the node.

    A chain whose next fact begins at another node than the last one is several walks. Of the ends of its first fact, a
    walk starts at the one from which it is the longest, and of equal ones at the topic entity or else at the head.
    """
    names = {fact[end]: fact[f"{end}_name"] or fact[end] for fact in facts for end in ("head", "tail")}
    while facts:
        starts = (str(facts[0]["head"]), str(facts[0]["tail"]))
        nodes = max((_nodes(start, facts) for start in starts), key=lambda walk: (len(walk), walk[0] in topics))
        hops = [
            (f"{fact['relation']} {'→' if fact['head'] == here else '←'} ", names[there])
            for here, there, fact in zip(nodes, nodes[1:], facts, strict=False)
        ]
        yield [("", names[nodes[0]]), *hops]
        facts = facts[len(hops) :]


def _nodes(start: str, facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the nodes of a walk that begins at a node, up to a fact that does not have the last of them."""
    nodes = [start]
    for fact in facts:
        if nodes[-1] not in (fact["head"], fact["tail"]):
            break
        nodes.append(str(fact["tail"] if fact["head"] == nodes[-1] else fact["head"]))
    return nodes


# The trail: what a step did to the gold answers and gold paths

_EVENTS = {
    "listed": "the next gold relation is among the relations",
    "followed": "follows a gold relation",
    "passed": "passes a gold relation by",
    "found": "finds a gold answer",
    "shown": "reads a gold answer",
    "written": "writes a gold answer",
    "answered": "gives the answers",
}


def trail_texts(trace: QuestionTrace) -> Mapping[int, str]:
    """Return for each step, by its number, what it did to the gold answers and gold paths."""
    texts: dict[int, dict[str, None]] = {}
    kinds = [step.kind for step in trace.steps]
    for event in trace.row.get("trail") or ():
        text = _EVENTS.get(event["event"])
        if event["event"] in {"shown", "written"} and event["edge"] is not None:
            text = None  # the prompt repeats the relations of all hops before
        if event["event"] == "answered" and not trace.answers:
            text = "gives no answer"
        if event["event"] == "listed" and not event["number"]:
            text = "the next gold relation is missing"
        if event["event"] == "cut":
            what = "a gold path" if event["edge"] is not None else "a gold answer" if event["number"] else "other nodes"
            text = f"{event['by']} cuts {what}"
        if event["event"] == "unnamed" and event["number"]:
            text = "the gold answer has no name"
        if event["event"] == "topics":
            text = None if event["number"] else "the topic entities are not in the graph"
        if event["event"] == "no_way":
            text = "a gold path leads to no gold answer in the graph"
        if text:
            dropped = event["by"] if event["event"] == "cut" else None
            texts.setdefault(deciding_step(dropped, event["step"], kinds), {})[text] = None
    return {step: "; ".join(of_step) for step, of_step in texts.items()}
