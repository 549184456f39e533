"""The model and the graph as a method sees them: the calls and lookups of one question, cached, limited and traced.

Everything between a method and the outside world happens here: call keys, the parsing policy (specification §2.4),
the call cache, the budget and the trace steps.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import orjson

from pipeline.datasets.inverses import Inverses
from pipeline.engine.call_cache import CallCache
from pipeline.engine.question_record import QuestionRecord, to_json
from pipeline.errors import OverLimitError, ParseError, ServiceError
from pipeline.kg.interface import AttributedGraph, Batch, Hop, KnowledgeGraph, Neighbours
from pipeline.llm.interface import Model
from pipeline.llm.prompt import Call, Completion, Message, Prompt, Sampling, Template
from pipeline.llm.roles import FULL, PromptStyle
from pipeline.traces.schema import OVER_LIMIT, Step
from pipeline.types import EntityId, LiteralNode, Relation

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

_SHOWN_ARGUMENTS = 8
"""The number of arguments of a lookup that its trace step lists."""


class QuestionModel:
    """`LanguageModel` for one question in one configuration."""

    def __init__(
        self,
        model: Model,
        cache: CallCache,
        record: QuestionRecord,
        *,
        seed: int,
        prompt_style: PromptStyle = FULL,
        on_template: Callable[[str, Template], None],
        question_id: str = "",
    ) -> None:
        """Bind a model to the question's cache and record.

        Args:
            model: The model of the question.
            cache: The calls made for the question so far.
            record: Where steps and counters go.
            seed: The run's seed.
            prompt_style: How much of a prompt's fixed text the model of a role is sent.
            on_template: Called with the role and the fixed text of each prompt.
            question_id: Tells the model which calls belong together.
        """
        self._question_id = question_id
        self._model = model
        self._cache = cache
        self._record = record
        self._seed = seed
        self._prompt_style = prompt_style
        self._on_template = on_template
        self._ordinals: Counter[bytes] = Counter()

    async def ask(self, prompt: Prompt[T], sampling: Sampling, *, retries: int = 2, last: bool = False) -> T:
        """Call the model and parse. After a parse error, ask up to `retries` times more and name it; then fall back."""
        value, _ = await self.read(prompt, sampling, retries=retries, last=last)
        return value

    async def read(
        self, prompt: Prompt[T], sampling: Sampling, *, retries: int = 2, last: bool = False
    ) -> tuple[T, Completion]:
        """Do the same as `ask`, and also return the completion from which the value was parsed."""
        complaint, parent, completion, is_read = None, None, Completion(""), False
        for _ in range(retries + 1):
            completion, step = await self._call(prompt, sampling, complaint=complaint, parent=parent, last=last)
            try:
                value = prompt.parse(completion.text)
            except ParseError as error:
                complaint, parent = str(error), step.index
                is_read = isinstance(error, OverLimitError)
                step.error = f"{OVER_LIMIT}{complaint}" if is_read else complaint
                self._record.counters.parse_failures += not is_read
            else:
                self._record.trail.understand(step, value)
                return value, completion
        self._record.add_decision("over_limit" if is_read else "parse_failed", role=prompt.role, complaint=complaint)
        return prompt.fallback(completion.text), completion

    async def complete(self, prompt: Prompt[T], sampling: Sampling) -> Completion:
        """Call the model once, for the method to parse. If no candidate can be parsed, the reply is unreadable."""
        completion, step = await self._call(prompt, sampling)
        complaints = [_complaint(prompt, candidate.text) for candidate in completion.n_best]
        if None not in complaints:
            step.error = complaints[0]
            self._record.counters.parse_failures += 1
            self._record.add_decision("parse_failed", role=prompt.role, complaint=step.error)
        return completion

    async def choose(self, prompt: Prompt[T], choices: Sequence[str], sampling: Sampling) -> dict[str, float]:
        """Return the probability of each choice as the continuation of the prompt."""
        completion, _ = await self._call(prompt, sampling, choices=tuple(choices))
        return dict(completion.probabilities or {})

    async def _call(
        self,
        prompt: Prompt[Any],
        sampling: Sampling,
        *,
        choices: tuple[str, ...] = (),
        complaint: str | None = None,
        parent: int | None = None,
        last: bool = False,
    ) -> tuple[Completion, Step]:
        self._record.spend_call(last=last)
        step = self._record.open("llm", prompt.role)
        call = self._prepare(prompt, sampling, choices, complaint, step)
        step.parent = parent
        joins = self._cache.is_in_flight(call.key)
        try:
            send = self._model.choose if call.choices else self._model.complete
            completion, step.shared = await self._cache.get(call.key, lambda: send(call))
        except ServiceError as error:
            step.error, step.shared = f"{type(error).__name__}: {error}", joins
            self._record.counters.llm_calls_shared += joins
            raise
        finally:
            self._record.counters.llm_s += self._record.close(step)
            step.own_s = 0.0  # if the call failed: its pauses and further attempts are no time of a model that answered
        self._add_to_step(step, completion)
        self._record.counters.replies_cut += not call.choices and completion.finish_reason == "length"
        self._record.trail.write(step, completion.text)
        return completion, step

    def _prepare(
        self, prompt: Prompt[Any], sampling: Sampling, choices: tuple[str, ...], complaint: str | None, step: Step
    ) -> Call:
        """Render the prompt once, derive its call key, and store in the step what both are made of."""
        template, inputs = self._prompt_style(prompt.role, prompt.template), prompt.inputs()
        if complaint is not None:
            inputs["complaint"] = complaint
        self._on_template(prompt.role, template)
        try:
            messages = template.render(inputs)
        except KeyError as slot:
            name = type(prompt).__name__
            raise LookupError(
                f"{name}.inputs() has no text for the slot {{{{{slot.args[0]}}}}} of its template"
            ) from None
        content = content_hash(self._model.identity_of(prompt.role), messages, sampling, choices, self._seed)
        ordinal = self._ordinals[content]
        self._ordinals[content] += 1
        digest = hashlib.blake2b(content + ordinal.to_bytes(4, "big"), digest_size=16)
        step.key, step.template = digest.hexdigest(), template.digest
        step.inputs = to_json(inputs)
        self._record.trail.show(step, inputs)
        step.sampling = to_json({"sampling": sampling.as_hashed(), "choices": choices, "ordinal": ordinal})
        seed = int.from_bytes(digest.digest()[:4], "big") >> 1
        nonce = f"{_seed_if_drawn(sampling, self._seed)}|{ordinal}|{complaint}"
        return Call(
            prompt,
            messages,
            sampling,
            step.key,
            seed,
            choices,
            nonce,
            template,
            question=self._question_id,
            ordinal=ordinal,
            complaint=complaint,
        )

    def _add_to_step(self, step: Step, completion: Completion) -> None:
        step.completion, step.finish_reason = completion.text, completion.finish_reason
        step.prompt_tokens, step.completion_tokens = completion.prompt_tokens, completion.completion_tokens
        step.own_s = completion.seconds
        if completion.probabilities is not None:
            step.probabilities = to_json(completion.probabilities)
        if completion.logprobs is not None:
            step.logprobs = to_json(completion.logprobs)
        if completion.candidates:
            step.candidates = to_json(completion.candidates)
        counters = self._record.counters
        counters.llm_calls_shared += step.shared
        counters.prompt_tokens += completion.prompt_tokens
        counters.completion_tokens += completion.completion_tokens
        has_counts = completion.prompt_tokens and (completion.completion_tokens or not completion.text)
        counters.calls_without_tokens += not has_counts


def _complaint(prompt: Prompt[Any], text: str) -> str | None:
    """Return why a reply cannot be parsed; None if it can."""
    try:
        prompt.parse(text)
    except ParseError as error:
        return str(error)
    return None


def content_hash(
    identity: str, messages: Sequence[Message], sampling: Sampling, choices: tuple[str, ...], seed: int
) -> bytes:
    """Hash everything that decides an answer except the ordinal. The run's seed counts only if a reply is drawn."""
    seed_if_drawn = _seed_if_drawn(sampling, seed)
    texts = [tuple(message) for message in messages]
    hashed = orjson.dumps((identity, texts, sampling.as_hashed(), choices, seed_if_drawn))
    return hashlib.blake2b(hashed, digest_size=16).digest()


