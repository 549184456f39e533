"""Builds the parts of a method's `Answer`: votes over samples, answers linked to entities, evidence names, status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pipeline.methods.answering import Answers
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.interface import Recorder
from pipeline.methods.rendering import Names
from pipeline.normalisation import normalise
from pipeline.types import Answer, Chain, EntityId, Node, Prediction, Question, Status


def majority(samples: Sequence[Answers]) -> tuple[Prediction, ...]:
    """Return the answers given by more than half of the samples, else the most frequent ones.

    Answers with equal normal forms count as one. The score is the share of the samples. The most frequent answer comes
    first; of equally frequent ones, the answer given first.
    """
    votes: Counter[str] = Counter()
    texts: dict[str, str] = {}
    for sample in samples:
        for text in sample.texts:
            texts.setdefault(normalise(text), text)
        votes.update(dict.fromkeys(map(normalise, sample.texts)).keys())
    min_votes = min(max(votes.values(), default=0), len(samples) // 2 + 1)
    winners = [(form, count) for form, count in votes.most_common() if count >= min_votes]
    return tuple(Prediction(texts[form], score=count / len(samples)) for form, count in winners)


def link(texts: Iterable[str], nodes: Iterable[Node], names: Names) -> tuple[Prediction, ...]:
    """Give each answer the id of the entity among `nodes` that has this name, if exactly one has it."""
    ids_by_name: dict[str, list[EntityId]] = {}
    for id in {node for node in nodes if isinstance(node, str)}:
        if name := names.get(id):
            ids_by_name.setdefault(normalise(name), []).append(id)
    matches = [(text, ids_by_name.get(normalise(text), [])) for text in texts]
    return tuple(Prediction(text, ids[0] if len(ids) == 1 else None) for text, ids in matches)


def entity_names(evidence: Iterable[Chain], names: Names) -> dict[EntityId, str | None]:
    """Return the name of each entity in the evidence, by id; None where it is unnamed or was not looked up."""
    nodes = (node for chain in evidence for fact in chain for node in (fact.head, fact.tail))
    return {id: names.get(id) for id in sorted({node for node in nodes if isinstance(node, str)})}


def answer_from_chains(
    question: Question,
    answers: Answers,
    chains: Sequence[GroundedPath],
    names: Names,
    *,
    exhausted: bool,
    record: Recorder,
) -> Answer:
    """Return the answers that a model gave for chains of facts, with the chains as evidence, and record the event."""
    facts = tuple(chain.triples for chain in chains)
    status = search_status(question, facts, exhausted=exhausted)
    record("answered", answers=answers.texts, evidence=len(facts), status=status)
    return Answer(
        predictions=link(answers.texts, (node for chain in chains for node in chain.nodes), names),
        raw=answers.raw,
        evidence=facts,
        names=entity_names(facts, names),
        status=status,
    )


def search_status(question: Question, evidence: Sequence[Chain], *, exhausted: bool) -> Status:
    """Return the status of a search from the topic entities (specification §2.2).

    `exhausted` says whether a limit of the budget was met.
    """
    if not question.topic_entities:
        return "no_topic_entity"
    if exhausted:
        return "budget_exhausted"
    return "ok" if evidence else "no_evidence"
