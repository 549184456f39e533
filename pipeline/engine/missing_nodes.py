"""Counts the questions that name nodes or relations which are not in the graph, before money is spent on them."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pipeline import config
from pipeline.datasets.gold_paths import SparqlPaths
from pipeline.grouping import grouped
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.kg.fit_to_graph import fit_to_graph
from pipeline.kg.interface import AttributedGraph, KnowledgeGraph
from pipeline.net.server_stats import HasServerStats
from pipeline.normalisation import canonical_literal
from pipeline.percentages import percentage
from pipeline.text import agreeing, counted
from pipeline.types import EntityId, Example, Gold, GoldAnswer

_OF_SERVERS = 200
"""Questions that are looked up in graph servers. In a graph of this process, all are."""
_CHUNK = 100
_SECONDS = 1.0
"""After this time, no more questions are looked up."""


@dataclass(slots=True)
class MissingNodes:
    """How many of some questions name nodes or relations that the graph does not have."""

    questions: int = 0
    complete: bool = False
    """Whether these are all questions."""
    topics: int = 0
    """Questions with topic entities."""
    without_topics: int = 0
    """Questions without topic entities, where the graph has no nodes that are found by their texts."""
    no_topic: int = 0
    """Questions of which a topic entity is not in the graph."""
    topic: str = ""
    """Such an entity."""
    topic_node: EntityId | None = None
    """The node of which `topic` is the name."""
    golds: int = 0
    """Questions with gold answers."""
    no_gold: int = 0
    """Questions of which no gold answer is in the graph, by its id or its exact name."""
    gold: str = ""
    """Such an answer."""
    unnamed: int = 0
    """Questions with a gold answer in the graph, none of which has a name there."""
    unnamed_gold: EntityId = ""
    """Such an answer."""
    no_way: int = 0
    """Questions without a gold path whose answers are values that the graph does not hold, such as counts."""
    value: str = ""
    """Such a value."""
    no_relation: int = 0
    """Questions of which a gold path names a relation that the graph does not have."""
    relation: str = ""
    """Such a relation."""
    hidden_by_start: Sequence[str] = ()
    """The relations of a user's graph that are not offered, for the start of their names."""
    hidden_by_part: Sequence[str] = ()
    """Such relations that are not offered for another part of their names."""
    hidden: str = ""
    """A relation that is not offered, of a topic entity or a gold answer that has no relation that is."""

    @property
    def among(self) -> str:
        """The questions that were looked up."""
        return self._first(counted(self.questions, "question"))

    @property
    def about_no_topics(self) -> str:
        """How many questions name no topic entity, and what this means."""
        return (
            f"{self.without_topics:,} of {self.among}: no topic entity is given, from which most methods search the "
            "graph: such an answer is the model's alone"
        )

    @property
    def about_topics(self) -> str:
        """How many questions have a topic entity that is not in the graph."""
        found = f"{self.no_topic:,} of {self.among}: topic entity not in the graph (e.g. '{self.topic}')"
        if self.topic_node is None:
            return f"{found}{self._or_hidden}"
        return f"{found}: '{self.topic}' is the name of '{self.topic_node}', and topic entities are given by their ids"

    @property
    def about_golds(self) -> str:
        """How many questions have no gold answer in the graph, and what this means."""
        best = percentage(1 - self.no_gold / self.golds)
        found = f"{self.no_gold:,} of {self._among_golds}: no gold answer in the graph (e.g. '{self.gold}')"
        return (
            f"{found}{self._or_hidden}; with answers from the graph, Hits@1 cannot exceed {best} %, unless these "
            "names are only spelled differently, have other spaces, or are in a language that kg.vocabulary.languages "
            "does not list"
        )

    @property
    def about_unnamed(self) -> str:
        """How many questions have only gold answers that no prompt can show."""
        return (
            f"{self.unnamed:,} of {self._among_golds}: the graph has no name for a gold answer (e.g. "
            f"'{self.unnamed_gold}'): no method can read it there"
        )

    @property
    def about_values(self) -> str:
        """How many questions have an answer that a simulated model cannot find."""
        return (
            f"{self.no_way:,} of {self._among_golds}: the answer (e.g. '{self.value}') is a value that is not in the "
            "graph in this spelling, and no gold path that can be read (gold_relation_paths or sparql) says how to "
            "find or compute it: the oracle may not know the answer"
        )

    @property
    def about_relations(self) -> str:
        """How many questions have a gold path that names an unknown relation."""
        return (
            f"{self.no_relation:,} of {self.among}: gold_relation_paths names a relation that is not in the graph "
            f"(e.g. '{self.relation}'): a path with it cannot be followed"
        )

    @property
    def about_hidden(self) -> list[str]:
        """How many relations of the graph no method gets, why, and what to do: a sentence for each reason."""
        reasons = (
            (self.hidden_by_start, "of a name like Freebase's bookkeeping (kg.vocabulary.hidden=[] offers them)"),
            (self.hidden_by_part, "the name contains ://, # or sameAs (give them other names)"),
        )
        return [
            f"{counted(len(hidden), 'relation')} of the graph {agreeing('are', len(hidden))} never offered to a method "
            f"(e.g. '{hidden[0]}'), because {reason}"
            for hidden, reason in reasons
            if hidden
        ]

    @property
    def _or_hidden(self) -> str:
        """The other reason for a node to be missing, if one is missing for it."""
        if not self.hidden:
            return ""
        key = "" if self.hidden in self.hidden_by_part else " (kg.vocabulary.hidden)"
        return f", or only with relations that are never offered, such as '{self.hidden}'{key}"

    @property
    def _among_golds(self) -> str:
        """The questions with gold answers that were looked up. The others have no score."""
        if self.golds == self.questions:
            return self.among
        return self._first(f"{counted(self.golds, 'question')} with gold answers")

    def _first(self, questions: str) -> str:
        return questions if self.complete else f"the first {questions}"

    def warnings(self) -> list[str]:
        """Return one sentence for each kind of nodes or relations that are missing."""
        without = [self.about_no_topics] if self.without_topics else []
        topics = [self.about_topics] if self.no_topic else []
        golds = [self.about_golds] if self.no_gold else []
        unnamed = [self.about_unnamed] if self.unnamed else []
        values = [self.about_values] if self.no_way else []
        relations = [self.about_relations] if self.no_relation else []
        return [*self.about_hidden, *without, *topics, *golds, *unnamed, *values, *relations]


