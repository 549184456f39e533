"""`llm=endpoint`: chat completions of one or more OpenAI-compatible servers (specification §2.3)."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

import orjson
from pydantic import ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt, ValidationError
from pydantic.dataclasses import dataclass

from pipeline.errors import ServiceError, Unanswerable, Unreachable, UserError, first_defect
from pipeline.kg.interface import KnowledgeGraph
from pipeline.llm.dialect import REFUSED_FROM_THE_START, RENAMED, Dialect, begins_in_prompt, without_reasoning
from pipeline.llm.interface import APPROXIMATE, OneModel, capped_identity
from pipeline.llm.openai_client import WRONG_KEY, Answered, OpenAIClient, Reply, Request
from pipeline.llm.prompt import Call, Candidate, Completion
from pipeline.llm.server_reply import (
    CHAT_REPLY,
    MODEL_LIST,
    PLAIN_REPLY,
    TOKENS,
    ChatReply,
    Choice,
    ModelCard,
    has_error,
    text_of,
    token_logprobs,
    usage_of,
)
from pipeline.net.attempts import RetryPolicy
from pipeline.net.server_stats import ServerStats
from pipeline.net.urls import check_urls
from pipeline.suggestions import did_you_mean
from pipeline.text import counted
from pipeline.types import RUNTIME_ONLY, Example

log = logging.getLogger(__name__)

_CUT = re.compile("length|max_tokens|model_length", re.IGNORECASE)
"""How servers say that a reply was cut off at the limit of tokens."""
_FILTERED = "content_filter"
"""How servers say that a filter has cut a reply, or removed it."""
_REPORTED = 20
"""Log-probabilities per token that every OpenAI-compatible server can report."""

_DEFAULT_KEY = "OPENAI_API_KEY"
"""The variable that need not be set, as most servers of one's own ask for no key."""
_NO_LIST = (404, 405)
"""The statuses of servers that do not list their models. A URL without the API's prefix gives them as well."""
_LONGEST_TOKEN = 256
"""Characters; twice those of the longest token of any known model."""
_IN_PLACE_OF = "in place of"
_CANNOT_RETURN_SEVERAL = re.compile(rf"beam|length_penalty|{_IN_PLACE_OF}|\bn\b.{{0,40}}(?:support|must|only|1)")
"""What the message of a server says that refuses several candidates, or that ignores how many are asked for."""
_PRECISE = "(?:bfloat16|float16|float32|[0-9a-f]{40})"
"""How a name may end that follows a model's name in the Hub: a number format, or a commit. Other words, such as
`Instruct`, may name another model."""


@dataclass(kw_only=True, config=ConfigDict(extra="forbid", hide_input_in_errors=True))
class CallConfig:
    """Parameters of calls to a served model. The fields are described in `conf/llm/endpoint.yaml`."""

    extra_body: dict[str, Any] | None
    max_new_tokens: PositiveInt | None
    approximate_choices: bool
    connect_timeout_s: Annotated[PositiveFloat, RUNTIME_ONLY]
    timeout_s: Annotated[PositiveFloat, RUNTIME_ONLY]
    max_retries: Annotated[NonNegativeInt, RUNTIME_ONLY]
    backoff_s: Annotated[PositiveFloat, RUNTIME_ONLY]
    max_backoff_s: Annotated[PositiveFloat, RUNTIME_ONLY]
    breaker_failures: Annotated[PositiveInt, RUNTIME_ONLY]
    breaker_reset_s: Annotated[PositiveFloat, RUNTIME_ONLY]
    question_affinity: Annotated[bool, RUNTIME_ONLY]


