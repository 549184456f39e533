"""What a simulated model does next, from what its scratchpad shows: along gold paths, astray, or by word similarity."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from pipeline.methods.answering import UNKNOWN
from pipeline.methods.r3.environment import print_id
from pipeline.methods.r3.memory import Item, Listing, Step
from pipeline.methods.rendering import one_line
from pipeline.methods.simulation import rank_relations
from pipeline.text import normalise
from pipeline.types import EntityId, LiteralNode, Question, Relation

if TYPE_CHECKING:
    from pipeline.kg.paths import RelationPath
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

_LINE = 1200
"""Characters of an action line: what a reply of 300 tokens holds."""
_NAMED = 10
"""Neighbours whose name the similarity policy asks for."""


def plan(question: Question, steps: Sequence[Step], truth: Truth) -> str:
    """The next action line of a perfect model: retrieve, walk the best gold path of every topic, finish.

    A layer is walked one line wide before the next one, and to its end where all of it makes the answer (a count, or a
    list in one text) or nothing was found behind the first. It finishes with what it has seen and knows to be sought.
    """
    seen = _Seen(steps)
    topics = {topic.id: topic for topic in truth.topics or question.topic_entities if truth.paths.get(topic.id)}
    retrievals = {id: f"RetrieveNode[{one_line(topic.name)}]" for id, topic in topics.items()}
    if unfound := [move for move in retrievals.values() if move not in seen.moves]:
        return _line(unfound)
    starts = [id for id, move in retrievals.items() if any(item.node == id for item in seen.moves[move])]
    walks = [_Walk(id, truth.paths[id][0], seen, truth) for id in starts]
    if _degree_is_the_count(seen, truth):
        return finish([str(len(truth.counted))])
    if moves := [move for walk in walks for move in walk.ahead()]:
        return _line(moves)
    found = sought(steps, truth)
    if truth.counted:
        return finish([str(len(found))])
    others = [_Walk(id, path, seen, truth) for id in starts for path in truth.paths[id][1:]]
    behind = [move for walk in (*walks, *others) for move in walk.left_behind()]
    if behind and not found:
        return _line(behind)
    return finish(found or [UNKNOWN], joined=bool(truth.topics))


def slipped(
    question: Question, steps: Sequence[Step], truth: Truth, slip: Random, *, avoided: Iterable[str] = ()
) -> str:
    """A well-formed action line that leads astray: a wrong answer, or a move off the gold paths.

    What the advice of a reflection says to avoid is not done again; with nothing else to do wrong, it is done right.
    """
    seen = _Seen(steps)
    names = {item.name or item.text for item in seen.items if not truth.is_sought(item.node, item.name)}
    nodes = sorted({item.node for item in seen.items if isinstance(item.node, str)})
    gold = {relation.name for paths in truth.paths.values() for path in paths for relation in path}
    away = [f"Relations[{print_id(node)}]" for node in nodes[:3]]
    away += [
        f"NeighbourCheck[{print_id(node)}, {name}]" for node in nodes[:3] for name in seen.offered if name not in gold
    ]
    away += ["RetrieveNode[something else]"] * (not steps)
    wrong = [finish([name]) for name in (*sorted(names)[:5], UNKNOWN)]
    shunned = set(avoided)
    pool = [move for move in (*away, *wrong) if move not in shunned]
    return slip.choice(pool) if pool else plan(question, steps, truth)


def plan_by_similarity(question: Question, steps: Sequence[Step], encoder: LexicalEncoder, *, described: bool) -> str:
    """Find a node, follow the relation most like the question once, name what is there, and answer with it.

    `described` says whether the graph lists relations and shows names; where it does not, an error names what there is.
    """
    seen = _Seen(steps)
    if not seen.searches:
        keywords = [one_line(topic.name) for topic in question.topic_entities] or [one_line(question.text)]
        return finish([UNKNOWN]) if steps else _line(f"RetrieveNode[{keyword}]" for keyword in keywords)
    start = print_id(seen.searches[0])
    if found := seen.neighbours:
        if described or seen.named:
            answers = found if described else seen.named
            return finish([item.name or item.text for item in answers], joined=not described)
        ids = [print_id(item.node) for item in found if isinstance(item.node, str)][:_NAMED]
        tries = [_line(f"NodeFeature[{id}, {feature}]" for id in ids) for feature in ("name", "title")]
    else:
        offered = seen.offered if described else _known_types(steps)
        ranked = rank_relations(offered, question.text, encoder)
        look = f"Relations[{start}]" if described else f"NeighbourCheck[{start}, unknown]"
        tries = [look, *(f"NeighbourCheck[{start}, {name}]" for name in ranked[:1])]
    used = {step.action for step in steps}
    return next((line for line in tries if line and line not in used), finish([UNKNOWN]))


def sought(steps: Iterable[Step], truth: Truth) -> list[str]:
    """The names of all that was shown and is sought: one per thing to count, or the distinct answers in gold order."""
    items = {item.node: item for item in _Seen(steps).items if truth.is_sought(item.node, item.name)}
    names = [
        item.node.value if isinstance(item.node, LiteralNode) else item.name or item.text for item in items.values()
    ]
    if truth.counted:
        return names
    listed = enumerate(name for answer in truth.gold.answers for name in (answer.name, *answer.aliases))
    order = {normalise(name): place for place, name in listed}
    texts = {normalise(name): name for name in names}
    return [texts[form] for form in sorted(texts, key=lambda form: order.get(form, len(order)))]


def finish(answers: Sequence[str], *, joined: bool = False) -> str:
    """`Finish` with one answer as text, several as a list, or `joined` as GRBench writes a list."""
    texts = list(dict.fromkeys(answers))
    if joined:
        return f"Finish[{', '.join(texts)}]"
    if len(texts) == 1 and not texts[0].startswith(("[", '"')):
        return f"Finish[{texts[0]}]"
    return f"Finish[{json.dumps(texts, ensure_ascii=False)}]"


class _Seen:
    """What the scratchpad shows."""

    def __init__(self, steps: Iterable[Step]) -> None:
        observed = [seen for step in steps for seen in step.observations]
        self.listings: list[Listing] = [listing for seen in observed for listing in seen.listings]
        self.moves: dict[str, list[Item]] = {
            f"{seen.action.tool}[{seen.action.content}]": [item for one in seen.listings for item in one.items]
            for seen in observed
        }
        """Per action that was carried out what it showed; nothing when it failed."""

    @property
    def searches(self) -> list[EntityId]:
        """Nodes that were searched for."""
        items = (item for one in self.listings if one.via == "search" for item in one.items)
        return [item.node for item in items if isinstance(item.node, str)]

    @property
    def items(self) -> Iterator[Item]:
        """All nodes and values but those that were searched for and the names of relations."""
        return (item for one in self.listings if one.via not in {"search", "relations"} for item in one.items)

    @property
    def offered(self) -> list[str]:
        """Relations that were listed."""
        return [item.text for one in self.listings if one.via == "relations" for item in one.items]

    @property
    def neighbours(self) -> list[Item]:
        """What lists of neighbours showed."""
        lists = (one for one in self.listings if one.via not in {"search", "relations"} and not one.bare)
        return [item for one in lists for item in one.items]

    @property
    def named(self) -> list[Item]:
        """Names that were asked for."""
        return [item for one in self.listings if one.via in {"name", "title"} for item in one.items]

    def behind(self, node: EntityId, relation: Relation) -> list[EntityId]:
        """The nodes that were shown behind a hop."""
        lists = (one for one in self.listings if one.source == node and one.via == relation.name)
        items = (item for one in lists if one.direction == relation.direction for item in one.items)
        return [item.node for item in items if isinstance(item.node, str)]


@dataclass(frozen=True, slots=True)
class _Layer:
    relation: Relation
    nodes: list[EntityId]
    last: bool
    todo: list[EntityId] = field(default_factory=list)
    """Nodes from which the hop was not made."""


@dataclass(frozen=True)
class _Walk:
    """A gold path from a topic, and how far it has been walked."""

    start: EntityId
    path: RelationPath
    seen: _Seen
    truth: Truth

    def ahead(self) -> list[str]:
        """The moves at the first layer that is not entered yet, or not walked to its end where it has to be."""
        whole = bool(self.truth.counted or self.truth.topics)
        layers = (layer for layer in self._layers() if layer.todo)
        layer = next((layer for layer in layers if whole or layer.todo == layer.nodes), None)
        return self._moves(layer) if layer else []

    def left_behind(self) -> list[str]:
        """The moves that were left out, at the deepest layer that has any."""
        layers = [layer for layer in self._layers() if layer.todo]
        return self._moves(layers[-1]) if layers else []

    def _layers(self) -> Iterator[_Layer]:
        nodes = [self.start]
        for depth, relation in enumerate(self.path, start=1):
            layer = _Layer(relation, nodes, last=depth == len(self.path))
            layer.todo.extend(node for node in nodes if self._check(node, layer) not in self.seen.moves)
            yield layer
            nodes = list(dict.fromkeys(end for node in nodes for end in self.seen.behind(node, relation)))

    def _moves(self, layer: _Layer) -> list[str]:
        """A count behind a single node may be its degree: if it turns out not to be, the neighbours are listed."""
        checks = [self._check(node, layer) for node in layer.todo]
        if self.truth.counted and layer.last and len(layer.nodes) == 1:
            degree = f"NodeDegree[{print_id(layer.nodes[0])}, {layer.relation.name}]"
            return checks if degree in self.seen.moves else [degree]
        return checks

    def _check(self, node: EntityId, layer: _Layer) -> str:
        tool = "NeighbourCheck"
        if layer.relation.name in self.truth.features:
            tool = "NodeFeature"
        elif layer.last and self.truth.topics:
            tool = "NodeDegree"  # in GRBench what is no feature is a number
        return f"{tool}[{print_id(node)}, {layer.relation.name}]"


def _degree_is_the_count(seen: _Seen, truth: Truth) -> bool:
    number = str(len(truth.counted))
    degrees = (item.text for one in seen.listings if one.via.startswith("degree of ") for item in one.items)
    return bool(truth.counted) and number in degrees


def _known_types(steps: Iterable[Step]) -> list[str]:
    """What an error said that a node has."""
    texts = [seen.text for step in steps for seen in step.observations if not seen.ok]
    named = [text.partition("It has: ")[2].removesuffix(".") for text in texts]
    return sorted({name for text in named for name in text.split(", ") if name and name != "none"})


def _line(moves: Iterable[str]) -> str:
    """As many moves as one reply holds."""
    line = ""
    for move in dict.fromkeys(moves):
        if line and len(line) + len(move) > _LINE:
            break
        line = f"{line} {move}".lstrip()
    return line