async def count_missing_nodes(
    graph: KnowledgeGraph, examples: Iterator[Example], *, for_oracle: bool = False
) -> MissingNodes:
    """Look the first questions up in the graph, in batches and for a few seconds at most. Raises ServiceError.

    `no_way` is counted only `for_oracle`: gold paths are read for it, which takes long for gold queries.
    """
    found, ends = MissingNodes(), time.monotonic() + _SECONDS
    if isinstance(graph, EmbeddedGraph):
        found.hidden_by_start, found.hidden_by_part = graph.hidden_relations()
    wanted = islice(examples, _OF_SERVERS) if isinstance(graph, HasServerStats) else examples
    while chunk := await asyncio.to_thread(lambda: list(islice(wanted, _CHUNK))):
        for each, asked in _by_graph(graph, chunk):
            fitted = await asyncio.gather(*(fit_to_graph(example, each) for example in asked))
            await _count(each, fitted, found, for_oracle=for_oracle)
            if time.monotonic() > ends:
                return found
    found.complete = await asyncio.to_thread(next, examples, None) is None
    return found


def told_apart(asked: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the start of a sentence about each of some sections of questions and graphs: what differs.

    Each has the sections `dataset`, `kg` and `run`, and `choices`, the names of the chosen files. It is empty for a
    single one. Where the choices differ, they are named. Where they do not, one key is named if its values tell all
    apart, else all keys that differ.
    """
    chosen = [each["choices"] for each in asked]
    differing = _differing(chosen)
    starts = [[f"{group}={each[group]}" for group in differing] for each in chosen]
    for alike in grouped(range(len(asked)), lambda place: config.canonical(chosen[place])).values():
        flat = [dict(config.flatten({**asked[place], "choices": {}})) for place in alike]
        keys = _differing(flat)
        telling = next(([key] for key in keys if _count_values(key, flat) == len(flat)), keys)
        for place, values in zip(alike, flat, strict=True):
            starts[place] += [f"{key}={config.written(values.get(key))}" for key in telling]
    return [f"{' '.join(words)}: " if words else "" for words in starts]


def _differing(sections: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys whose values differ between sections."""
    keys = dict.fromkeys(key for each in sections for key in each)
    return [key for key in keys if _count_values(key, sections) > 1]


def _count_values(key: str, sections: Sequence[Mapping[str, Any]]) -> int:
    """Count the different values of a key in some sections; a section without it has null."""
    return len({config.canonical(each.get(key)) for each in sections})


def _by_graph(graph: KnowledgeGraph, examples: Sequence[Example]) -> Iterator[tuple[KnowledgeGraph, Sequence[Example]]]:
    """Yield the examples together if they share one graph, else each with its own."""
    if graph.for_question(examples[0].question) is graph:
        yield graph, examples
    else:
        for example in examples:
            yield graph.for_question(example.question), [example]


async def _count(graph: KnowledgeGraph, examples: Sequence[Example], found: MissingNodes, *, for_oracle: bool) -> None:
    topics = {entity.id for example in examples for entity in example.question.topic_entities}
    golds = {id for example in examples for gold in example.gold.answers for id in _ids(gold)}
    nodes = {id for id, relations in (await graph.relations([*(topics | golds)])).items() if relations}
    unknown = [
        example for example in examples if all(_may_be_absent(gold, nodes, graph) for gold in example.gold.answers)
    ]
    computed = [example for example in examples if for_oracle and _has_computed_answers(example.gold, nodes, graph)]
    names = {
        name
        for example in (*unknown, *computed)
        for gold in example.gold.answers
        for name in (gold.name, *gold.aliases)
    }
    named = {name for name, ids in (await graph.find_by_name([*names], 1)).items() if ids}
    if found.topic_node is None and (by_name := await _given_by_name(graph, topics - nodes)):
        found.topic, found.topic_node = by_name
    await _count_unnamed(graph, examples, nodes, found)
    for example in examples:
        absent = [entity.id for entity in example.question.topic_entities if entity.id not in nodes]
        found.questions += 1
        found.topics += bool(example.question.topic_entities)
        found.without_topics += not (example.question.topic_entities or isinstance(graph, AttributedGraph))
        found.no_topic += bool(absent)
        found.topic = found.topic or next(iter(absent), "")
        found.hidden = found.hidden or _hidden_relation(absent, graph)
        found.golds += bool(example.gold.answers)
    for example in unknown:
        if example.gold.answers and not _is_named(example.gold, named):
            found.no_gold += 1
            found.gold = found.gold or example.gold.answers[0].name
            ids = [each.id or each.name for each in example.gold.answers]
            found.hidden = found.hidden or _hidden_relation(ids, graph)
    for relation in filter(None, (_unknown_relation(example.gold, graph) for example in examples)):
        found.no_relation += 1
        found.relation = found.relation or relation
    for example in computed:
        if not _is_named(example.gold, named) and not example.gold.paths:
            found.no_way += 1
            found.value = found.value or example.gold.answers[0].name


async def _count_unnamed(
    graph: KnowledgeGraph, examples: Sequence[Example], nodes: Set[EntityId], found: MissingNodes
) -> None:
    """Count the questions none of whose gold answers has a name in the graph, and one of which is among these nodes."""
    ids = {gold.id for example in examples for gold in example.gold.answers if gold.id in nodes}
    unnamed = {id for id, name in (await graph.labels(sorted(filter(None, ids)))).items() if name is None}
    having = [example for example in examples if any(gold.id in unnamed for gold in example.gold.answers)]
    names = {name for example in having for gold in example.gold.answers for name in (gold.name, *gold.aliases)}
    named = {name for name, known in (await graph.find_by_name(sorted(names), 1)).items() if known}
    for example in having:
        golds = example.gold.answers
        absent = (gold.id in unnamed or _may_be_absent(gold, nodes, graph) for gold in golds)
        texts = isinstance(graph, EmbeddedGraph) and any(graph.has_text(gold.name) for gold in golds)
        if all(absent) and not texts and not _is_named(example.gold, named - unnamed):
            found.unnamed += 1
            found.unnamed_gold = found.unnamed_gold or next(gold.id for gold in golds if gold.id in unnamed) or ""


async def _given_by_name(graph: KnowledgeGraph, absent: Collection[EntityId]) -> tuple[str, EntityId] | None:
    """Return the first of the absent ids that is the name of another node, and this node."""
    found = await graph.find_by_name(sorted(absent), 1)
    return next(((name, id) for name, ids in sorted(found.items()) for id in ids if id != name), None)


def _hidden_relation(ids: Sequence[EntityId], graph: KnowledgeGraph) -> str:
    """Return a relation of one of the nodes, none of which is offered; a server is not asked for it."""
    relations = map(graph.any_relation, ids) if isinstance(graph, EmbeddedGraph) else ()
    return next(filter(None, relations), "")


def _unknown_relation(gold: Gold, graph: KnowledgeGraph) -> str | None:
    """Return the first relation of the given gold paths that the graph does not have; a server is not asked for it."""
    if not isinstance(gold.paths, SparqlPaths) or not isinstance(graph, EmbeddedGraph):
        return None
    return next((relation for relation in gold.paths.given_relations if not graph.has_relation(relation)), None)


def _is_named(gold: Gold, named: Collection[str]) -> bool:
    """Whether an answer is among the names of nodes."""
    return any(name in named for answer in gold.answers for name in (answer.name, *answer.aliases))


def _may_be_absent(gold: GoldAnswer, nodes: Set[EntityId], graph: KnowledgeGraph) -> bool:
    """Whether an answer has no node by its id, and should have one: it is no value, and no text of a fact."""
    if not nodes.isdisjoint(_ids(gold)) or isinstance(graph, AttributedGraph) or _is_value(gold.name):
        return False
    if isinstance(graph, EmbeddedGraph):
        return not graph.has_text(gold.name)
    # Other graphs cannot search texts. In a server, an id that equals the name may be one.
    return gold.id is not None and not (isinstance(graph, HasServerStats) and gold.id == gold.name)


def _ids(gold: GoldAnswer) -> list[EntityId]:
    """Return the ids of an answer: its own, and the aliases that may be ids, as `answer_mids` are."""
    own = [] if gold.id is None else [gold.id]
    return [*own, *(alias for alias in gold.aliases if not re.search(r"\s", alias))]


def _has_computed_answers(gold: Gold, nodes: Collection[EntityId], graph: KnowledgeGraph) -> bool:
    """Whether all answers are values, such as counts, that are no node by their id and stand in no fact."""
    if not isinstance(graph, EmbeddedGraph) or not gold.answers:  # other graphs cannot search texts
        return False
    return all(_is_value(each.name) and each.id not in nodes and not graph.has_text(each.name) for each in gold.answers)


def _is_value(text: str) -> bool:
    """Whether a text is a number, a date or a truth value, which may be computed."""
    is_literal = canonical_literal(text) != text or not any(map(str.isalpha, text))
    return is_literal or text.lower() in ("yes", "no", "true", "false")