@dataclass(kw_only=True, config=ConfigDict(extra="forbid", hide_input_in_errors=True))
class EndpointModel(CallConfig, OneModel):
    """One model behind one or more servers. The fields are described in `conf/llm/endpoint.yaml`."""

    base_urls: Annotated[tuple[str, ...], Field(min_length=1), RUNTIME_ONLY]
    model: str | None
    api_key_env: Annotated[str, RUNTIME_ONLY]
    dialect: Annotated[Dialect, RUNTIME_ONLY]
    max_inflight: Annotated[PositiveInt | None, RUNTIME_ONLY]
    max_reply_mb: Annotated[PositiveFloat, RUNTIME_ONLY]

    def __post_init__(self) -> None:
        check_urls(self.base_urls, key="llm.base_urls", example="http://HOST:PORT/v1", instead=self.api_key_env)
        for url in self.base_urls:
            if {"?", "#"} & set(url) or url.rstrip("/").endswith("/completions"):
                raise UserError(
                    f"llm.base_urls: {url} should end in the API's prefix, usually /v1, without what follows it"
                )
        kept = {name for name, value in (self.extra_body or {}).items() if value is not None}
        if never := sorted(kept & REFUSED_FROM_THE_START[self.dialect] - set(RENAMED)):
            raise UserError(f"llm.extra_body has {', '.join(never)}, which llm.dialect={self.dialect} never sends")
        self.label: str | None = APPROXIMATE if self.approximate_choices else None
        self.context_length: int | None = None
        """The smallest context length of the servers, if they report it. Set on opening."""
        self._job_token: str | None = None
        """The key of servers that the job itself has started."""

    async def __aenter__(self) -> Self:
        """Connect and look up the model. Raises UserError if no server answers or none serves the model."""
        policy = RetryPolicy(
            rounds=self.max_retries + 1,
            backoff_s=self.backoff_s,
            max_backoff_s=self.max_backoff_s,
            max_failures=self.breaker_failures,
            recovery_s=self.breaker_reset_s,
        )
        client = OpenAIClient(
            self.base_urls,
            policy,
            api_key=self._api_key() if self._job_token is None else self._job_token,
            key_variable=self.api_key_env,
            connect_timeout_s=self.connect_timeout_s,
            timeout_s=self.timeout_s,
            dialect=self.dialect,
            max_inflight=self.max_inflight,
            max_reply_mb=self.max_reply_mb,
        )
        async with AsyncExitStack() as opening:
            self._client = await opening.enter_async_context(client)
            self._name, identity = await self._find_model()
            self.identity = capped_identity(identity, self.max_new_tokens)
            self._opened = opening.pop_all()
        self._token_ids: dict[str, int] = {}
        self._tokenising = asyncio.Lock()
        self._warnings: set[str] = set()
        self._prompts_begin_reasoning = False
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._opened.aclose()

    def serve_from(self, urls: tuple[str, ...], token: str) -> None:
        """Use servers that the job has started, in place of the configured ones. To be called before opening."""
        self.base_urls, self._job_token = urls, token

    def follow(self, urls: Collection[str], leaving: Collection[str]) -> None:
        """Use the servers at these URLs from now on; those that are `leaving` get no more calls."""
        self._client.follow(urls, leaving)

    @property
    def server_stats(self) -> list[ServerStats]:
        """Statistics of each server."""
        return self._client.server_stats

    def for_question(self, example: Example, kg: KnowledgeGraph) -> Self:
        return self

    async def complete(self, call: Call) -> Completion:
        """Answer one call. Raises ContextOverflow, or ServiceError if the servers fail or refuse the call."""
        logprobs = call.sampling.logprobs
        extra = {} if logprobs is None else {"logprobs": True, "top_logprobs": logprobs}
        several = call.sampling.candidates > 1
        reply, seconds = await (self._ask_for_several(call, extra) if several else self._ask(call, extra))
        choices = reply["choices"] if several else reply["choices"][:1]
        written = usage_of(reply, "completion_tokens")
        allowed = _tokens_allowed(self._fields(call, extra))
        is_full = len(choices) == 1 and allowed is not None and 0 < allowed <= written
        self._note_reasoning(choices, is_full=is_full)
        found = [_candidate(choice, begun=self._prompts_begin_reasoning, is_full=is_full) for choice in choices]
        order = range(len(found)) if not several or call.sampling.is_beam_search else _best_first(found)
        best = found[order[0]]
        reported = token_logprobs(choices[order[0]])
        has_logprobs = logprobs is not None and (not best.text or _has_alternatives(reported, logprobs))
        if not best.text and best.finish_reason == "length":
            self._warn_once(
                "a reply of %s has no text: its tokens were all spent on reasoning; allow replies more tokens, or turn "
                "the reasoning off with llm.extra_body",
                self._name,
            )
        return Completion(
            text=best.text,
            finish_reason=best.finish_reason,
            prompt_tokens=usage_of(reply, "prompt_tokens"),
            completion_tokens=written,
            logprobs=reported if has_logprobs else None,
            seconds=seconds,
            candidates=tuple(found[index] for index in order) if several else (),
        )

    async def _ask_for_several(self, call: Call, extra: Mapping[str, Any]) -> Answered[ChatReply]:
        """Request several candidates as one call. Raises UserError for a server that cannot return them."""
        sampling = call.sampling
        wanted: dict[str, Any] = {"n": sampling.candidates}
        if sampling.is_beam_search:  # vLLM's extension of the protocol
            wanted |= {"use_beam_search": True, "length_penalty": sampling.length_penalty, "temperature": 0.0}
        try:
            answered = await self._ask(call, {**extra, **wanted})
        except ServiceError as error:
            if not _CANNOT_RETURN_SEVERAL.search(str(error)):
                raise
            way = "search with beams" if sampling.is_beam_search else "return several texts for one prompt"
            raise UserError(
                f"the server of {self._name} cannot {way} ({error}); serve the model with vLLM (llm=serve), or choose "
                "a configuration of the method that asks for one text per call"
            ) from None
        texts = {without_reasoning(text_of(choice)) for choice in answered.reply["choices"]}
        if sampling.is_beam_search and len(texts) == 1:
            self._warn_once(
                "the server of %s returned the same text %d times for a beam search: it probably ignores "
                "use_beam_search; serve the model with vLLM",
                self._name,
                sampling.candidates,
            )
        return answered

    def _warn_once(self, message: str, *values: object) -> None:
        if message not in self._warnings:
            self._warnings.add(message)
            log.warning(message, *values)

    async def choose(self, call: Call) -> Completion:
        """Return the softmax of single-token choices' log-probabilities as the next token (specification §4.6).

        Exact on vLLM, which reports the log-probability of any listed token. With `approximate_choices`, estimated from
        the most probable tokens, which any server reports. Raises UserError for a choice that is not one token.
        """
        lookup = self._estimated_logprobs if self.approximate_choices else self._exact_logprobs
        logprobs, (reply, seconds) = await lookup(call)
        completion = Completion.of_choices(
            logprobs,
            prompt_tokens=usage_of(reply, "prompt_tokens"),
            completion_tokens=usage_of(reply, "completion_tokens"),
        )
        return replace(completion, seconds=seconds)

    async def _exact_logprobs(self, call: Call) -> tuple[dict[str, float], Answered[ChatReply]]:
        ids = {choice: await self._token_id(choice) for choice in call.choices}
        extra = {"logprob_token_ids": list(ids.values()), "return_tokens_as_token_ids": True, "top_logprobs": 0}
        answered = await self._ask(call, {**extra, "logprobs": True, "max_tokens": 1})
        reported = _next_token_logprobs(answered.reply)
        try:
            return {choice: reported[f"token_id:{id}"] for choice, id in ids.items()}, answered
        except KeyError as missing:
            raise UserError(
                f"the server of {self._name} did not report the log-probability of {missing}; serve the model with a "
                "vLLM that supports logprob_token_ids, or accept estimates with llm.approximate_choices=true"
            ) from None

    async def _estimated_logprobs(self, call: Call) -> tuple[dict[str, float], Answered[ChatReply]]:
        answered = await self._ask(call, {"logprobs": True, "top_logprobs": _REPORTED, "max_tokens": 1})
        return estimate_choices(call.choices, _next_token_logprobs(answered.reply)), answered

    async def _token_id(self, choice: str) -> int:
        """Return the id of a choice's only token. Asks the server once per choice."""
        async with self._tokenising:
            if choice not in self._token_ids:
                tokens = await self.tokens(choice)
                if len(tokens) != 1:
                    raise UserError(
                        f"'{choice}' is {len(tokens)} tokens for {self._name}, but choices must be single tokens; "
                        "serve a model whose tokenizer has it as one token"
                    )
                self._token_ids[choice] = tokens[0]
            return self._token_ids[choice]

    async def tokens(self, text: str) -> list[int]:
        """Return the ids of a text's tokens from vLLM's `/tokenize`. Raises UserError if the server is not vLLM.

        Some routers in front of vLLM do not pass it on. Then the ids are read from a completion of one token.
        """
        request = {"model": self._name, "prompt": text, "add_special_tokens": False}
        try:
            found = (await self._client.ask(Request("../tokenize", request, TOKENS))).reply["tokens"]
            if found or not text:
                return found
            problem = "it found no token in a text"  # as a /tokenize that reads another field than `prompt`
        except ServiceError as error:
            problem = str(error)
        completing = {**request, "max_tokens": 1, "return_token_ids": True}
        with suppress(ServiceError):
            answered = await self._client.ask(Request("completions", completing, PLAIN_REPLY))
            for choice in answered.reply["choices"]:
                if tokens := choice.get("prompt_token_ids"):
                    return tokens
        raise UserError(
            f"exact choices need vLLM's /tokenize, but {problem}; accept estimates with llm.approximate_choices=true"
        )

    async def _ask(self, call: Call, extra: Mapping[str, Any]) -> Answered[ChatReply]:
        """Request one chat completion."""
        fields = self._fields(call, extra)
        tokens = None if call.choices else _tokens_allowed(fields)  # the text of a choice is not read
        request = Request(
            "chat/completions",
            fields,
            CHAT_REPLY,
            partial(_defect, candidates=call.sampling.candidates, tokens=tokens),
        )
        affinity = call.question if self.question_affinity and call.question else None
        answered: Answered[ChatReply] = await self._client.ask(request, affinity=affinity)
        self._warn_of_odd(answered.reply, tokens)
        return answered

    def _fields(self, call: Call, extra: Mapping[str, Any]) -> dict[str, Any]:
        merged = {**self._body(call), **(self.extra_body or {}), **extra}
        return {name: value for name, value in merged.items() if value is not None}

    def _note_reasoning(self, choices: Sequence[Choice], *, is_full: bool) -> None:
        """Note whether the prompts begin the model's reasoning: each whole reply has the end of it then, and only that.

        A whole reply without it says that an earlier one only mentioned it.
        """
        for choice in choices:
            if begins_in_prompt(text := text_of(choice)):
                self._prompts_begin_reasoning = True
            elif text and not _is_cut(choice) and (choice.get("finish_reason") or not is_full):
                self._prompts_begin_reasoning = False

    def _warn_of_odd(self, reply: ChatReply, tokens: int | None) -> None:
        """Warn once of replies with more than the allowed `tokens`, and once of replies that a filter has cut."""
        written = usage_of(reply, "completion_tokens")
        if tokens is not None and written > tokens * len(reply["choices"]):
            self._warn_once(
                "a reply of %s has %s tokens, and %s were allowed: its server seems to ignore the limit, so calls may "
                "cost more than an estimate says",
                self._name,
                f"{written:,}",
                f"{tokens:,}",
            )
        if any(choice.get("finish_reason") == _FILTERED for choice in reply["choices"]):
            self._warn_once(
                "a filter of the server has cut a reply of %s (finish_reason is %s): what is left of it is used",
                self._name,
                _FILTERED,
            )

    def _body(self, call: Call) -> dict[str, Any]:
        sampling = call.sampling
        body: dict[str, Any] = {
            "model": self._name,
            "messages": [{"role": message.role, "content": message.content} for message in call.messages],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": min(sampling.max_tokens, self.max_new_tokens or sampling.max_tokens),
            "seed": call.seed,
        }
        if sampling.stop:
            body["stop"] = sampling.stop
        if call.messages[-1].role == "assistant":  # makes vLLM continue the text instead of answering it
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        return body

    def _api_key(self) -> str:
        """Return the key from the environment. Raises UserError if it is wrong, or a variable of the user's not set."""
        if self.api_key_env not in (_DEFAULT_KEY, *os.environ):
            raise UserError(f"the environment variable {self.api_key_env}, which llm.api_key_env names, is not set")
        key = os.environ.get(self.api_key_env, "").strip()
        if not key.isprintable():
            raise UserError(f"the environment variable {self.api_key_env} is no API key: it has a line break inside")
        return key

    async def _find_model(self) -> tuple[str, str]:
        """Return the name and the identity of the model, which must be the same on every server."""
        cards, problems = {}, []
        for answer in await self._client.get_from_each("models"):
            if isinstance(answer, str):
                problems.append(answer)
            elif answer.transient:
                problems.append(self._client.explain(answer))
            else:
                try:
                    cards[answer.url] = self._read_card(answer)
                except ValidationError as error:
                    problems.append(f"no list of models ({first_defect(error)}): {self._client.explain(answer)}")
        if not cards:
            advice = "start one there, or set llm.base_urls to a running one"
            raise Unreachable(f"no model server can be used: {'; '.join(problems)}; {advice}")
        for problem in problems:
            log.warning("continuing without a model server: %s", problem)
        if len(set(cards.values())) > 1:
            listing = ", ".join(f"{identity} at {url}" for url, (_, identity) in cards.items())
            raise UserError(f"llm.base_urls serve different models: {listing}; choose servers of one model")
        return next(iter(cards.values()))

    def _read_card(self, reply: Reply) -> tuple[str, str]:
        if reply.status in WRONG_KEY:
            raise UserError(self._client.explain(reply))
        if reply.status in _NO_LIST and self.model is not None and urlsplit(reply.url).path.strip("/"):
            problem = self._client.explain(reply)
            log.warning("no list of models: %s; continuing with llm.model=%s, unchecked", problem, self.model)
            return self.model, self._identity({"id": self.model})
        if reply.status != 200:
            named = (
                "; if it has no list of models, name its model with llm.model"
                if reply.status in _NO_LIST and self.model is None
                else ""
            )
            ends = "llm.base_urls must end in the API's prefix, usually /v1"
            raise UserError(f"{self._client.explain(reply)}; {ends}{named}")
        body = reply.body.strip()
        listed = b'{"data": %s}' % body if body.startswith(b"[") else body  # some servers send the list alone
        cards = {card["id"]: card for card in MODEL_LIST.validate_json(listed, strict=True)["data"]}
        names = ", ".join(cards)
        if self.model is not None and self.model not in cards:
            raise UserError(f"{reply.url} serves {names}, not llm.model={self.model}.{did_you_mean(self.model, cards)}")
        if self.model is None and not cards:
            raise UserError(f"{reply.url} lists no model: name it with llm.model")
        if self.model is None and len(cards) != 1:
            raise UserError(f"{reply.url} serves {len(cards)} models ({names}); set llm.model to one of them")
        name = self.model if self.model is not None else next(iter(cards))
        if length := cards[name].get("max_model_len"):
            self.context_length = min(length, self.context_length or length)
        return name, self._identity(cards[name])

    def _identity(self, card: ModelCard) -> str:
        """Return the model's name with its checkpoint and base model, and the fields that we add to each call."""
        given = filter(None, (card.get("root"), card.get("parent")))
        origins = [origin for origin in given if self._job_token is None and not _states(card["id"], origin)]
        identity = " of ".join([card["id"], *dict.fromkeys(origins)])
        if self.extra_body:
            identity += " " + orjson.dumps(self.extra_body, option=orjson.OPT_SORT_KEYS).decode()
        return identity


