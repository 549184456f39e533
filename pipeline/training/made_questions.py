"""Makes questions from the facts of a Freebase-like graph, so that a model learns to search unfamiliar graphs.

A question follows one or two relations from a named node, and names them by the words of their ids:
`people.person.place_of_birth` is asked for as `place of birth`. An unnamed node on the way, which joins parts of a
fact, is passed. The rows are those of `dataset=custom`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from pipeline.types import LiteralNode, Node, Triple

_UNNAMED = re.compile(r"[mg]\.[0-9a-z_]+")
_TEXTS = (
    "what is the {asked} of {topic}",
    "what {asked} does {topic} have",
    "name the {asked} of {topic}",
    "find the {asked} for {topic}",
    "{topic} {asked}",
)
_ATTEMPTS = 50
"""Walks per question: most end at too many nodes, or nowhere."""
_MOST_ANSWERS = 10
_SECOND_STEP = 0.5
"""Share of the questions that follow a second fact."""

_Graph = Mapping[Node, Mapping[str, Sequence[Node]]]
"""Node → relation → the nodes it leads to."""


def make_questions(triples: Iterable[Triple], count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield up to `count` different questions, each with its topic, answers and relation path."""
    graph: defaultdict[Node, defaultdict[str, list[Node]]] = defaultdict(lambda: defaultdict(list))
    for head, relation, tail in triples:
        graph[head][relation].append(tail)
    topics = sorted(node for node in graph if isinstance(node, str) and not _UNNAMED.fullmatch(node))
    rng, seen = Random(seed), set[str]()
    for _ in range(count * _ATTEMPTS):
        if len(seen) == count:
            return
        row = _make_question(graph, rng.choice(topics), rng)
        if row is not None and row["question"] not in seen:
            seen.add(row["question"])
            yield {"id": f"made-{len(seen)}", **row}


def _make_question(graph: _Graph, topic: str, rng: Random) -> dict[str, Any] | None:
    """Return a question about a node; None if the drawn relations do not lead to a few named nodes."""
    nodes: list[Node] = [topic]
    path: list[str] = []
    asked: list[str] = []
    for _ in range(2 if rng.random() < _SECOND_STEP else 1):
        fact: list[str] = []
        while not fact or all(_is_unnamed(node) for node in nodes):
            relations = sorted({relation for node in nodes for relation in graph.get(node, ())})
            if not relations or len(fact) == 2:
                return None
            fact.append(rng.choice(relations))
            nodes = [tail for node in nodes for tail in graph.get(node, {}).get(fact[-1], ()) if tail != topic]
            if not nodes:
                return None
        path += fact
        asked.append(" ".join(dict.fromkeys(word for relation in fact for word in _words(relation))))
    answers = sorted({node.value if isinstance(node, LiteralNode) else node for node in nodes if not _is_unnamed(node)})
    if len(answers) > _MOST_ANSWERS:
        return None
    text = rng.choice(_TEXTS).format(asked=" of the ".join(reversed(asked)), topic=topic)
    return {"question": text, "topic_entities": [topic], "answers": answers, "gold_relation_paths": [path]}


def _is_unnamed(node: Node) -> bool:
    return isinstance(node, str) and _UNNAMED.fullmatch(node) is not None


def _words(relation: str) -> list[str]:
    """Return the words of a relation's own name, without the mark of a plural (`sibling_s`)."""
    return relation.rpartition(".")[2].removesuffix("_s").split("_")