def _seed_if_drawn(sampling: Sampling, seed: int) -> int | None:
    """Return the seed of the run if the reply is drawn; None at temperature 0, where two seeds share their calls."""
    return seed if sampling.temperature > 0 else None


class QuestionGraph:
    """`GraphLookups` for one question in one configuration."""

    def __init__(self, graph: KnowledgeGraph, record: QuestionRecord) -> None:
        """Bind a graph to the question's record."""
        self._graph = graph
        self._record = record

    async def relations(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[Relation]]:
        async def look_up(ids: Sequence[EntityId]) -> Batch[EntityId, list[Relation]]:
            self._record.trail.use_inverses(await self._graph.inverses())
            return await self._graph.relations(ids)

        return await self._look_up("relations", ids, look_up, rows=len, note=self._record.trail.list_relations)

    async def neighbours(self, hops: Sequence[Hop], limit: int) -> Batch[Hop, Neighbours]:
        async def look_up(hops: Sequence[Hop]) -> Batch[Hop, Neighbours]:
            inverses = await self._graph.inverses()
            names = {relation.name for _, relation in hops}
            self._record.followed |= names | {inverses[name] for name in names if name in inverses}
            self._record.trail.use_inverses(inverses)
            return await self._graph.neighbours(hops, limit)

        _check_limit(limit)
        note = self._record.trail.reach
        return await self._look_up("neighbours", hops, look_up, rows=lambda found: len(found.nodes), note=note)

    async def labels(self, ids: Sequence[EntityId]) -> Batch[EntityId, str | None]:
        look_up, note = self._graph.labels, self._record.trail.name
        return await self._look_up("labels", ids, look_up, rows=lambda name: name is not None, note=note)

    async def mediators(self, ids: Sequence[EntityId]) -> Batch[EntityId, bool]:
        return await self._look_up("mediators", ids, self._graph.mediators, rows=int)

    async def find_by_name(self, names: Sequence[str], limit: int) -> Batch[str, list[EntityId]]:
        _check_limit(limit)
        return await self._look_up(
            "find_by_name", names, lambda names: self._graph.find_by_name(names, limit), rows=len
        )

    async def types(self, ids: Sequence[EntityId]) -> Batch[EntityId, list[str]]:
        return await self._look_up("types", ids, self._graph.types, rows=len)

    async def inverses(self) -> Inverses:
        return await self._graph.inverses()

    async def features(self, ids: Sequence[EntityId]) -> Batch[EntityId, dict[str, Any] | None]:
        look_up, note = self._attributed.features, self._record.trail.read_features
        return await self._look_up("features", ids, look_up, rows=lambda found: len(found or ()), note=note)

    async def degrees(self, ids: Sequence[EntityId]) -> Batch[EntityId, dict[str, int] | None]:
        return await self._look_up("degrees", ids, self._attributed.degrees, rows=lambda found: len(found or ()))

    @property
    def _attributed(self) -> AttributedGraph:
        assert isinstance(self._graph, AttributedGraph)
        return self._graph

    async def _look_up(
        self,
        operation: str,
        arguments: Sequence[K],
        look_up: Callable[[Sequence[K]], Awaitable[Batch[K, V]]],
        *,
        rows: Callable[[V], int],
        note: Callable[[Step, Mapping[K, V]], None] | None = None,
    ) -> Batch[K, V]:
        if isinstance(arguments, str):  # it would be looked up letter by letter
            raise TypeError(f"a lookup takes a list of ids, not one text: [{arguments!r}]")
        if not isinstance(arguments, Sequence):
            raise TypeError(f"a lookup takes a list, not a {type(arguments).__name__}")
        if literal := next((each for each in arguments if isinstance(each, LiteralNode)), None):
            raise TypeError(f"a lookup takes ids, and {literal.value!r} is a literal: leave out nodes that are no str")
        if not arguments:
            return Batch()
        self._record.spend_lookup()
        step = self._record.open("kg", operation)
        step.query = _list_arguments(arguments)
        try:
            found = await look_up(arguments)
        except ServiceError as error:
            step.error = f"{type(error).__name__}: {error}"
            raise
        finally:
            self._record.counters.kg_s += self._record.close(step)
        self._add_to_step(step, found, sum(map(rows, found.values())))
        if note is not None:
            note(step, found)
        return found

    def _add_to_step(self, step: Step, found: Batch[Any, Any], rows: int) -> None:
        step.rows, step.queries, step.endpoint = rows, found.queries, found.endpoint
        step.shared = found.queries == 0
        if step.role == "neighbours":
            step.truncated = any(neighbours.truncated for neighbours in found.values())
        self._record.counters.kg_queries += found.queries
        self._record.counters.kg_rows += rows


def _check_limit(limit: int) -> None:
    """Raise ValueError for a limit that no graph can keep: Python would cut a list from its end."""
    if limit < 1:
        raise ValueError(f"a lookup takes a limit of 1 or more, not {limit}")


def _list_arguments(arguments: Sequence[Any]) -> str:
    """List the first few arguments, one per line, and their number."""
    lines = [_argument_text(argument) for argument in arguments[:_SHOWN_ARGUMENTS]]
    if len(arguments) > _SHOWN_ARGUMENTS:
        lines.append(f"… {len(arguments)} in all")
    return "\n".join(lines)


def _argument_text(argument: Any) -> str:
    if isinstance(argument, str):
        return argument[:200]
    entity, relation = argument
    return f"{entity[:200]} {relation.direction} {relation.name[:200]}"