def estimate_choices(choices: Sequence[str], reported: Mapping[str, float]) -> dict[str, float]:
    """Return the log-probability of each choice, estimated from those of the most probable next tokens.

    A token counts for a choice if it is the beginning of only this one. A choice without such a token gets the lowest
    reported value, or what the reported ones leave, which are its upper limits. Raises Unanswerable if no choice has
    such a token.
    """
    mass = dict.fromkeys(choices, 0.0)
    for token, logprob in reported.items():
        matching = [choice for choice in choices if token.strip() and choice.strip().startswith(token.strip())]
        exact = [choice for choice in matching if choice.strip() == token.strip()]
        if len(owners := exact or matching) == 1:
            mass[owners[0]] += math.exp(logprob)
    if not any(mass.values()):
        raise Unanswerable(f"none of the {len(reported)} reported tokens begins one of the choices alone")
    left = max(sys.float_info.min, 1 - sum(map(math.exp, reported.values())))
    floor = min(math.log(left), *reported.values())
    return {choice: math.log(weight) if weight else floor for choice, weight in mass.items()}


def _states(name: str, origin: str) -> bool:
    """Whether a model's name says what it is made from, as the names that `llm=serve` and `kgqa llm serve` give do."""
    of_folder = rf"{re.escape(PurePath(origin).name)}@[0-9a-f]{{8}}\b"
    of_hub = rf"{re.escape(origin)}(?:(?:-[^+]+)?-{_PRECISE})?(?![^+])"
    return re.search(rf"(?:^|\+)(?:{of_folder}|{of_hub})", name) is not None


