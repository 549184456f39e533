"""Test doubles for methods: a graph in memory, a scripted model, and the tools that connect them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from random import Random
from typing import Any, TypeVar

from pipeline.datasets.inverses import Inverses
from pipeline.errors import BudgetExhausted, ParseError
from pipeline.kg.interface import AttributeLookups, Batch, Hop, Neighbours, batch, node_order
from pipeline.llm.prompt import Candidate, Completion, Prompt, Sampling
from pipeline.methods.arg.scores import Terms
from pipeline.methods.grounded_path import GroundedPath
from pipeline.methods.interface import GoldFeedback, GoldPaths, Tools
from pipeline.retrieval.interface import Reference
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.retrieval.relations import as_text
from pipeline.simulation.completions import token_logprobs
from pipeline.simulation.gold_context import GoldContext
from pipeline.types import Answer, Direction, Entity, EntityId, Gold, GoldAnswer, LiteralNode, Node, Question, Relation

T = TypeVar("T")
Fact = tuple[str, str, Node]


def score_without(*excluded: str) -> Terms:
    """The terms of ArG's score, except those excluded."""
    return Terms(**{term.name: term.name not in excluded for term in fields(Terms)})


class DictionaryGraph:
    """A graph of facts in memory. Ids that start with `m.` are unnamed unless `names` contains them."""

    fingerprint = "dictionary"

    def __init__(self, facts: Iterable[Fact], names: Mapping[str, str] | None = None) -> None:
        self.names = names or {}
        self.lookups: Counter[str] = Counter()
        self.max_lookups = 10**9
        self._edges: dict[Node, dict[Relation, list[Node]]] = defaultdict(lambda: defaultdict(list))
        for head, relation, tail in facts:
            self._edges[head][Relation(relation, "out")].append(tail)
            self._edges[tail][Relation(relation, "in")].append(head)

    async def relations(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[Relation]]:
        self._count("relations", ids)
        return batch({id: sorted(self._edges[id]) if id in self._edges else [] for id in ids})

    async def neighbours(self, hops: Sequence[Hop], limit: int) -> Batch[Hop, Neighbours]:
        self._count("neighbours", hops)
        found = {hop: sorted(set(self._edges.get(hop[0], {}).get(hop[1], ())), key=node_order) for hop in hops}
        return batch({hop: Neighbours(tuple(nodes[:limit]), len(nodes) > limit) for hop, nodes in found.items()})

    async def labels(self, ids: Sequence[EntityId]) -> Batch[EntityId, str | None]:
        self._count("labels", ids)
        return batch({id: self._name(id) for id in ids})

    async def find_by_name(self, names: Sequence[str], limit: int) -> Batch[str, list[EntityId]]:
        self._count("find_by_name", names)
        ids = sorted(node for node in self._edges if isinstance(node, str))
        return batch({name: [id for id in ids if self._name(id) == name][:limit] for name in names})

    async def mediators(self, ids: Sequence[EntityId]) -> Batch[EntityId, bool]:
        self._count("mediators", ids)
        return batch({id: self._name(id) is None for id in ids})

    async def types(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[str]]:
        self._count("types", ids)
        return batch({id: [] for id in ids})

    async def inverses(self) -> Inverses:
        return {}

    def vocabulary(self) -> list[str]:
        return sorted({relation.name for edges in self._edges.values() for relation in edges})

    def _name(self, id: EntityId) -> str | None:
        return self.names.get(id, None if id.startswith("m.") else id)

    def _count(self, operation: str, arguments: Sequence[Any]) -> None:
        if not arguments:
            return
        if self.lookups.total() >= self.max_lookups:
            raise BudgetExhausted("max_kg_queries reached")
        self.lookups[operation] += 1


NEXT_CANDIDATE = "\n%%\n"
"""Parts the candidates in a scripted reply to a call that asks for several."""


class ScriptedModel:
    """A model with replies by role, in order; the last one repeats. For other roles, `write` writes the reply."""

    def __init__(self, replies: Mapping[str, str | Sequence[str]], write: Callable[[Prompt[Any]], str] | None) -> None:
        self.replies = {role: [reply] if isinstance(reply, str) else list(reply) for role, reply in replies.items()}
        self.write = write
        self.prompts: list[Prompt[Any]] = []
        self.samplings: list[Sampling] = []
        self.complaints: list[str] = []
        self.max_calls = 10**9

    @property
    def roles(self) -> list[str]:
        """The role of each call in order, re-asked calls included."""
        return [prompt.role for prompt in self.prompts]

    def last(self, role: str) -> Prompt[Any]:
        """Return the last prompt of a role."""
        return next(prompt for prompt in reversed(self.prompts) if prompt.role == role)

    async def ask(self, prompt: Prompt[T], sampling: Sampling, *, retries: int = 2, last: bool = False) -> T:
        value, _ = await self.read(prompt, sampling, retries=retries, last=last)
        return value

    async def read(
        self, prompt: Prompt[T], sampling: Sampling, *, retries: int = 2, last: bool = False
    ) -> tuple[T, Completion]:
        completion = Completion("")
        for _ in range(retries + 1):
            completion = await self._complete(prompt, sampling, last=last)
            try:
                return prompt.parse(completion.text), completion
            except ParseError as error:
                self.complaints.append(str(error))
        return prompt.fallback(completion.text), completion

    async def complete(self, prompt: Prompt[Any], sampling: Sampling) -> Completion:
        return await self._complete(prompt, sampling, last=False)

    async def choose(self, prompt: Prompt[Any], choices: Sequence[str], sampling: Sampling) -> dict[str, float]:
        raise NotImplementedError

    async def _complete(self, prompt: Prompt[Any], sampling: Sampling, *, last: bool) -> Completion:
        if len(self.prompts) >= self.max_calls and not last:
            raise BudgetExhausted("max_llm_calls reached")
        prompt.messages()
        self.prompts.append(prompt)
        self.samplings.append(sampling)
        if replies := self.replies.get(prompt.role):
            return _completion(replies.pop(0) if len(replies) > 1 else replies[0], sampling)
        assert self.write is not None, f"the script has no reply for {prompt.role}"
        return _completion(self.write(prompt), sampling)


