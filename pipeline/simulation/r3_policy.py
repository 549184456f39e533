"""The simulated agent of R3: it chooses actions along gold paths, wrong actions, or actions by word similarity."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from pipeline.methods.r3.environment import print_id, print_relation
from pipeline.methods.r3.memory import Item, Listing, Step
from pipeline.methods.rendering import one_line, quoted
from pipeline.normalisation import normalise
from pipeline.simulation.methods.answering import UNKNOWN
from pipeline.simulation.similarity import rank_relations
from pipeline.types import EntityId, LiteralNode, Question, Relation

if TYPE_CHECKING:
    from pipeline.retrieval.lexical import LexicalEncoder
    from pipeline.simulation.gold_context import GoldContext
    from pipeline.types import RelationPath

_MAX_LINE = 1200
"""Characters of an action line: about 300 tokens, the limit of a reply."""
_MAX_TYPES = 4
"""Neighbour types that the similarity policy tries at a node: a type may belong to another kind of node."""
_MAX_NAMES = 10
"""Neighbours whose name the similarity policy looks up."""


def plan(question: Question, steps: Sequence[Step], gold_context: GoldContext) -> str:
    """Return the next action line of a perfect model: retrieve the topics, walk their best gold paths, finish.

    A line has lookups from as many nodes of a layer as fit. Usually, the next line is about the next layer. If all
    nodes contribute to the answer (a count, or a list in one text), more lines follow for the same layer. The nodes
    that did not fit are also looked up if nothing was found behind the first ones. The answers are the observed nodes
    that the question asks for.
    """
    scratchpad = _Scratchpad(steps)
    topics = {
        topic.id: topic for topic in gold_context.topics or question.topic_entities if gold_context.paths.get(topic.id)
    }
    retrievals = {id: _retrieve(one_line(topic.name)) for id, topic in topics.items()}
    if missing := [action for action in retrievals.values() if action not in scratchpad.results]:
        return _line(missing)
    starts = [id for id, action in retrievals.items() if any(item.node == id for item in scratchpad.results[action])]
    walks = [_Walk(id, gold_context.paths[id][0], scratchpad, gold_context) for id in starts]
    if _degree_is_the_count(scratchpad, gold_context):
        return write_finish([str(len(gold_context.counted))])
    if actions := [action for walk in walks for action in walk.next_actions()]:
        return _line(actions)
    found = sought_names(steps, gold_context)
    if gold_context.counted:
        return write_finish([str(len(found))])
    others = [_Walk(id, path, scratchpad, gold_context) for id in starts for path in gold_context.paths[id][1:]]
    skipped = [action for walk in (*walks, *others) for action in walk.skipped_actions()]
    if skipped and not found:
        return _line(skipped)
    joined = bool(gold_context.topics)  # GRBench compares the answer as one text
    return write_finish((_in_gold_order(found, gold_context) if joined else found) or [UNKNOWN], joined=joined)


def plan_wrongly(
    question: Question,
    steps: Sequence[Step],
    gold_context: GoldContext,
    error_rng: Random,
    *,
    avoided: Iterable[str] = (),
) -> str:
    """Return a well-formed but wrong action line: a wrong answer, or an action off the gold paths.

    Actions that a reflection advises to avoid are not drawn. If no other wrong action is left, the line is right.
    """
    scratchpad = _Scratchpad(steps)
    names = {item.name or item.text for item in scratchpad.items if not gold_context.is_sought(item.node, item.name)}
    nodes = sorted({item.node for item in scratchpad.items if isinstance(item.node, str)})[:3]
    off_path = [name for name in scratchpad.listed_relations if name not in gold_relations(gold_context)]
    wrong = [f"Relations[{print_id(node)}]" for node in nodes]
    wrong += [f"NeighbourCheck[{print_id(node)}, {print_relation(name)}]" for node in nodes for name in off_path]
    wrong += ["RetrieveNode[something else]"] * (not steps)
    wrong += [write_finish([name]) for name in (*sorted(names)[:5], UNKNOWN)]
    excluded = set(avoided)
    pool = [action for action in wrong if action not in excluded]
    return error_rng.choice(pool) if pool else plan(question, steps, gold_context)


def plan_by_similarity(
    question: Question, steps: Sequence[Step], encoder: LexicalEncoder, types: Sequence[str] | None
) -> str:
    """Retrieve a node, follow the relation most similar to the question, look up names, and finish with them.

    `types` are the neighbour types of a graph whose nodes have attributes; None for a graph of triples, which lists the
    relations of a node and shows names.
    """
    scratchpad = _Scratchpad(steps)
    if not scratchpad.searched:
        keywords = [one_line(topic.name) for topic in question.topic_entities] or [one_line(question.text)]
        return write_finish([UNKNOWN]) if steps else _line(map(_retrieve, keywords))
    start = print_id(scratchpad.searched[0])
    if neighbours := scratchpad.neighbours:
        if types is None or scratchpad.names:
            answers = neighbours if types is None else scratchpad.names
            return write_finish([item.name or item.text for item in answers], joined=types is not None)
        ids = [print_id(item.node) for item in neighbours if isinstance(item.node, str)][:_MAX_NAMES]
        candidates = [_line(f"NodeFeature[{id}, {feature}]" for id in ids) for feature in ("name", "title")]
    else:
        ranking = rank_relations(scratchpad.listed_relations if types is None else types, question.text, encoder)
        follow = [f"NeighbourCheck[{start}, {print_relation(name)}]" for name in ranking]
        candidates = [f"Relations[{start}]", *follow[:1]] if types is None else follow[:_MAX_TYPES]
    used = {step.action for step in steps}
    return next((line for line in candidates if line and line not in used), write_finish([UNKNOWN]))


def gold_relations(gold_context: GoldContext) -> set[str]:
    """Return the names of all relations of the gold paths."""
    return {relation.name for paths in gold_context.paths.values() for path in paths for relation in path}


def sought_names(steps: Iterable[Step], gold_context: GoldContext) -> list[str]:
    """Return the names of the observed nodes that the question asks for.

    For a question that counts, each node has its entry. Otherwise the names are distinct. They are in the order in
    which they were observed, which a model can learn; it cannot learn the order of the gold answers.
    """
    scratchpad = _Scratchpad(steps)
    items = scratchpad.items if gold_context.foresight else scratchpad.ends(gold_context)
    sought = {item.node: item for item in items if gold_context.is_sought(item.node, item.name)}.values()
    names = [item.node.value if isinstance(item.node, LiteralNode) else item.name or item.text for item in sought]
    return names if gold_context.counted else list({normalise(name): name for name in names}.values())


def write_finish(answers: Sequence[str], *, joined: bool = False) -> str:
    """Write `Finish` with one answer as text and several as a list, or `joined` to one text as in GRBench."""
    texts = list(dict.fromkeys(answers))
    if joined:
        return f"Finish[{', '.join(texts)}]"
    if len(texts) == 1 and not texts[0].startswith(("[", '"', "'", "`")):
        return f"Finish[{texts[0]}]"
    return f"Finish[{json.dumps(texts, ensure_ascii=False)}]"


def _in_gold_order(names: Sequence[str], gold_context: GoldContext) -> list[str]:
    gold_names = (name for answer in gold_context.gold.answers for name in (answer.name, *answer.aliases))
    order = {normalise(name): index for index, name in enumerate(gold_names)}
    return sorted(names, key=lambda name: order.get(normalise(name), len(order)))


def _retrieve(keyword: str) -> str:
    """Write a search. A text with brackets or quotes is quoted, so that its end is known."""
    needs_quotes = any(character in keyword for character in '[]"')
    return f"RetrieveNode[{quoted(keyword) if needs_quotes else keyword}]"


class _Scratchpad:
    """What the steps so far have shown."""

    def __init__(self, steps: Iterable[Step]) -> None:
        observations = [observation for step in steps for observation in step.observations]
        self.listings: list[Listing] = [listing for observation in observations for listing in observation.listings]
        self.results: dict[str, list[Item]] = {
            f"{observation.action.tool}[{observation.action.content}]": [
                item for listing in observation.listings for item in listing.items
            ]
            for observation in observations
        }
        """The result of each action that was executed; empty if it failed."""

    @property
    def searched(self) -> list[EntityId]:
        """The nodes found by search."""
        items = (item for listing in self.listings if listing.via == "search" for item in listing.items)
        return [item.node for item in items if isinstance(item.node, str)]

    @property
    def items(self) -> Iterator[Item]:
        """All other nodes and values, without the names of relations."""
        lookups = (listing for listing in self.listings if listing.via not in {"search", "relations"})
        return (item for listing in lookups for item in listing.items)

    def ends(self, gold_context: GoldContext) -> Iterator[Item]:
        """Yield what the last relation of a gold path leads to.

        Its lookup from the start of the path does not count if the path has more than one hop.
        """
        last = {(path[-1].name, start, len(path)) for start, paths in gold_context.paths.items() for path in paths}
        for listing in self.listings:
            if any(listing.via == name and (hops == 1 or listing.source != start) for name, start, hops in last):
                yield from listing.items

    @property
    def listed_relations(self) -> list[str]:
        """The names of the relations that `Relations` listed."""
        shown = (item.node for listing in self.listings if listing.via == "relations" for item in listing.items)
        return [node.value for node in shown if isinstance(node, LiteralNode)]

    @property
    def neighbours(self) -> list[Item]:
        """The nodes in lists of neighbours."""
        lists = (one for one in self.listings if one.via not in {"search", "relations"} and not one.bare)
        return [item for listing in lists for item in listing.items]

    @property
    def names(self) -> list[Item]:
        """The names that were looked up as features."""
        return [item for listing in self.listings if listing.via in {"name", "title"} for item in listing.items]

    def reached(self, node: EntityId, relation: Relation) -> list[EntityId]:
        """Return the nodes that were listed as neighbours of a node by a relation."""
        lists = (listing for listing in self.listings if listing.source == node and listing.via == relation.name)
        items = (item for listing in lists if listing.direction == relation.direction for item in listing.items)
        return [item.node for item in items if isinstance(item.node, str)]


@dataclass(frozen=True, slots=True)
class _Layer:
    """One hop of a gold path, from all nodes reached so far."""

    relation: Relation
    nodes: list[EntityId]
    is_last: bool
    unvisited: list[EntityId]
    """Nodes from which the hop was not made yet."""


@dataclass(frozen=True)
class _Walk:
    """A gold path from a topic, and how far the scratchpad has followed it."""

    start: EntityId
    path: RelationPath
    scratchpad: _Scratchpad
    gold_context: GoldContext

    def next_actions(self) -> list[str]:
        """Return the actions at the first layer that was not entered, or not completed although it has to be."""
        complete = bool(self.gold_context.counted or self.gold_context.topics)
        layers = (layer for layer in self._layers() if layer.unvisited)
        layer = next((layer for layer in layers if complete or layer.unvisited == layer.nodes), None)
        return self._actions(layer) if layer else []

    def skipped_actions(self) -> list[str]:
        """Return the actions that were left out at the deepest layer that has any."""
        layers = [layer for layer in self._layers() if layer.unvisited]
        return self._actions(layers[-1]) if layers else []

    def _layers(self) -> Iterator[_Layer]:
        nodes = [self.start]
        for depth, relation in enumerate(self.path, start=1):
            is_last = depth == len(self.path)
            results = self.scratchpad.results
            unvisited = [node for node in nodes if self._lookup(node, relation, is_last=is_last) not in results]
            yield _Layer(relation, nodes, is_last, unvisited)
            nodes = list(dict.fromkeys(end for node in nodes for end in self.scratchpad.reached(node, relation)))
            if not self.gold_context.foresight and len(nodes) > 1:
                nodes = [node for node in nodes if node != self.start]  # a prompt shows that the walk returned

    def _actions(self, layer: _Layer) -> list[str]:
        """Return the lookups of a layer. The last hop of a count from a single node tries the degree first."""
        lookups = [self._lookup(node, layer.relation, is_last=layer.is_last) for node in layer.unvisited]
        if self.gold_context.counted and layer.is_last and len(layer.nodes) == 1:
            degree = f"NodeDegree[{print_id(layer.nodes[0])}, {print_relation(layer.relation.name)}]"
            return lookups if degree in self.scratchpad.results else [degree]
        return lookups

    def _lookup(self, node: EntityId, relation: Relation, *, is_last: bool) -> str:
        tool = "NeighbourCheck"
        if relation.name in self.gold_context.features:
            tool = "NodeFeature"
        elif is_last and self.gold_context.topics:
            tool = "NodeDegree"  # in GRBench a path that does not end in a feature ends in a number
        return f"{tool}[{print_id(node)}, {print_relation(relation.name)}]"


def _degree_is_the_count(scratchpad: _Scratchpad, gold_context: GoldContext) -> bool:
    """Return whether a degree that was looked up is the number that the question asks for."""
    count = str(len(gold_context.counted))
    degrees = (listing for listing in scratchpad.listings if listing.via.startswith("degree of "))
    return bool(gold_context.counted) and count in (item.text for listing in degrees for item in listing.items)


def neighbour_types(schema: str) -> list[str]:
    """Return the words of a graph's description that may be neighbour types, those of all kinds of nodes."""
    lists = re.findall(r"neighbour types? ([^.]+)", " ".join(schema.split()))
    return sorted({word for text in lists for word in re.findall(r"[\w-]{4,}", text)})


def _line(actions: Iterable[str]) -> str:
    """Join as many actions as one reply holds."""
    line = ""
    for action in dict.fromkeys(actions):
        if line and len(line) + len(action) > _MAX_LINE:
            break
        line = f"{line} {action}".lstrip()
    return line