def _defect(reply: ChatReply, candidates: int, tokens: int | None) -> str | None:
    """Say that a reply is an error, has not as many texts as were asked for, or a longer one than tokens can have.

    None if there is no defect. Without a limit of `tokens`, a text may have any length. A server may send more than the
    one text that was asked for.
    """
    if has_error(reply):
        return "it reports an error"
    if candidates != 1 and len(reply["choices"]) != candidates:
        return f"{len(reply['choices'])} {_IN_PLACE_OF} {candidates} texts"
    length = max(len(text_of(choice)) for choice in reply["choices"])
    if tokens is None or length <= tokens * _LONGEST_TOKEN:
        return None
    return f"its text has {length:,} characters, too many for {counted(tokens, 'token')}"


def _candidate(choice: Choice, *, begun: bool, is_full: bool) -> Candidate:
    """Return the text of a choice. Its score is the sum of its log-probabilities, if the server reports them.

    `begun` says that the prompts begin the model's reasoning, and `is_full` that the text has all tokens that it may
    have: then it was cut, unless the server says otherwise.
    """
    positions, reason = token_logprobs(choice), choice.get("finish_reason") or ("length" if is_full else "stop")
    has_length = _CUT.fullmatch(reason) is not None
    return Candidate(
        text=without_reasoning(text_of(choice), begun=begun and (has_length or _is_cut(choice))),
        finish_reason="length" if has_length else reason,
        score=sum(next(iter(position.values())) for position in positions) if positions else None,
    )


def _is_cut(choice: Choice) -> bool:
    """Whether a server says that it, or a filter, has cut a reply."""
    reason = choice.get("finish_reason") or ""
    return reason == _FILTERED or _CUT.fullmatch(reason) is not None


def _tokens_allowed(fields: Mapping[str, Any]) -> int | None:
    """Return how many tokens a request allows a reply; None if it does not say it, or in a field that is not known."""
    allowed = fields.get("max_completion_tokens", fields.get("max_tokens"))
    return allowed if isinstance(allowed, int) else None


def _has_alternatives(reported: Sequence[Mapping[str, float]], asked: int) -> bool:
    """Whether a server has not ignored how many tokens it was asked to report at each position."""
    return any(len(position) >= min(asked, 2) for position in reported)


def _best_first(found: Sequence[Candidate]) -> list[int]:
    """Return the positions of independent draws, those with the best scores first, else in the order of the server."""
    return sorted(range(len(found)), key=lambda index: -(found[index].score or 0.0))


def _next_token_logprobs(reply: ChatReply) -> Mapping[str, float]:
    positions = token_logprobs(reply["choices"][0])
    if not positions:
        raise Unanswerable("the server reported no log-probabilities")
    return positions[0]
