"""Fits a question and its gold to a graph: names, current ids, and relations as the graph shows them (§8.9).

A dataset knows the ids of entities, but often not their names. Its ids and gold queries may be older than the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.datasets.gold_paths import SparqlPaths
from pipeline.datasets.gold_queries import with_names_of
from pipeline.kg.interface import HasVocabulary, KnowledgeGraph
from pipeline.rdf_terms import Terms
from pipeline.types import Entity, EntityId, Example, Gold, GoldAnswer, Relation, RelationPath


async def fit_to_graph(example: Example, kg: KnowledgeGraph) -> Example:
    """Return the example as the graph of its question knows it. Raises ServiceError.

    Topic entities and gold answers that are given as ids get their names. Redirected ids become current ids. Gold paths
    and the gold query name relations as the graph shows them. A graph without a vocabulary (GRBench) changes nothing.
    """
    if not isinstance(kg, HasVocabulary):
        return example
    topics = example.question.topic_entities
    answers = {answer: id for answer in example.gold.answers if (id := _id_of(answer, kg.terms)) is not None}
    given = [*(topic.id for topic in topics if _is_id(topic.id, kg.terms)), *answers.values()]
    current = await kg.current_ids(list(dict.fromkeys(_local(id, kg.terms) for id in given)))
    ids = {id: current[_local(id, kg.terms)] for id in given}
    unnamed = {ids.get(topic.id, topic.id) for topic in topics if topic.name == topic.id}
    unnamed |= {ids[id] for answer, id in answers.items() if answer.name == id}
    names = await kg.labels(sorted(unnamed)) if unnamed else {}
    return _Fit(kg.terms, ids, names).example(example)


@dataclass(frozen=True, slots=True)
class _Fit:
    """What a graph knows of the entities of a question."""

    terms: Terms
    ids: Mapping[EntityId, EntityId]
    """Id in the dataset → id in the graph."""
    names: Mapping[EntityId, str | None]
    """The names of the entities for which the dataset has none."""

    def example(self, example: Example) -> Example:
        topics = tuple(dict.fromkeys(map(self._entity, example.question.topic_entities)))
        answers = tuple(dict.fromkeys(map(self._answer, example.gold.answers)))
        if self.terms.percent_encoded and (topics, answers) == (example.question.topic_entities, example.gold.answers):
            return example
        gold = replace(example.gold, answers=answers)
        if not self.terms.percent_encoded:
            gold = self._with_relations(gold)
        return Example(replace(example.question, topic_entities=topics), gold)

    def _entity(self, entity: Entity) -> Entity:
        id = self.ids.get(entity.id, entity.id)
        return Entity(id, (self.names.get(id) or id) if entity.name == entity.id else entity.name)

    def _answer(self, answer: GoldAnswer) -> GoldAnswer:
        given = _id_of(answer, self.terms)
        if given is None:
            return answer
        id = self.ids[given]
        return replace(answer, id=id, name=(self.names.get(id) or id) if answer.name == given else answer.name)

    def _with_relations(self, gold: Gold) -> Gold:
        paths = gold.paths
        if isinstance(paths, SparqlPaths):
            renamed: Mapping[EntityId, tuple[RelationPath, ...]] = paths.renamed(
                self._query,
                {self._node(constant): self._node(topic) for constant, topic in paths.topics.items()},
                self._path,
            )
        else:
            renamed = {self._node(topic): tuple(map(self._path, of_topic)) for topic, of_topic in paths.items()}
        return replace(gold, paths=renamed, sparql=gold.sparql and self._query(gold.sparql))

    def _query(self, sparql: str) -> str:
        return with_names_of(sparql, self._name_of)

    def _name_of(self, iri: str) -> str | None:
        """Return the name of a relation, or else the id of a node, by its IRI."""
        if (name := self.terms.relation_name(iri)) is not None and self._is_relation(iri):
            return name
        node = self.terms.from_iri(iri)
        return None if node is None else self.ids.get(node, node)

    def _is_relation(self, iri: str) -> bool:
        """Whether an IRI is that of a relation, where nodes and relations share a prefix."""
        return bool(self.terms.relations) or self.terms.plain_relation(iri) in self.terms.relation_labels

    def _node(self, id: EntityId) -> EntityId:
        local = _local(id, self.terms)
        return self.ids.get(id) or self.ids.get(local) or local

    def _path(self, path: Sequence[Relation]) -> RelationPath:
        return tuple(Relation(self._relation(step.name), step.direction) for step in path)

    def _relation(self, name: str) -> str:
        plain = self.terms.predicate_name(name)
        return self.terms.relation_labels.get(plain, plain)


def _id_of(answer: GoldAnswer, terms: Terms) -> EntityId | None:
    """Return the id of an answer, which may stand in place of its name."""
    if answer.id is not None:
        return answer.id
    return answer.name if _is_id(answer.name, terms) else None


def _is_id(text: str, terms: Terms) -> bool:
    """Whether a text is certainly an id. If any text could be an id in this graph, only an IRI is certain."""
    return terms.own_name(_local(text, terms)) is None and (bool(terms.opaque_ids) or "://" in text)


def _local(id: EntityId, terms: Terms) -> EntityId:
    """Return the id of a node that is given by its IRI; any other id as it is."""
    return (terms.from_iri(id) or id) if not terms.percent_encoded and "://" in id else id
