"""How methods end: answers voted on and linked to the graph, the names of their evidence, and the status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pipeline.methods.answering import Answers
from pipeline.methods.rendering import Names
from pipeline.text import normalise
from pipeline.types import Chain, EntityId, Node, Prediction, Question, Status


def majority(samples: Sequence[Answers]) -> tuple[Prediction, ...]:
    """The answers that more than half of the samples give, else those that most give; scored by their share.

    Answers are the same when their normal forms are. The most frequent comes first, then the one given first.
    """
    votes: Counter[str] = Counter()
    written: dict[str, str] = {}
    for sample in samples:
        for text in sample.texts:
            written.setdefault(normalise(text), text)
        votes.update(dict.fromkeys(map(normalise, sample.texts)).keys())
    least = min(max(votes.values(), default=0), len(samples) // 2 + 1)
    ranked = [(form, count) for form, count in votes.most_common() if count >= least]
    return tuple(Prediction(written[form], score=count / len(samples)) for form, count in ranked)


def link(texts: Iterable[str], nodes: Iterable[Node], names: Names) -> tuple[Prediction, ...]:
    """Each answer with the id of the one entity among `nodes` that has this name, if there is exactly one."""
    bearers: dict[str, list[EntityId]] = {}
    for id in {node for node in nodes if isinstance(node, str)}:
        if name := names.get(id):
            bearers.setdefault(normalise(name), []).append(id)
    found = [(text, bearers.get(normalise(text), [])) for text in texts]
    return tuple(Prediction(text, ids[0] if len(ids) == 1 else None) for text, ids in found)


def entity_names(evidence: Iterable[Chain], names: Names) -> dict[EntityId, str | None]:
    """The names of the entities in the evidence as an `Answer` holds them: by id, as far as they were looked up."""
    nodes = (node for chain in evidence for fact in chain for node in (fact.head, fact.tail))
    return {id: names.get(id) for id in sorted({node for node in nodes if isinstance(node, str)})}


def search_status(question: Question, evidence: Sequence[Chain], *, exhausted: bool) -> Status:
    """How a search from the topic entities ended (methods.md §2.2); `exhausted` says that a cap was hit."""
    if not question.topic_entities:
        return "no_topic_entity"
    if exhausted:
        return "budget_exhausted"
    return "ok" if evidence else "no_evidence"