def _completion(text: str, sampling: Sampling) -> Completion:
    logprobs = None if sampling.logprobs is None else token_logprobs(text)
    if sampling.candidates == 1:
        return Completion(text, logprobs=logprobs)
    candidates = tuple(map(Candidate, text.split(NEXT_CANDIDATE)))
    return Completion(candidates[0].text, logprobs=logprobs, candidates=candidates)


@dataclass
class PlainRetrieval:
    """Retrieval that binds a relation to those in `bound`, or to itself."""

    bound: Mapping[str, list[str]] = field(default_factory=dict)
    base: Sequence[Reference] = ()
    encoder: LexicalEncoder = field(default_factory=LexicalEncoder)
    asked: list[tuple[int, bool, bool]] = field(default_factory=list)
    hybrid: list[bool] = field(default_factory=list)
    """Of each search for relations."""

    async def rank(self, query: str, texts: Sequence[str]) -> list[int]:
        scores = self.encoder.similarities(query, texts)
        return sorted(range(len(texts)), key=lambda index: (-scores[index], index))

    async def relations(self, query: str, k: int, *, hybrid: bool = True) -> list[str]:
        self.hybrid.append(hybrid)
        return self.bound.get(query, [query])[:k]

    async def nodes(self, query: str, k: int, *, labelled: bool = False) -> list[EntityId]:
        return []

    async def references(
        self, question: Question, k: int, *, random: bool = False, masked: bool = False
    ) -> list[Reference]:
        self.asked.append((k, random, masked))
        return list(self.base[:k])


@dataclass
class VocabularyRetrieval(PlainRetrieval):
    """Retrieval that binds a relation to the most similar ones of a vocabulary."""

    vocabulary: Sequence[str] = ()

    async def relations(self, query: str, k: int, *, hybrid: bool = True) -> list[str]:
        self.hybrid.append(hybrid)
        ranking = await self.rank(as_text(query), [as_text(name) for name in self.vocabulary])
        return [self.vocabulary[index] for index in ranking[:k]]


@dataclass(frozen=True)
class FixedCaps:
    max_evidence_triples: int = 1000
    max_frontier: int = 2000


class ScriptedTools:
    """The tools of a method, made of doubles that record how they are used."""

    def __init__(
        self,
        graph: DictionaryGraph,
        replies: Mapping[str, str | Sequence[str]] | None = None,
        *,
        write: Callable[[Prompt[Any]], str] | None = None,
        retrieval: PlainRetrieval | None = None,
        caps: FixedCaps | None = None,
        attributes: AttributeLookups | None = None,
        gold_feedback: GoldFeedback | None = None,
        gold_paths: GoldPaths | None = None,
    ) -> None:
        self.graph = graph
        self.model = ScriptedModel(replies or {}, write)
        self.retrieval = retrieval or PlainRetrieval()
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.tools = Tools(
            llm=self.model,
            kg=graph,
            retrieval=self.retrieval,
            record=lambda event, /, **payload: self.events.append((event, payload)),
            rng=lambda role, turn=0, /: Random(f"{role}|{turn}"),
            caps=caps or FixedCaps(),
            attributes=attributes,
            gold_feedback=gold_feedback,
            gold_paths=gold_paths,
        )

    def payloads(self, event: str) -> list[dict[str, Any]]:
        """Return the payloads of all recorded events of a kind."""
        return [payload for name, payload in self.events if name == event]


def question(text: str, *topics: str, dataset: str = "test", names: Mapping[str, str] | None = None) -> Question:
    """Return a question about entities. Their names are their ids unless `names` has others."""
    entities = tuple(Entity(id, (names or {}).get(id, id)) for id in topics)
    return Question("q", dataset, "test", text, entities)


def gold_context(
    asked: Question, answers: Iterable[str], paths: Mapping[str, Sequence[str]], direction: Direction = "out"
) -> GoldContext:
    """Return a gold context with answers by name and gold paths by topic entity, written as `r1 -> r2`."""
    gold = Gold(tuple(GoldAnswer(name) for name in answers))
    relations = {
        id: tuple(tuple(Relation(name, direction) for name in path.split(" -> ")) for path in listed)
        for id, listed in paths.items()
    }
    return GoldContext(asked, gold, relations)


def literal(value: str) -> LiteralNode:
    return LiteralNode(value)


def chain(*parts: Node) -> GroundedPath:
    """Return a grounded path along outgoing relations: `chain("a", "r", "b", "s", "c")`."""
    path = GroundedPath(str(parts[0]))
    for relation, node in zip(parts[1::2], parts[2::2], strict=True):
        path = path.then(Relation(str(relation), "out"), node)
    return path


def texts(answer: Answer) -> list[str]:
    """Return the predicted answers, best first."""
    return [prediction.text for prediction in answer.predictions]
