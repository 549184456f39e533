"""A served language model: chat completions of one or more OpenAI-compatible servers (methods.md §2.3)."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Any, Self

import orjson
from pydantic import ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.address import check_address
from pipeline.errors import ContextOverflow, ServiceError, UserError, nearest
from pipeline.kg.port import KnowledgeGraph
from pipeline.llm.http_pool import Reply, ServerPool, server_message
from pipeline.llm.port import OneModel
from pipeline.llm.prompt import Call, Completion, Message
from pipeline.traffic import Traffic
from pipeline.types import Example

log = logging.getLogger(__name__)

_REPORTED = 20
"""Log-probabilities per token that every OpenAI-compatible server is willing to report."""

_AFFINITY_CHARACTERS = 1024
"""How much of the system and of the user text decides which server has probably seen the prefix."""

_OVERFLOW = re.compile(r"context.(?:length|size|window)|maximum model length|prompt is too long", re.IGNORECASE)


@dataclass(kw_only=True, config=ConfigDict(extra="forbid", hide_input_in_errors=True))
class Calls:
    """How a served model is called, wherever it is. The fields are described in `conf/llm/endpoint.yaml`."""

    extra_body: dict[str, Any] | None = None
    approximate_choices: bool = False
    connect_timeout_s: PositiveFloat = 10.0
    timeout_s: PositiveFloat = 300.0
    max_retries: NonNegativeInt = 8
    backoff_s: PositiveFloat = 0.5
    max_backoff_s: PositiveFloat = 30.0
    breaker_failures: PositiveInt = 5
    breaker_reset_s: PositiveFloat = 5.0


@dataclass(kw_only=True, config=ConfigDict(extra="forbid", hide_input_in_errors=True))
class EndpointModel(Calls, OneModel):
    """One model behind one or more servers. The fields are described in `conf/llm/endpoint.yaml`."""

    base_urls: Annotated[tuple[str, ...], Field(min_length=1)]
    model: str | None = None
    api_key_env: str = "OPENAI_API_KEY"

    def __post_init__(self) -> None:
        for url in self.base_urls:
            check_address(url, key="llm.base_urls", example="http://HOST:PORT/v1", instead=self.api_key_env)
        self.label: str | None = "approximate choices" if self.approximate_choices else None
        self.context_length: int | None = None
        """The fewest tokens that a server has room for, prompt and reply together, where they tell. Set once opened."""

    async def __aenter__(self) -> Self:
        """Connect, and find out what is served. Raises UserError when no server answers or the model is not there."""
        pool = ServerPool(
            self.base_urls,
            api_key=os.environ.get(self.api_key_env, "").strip(),
            connect_timeout_s=self.connect_timeout_s,
            timeout_s=self.timeout_s,
            max_retries=self.max_retries,
            backoff_s=self.backoff_s,
            max_backoff_s=self.max_backoff_s,
            breaker_failures=self.breaker_failures,
            breaker_reset_s=self.breaker_reset_s,
        )
        async with AsyncExitStack() as opening:
            self._pool = await opening.enter_async_context(pool)
            self._name, self.identity = await self._find_model()
            self._opened = opening.pop_all()
        self._token_ids: dict[str, int] = {}
        self._tokenising = asyncio.Lock()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._opened.aclose()

    @property
    def traffic(self) -> list[Traffic]:
        """Of each server."""
        return self._pool.traffic

    def for_question(self, example: Example, kg: KnowledgeGraph) -> Self:
        return self

    async def complete(self, call: Call) -> Completion:
        """Answer one call. Raises ContextOverflow, or ServiceError when the servers fail or refuse."""
        logprobs = call.sampling.logprobs
        extra = {} if logprobs is None else {"logprobs": True, "top_logprobs": logprobs}
        payload = await self._ask(call, extra)
        choice = payload["choices"][0]
        return Completion(
            text=choice["message"].get("content") or "",
            finish_reason=choice.get("finish_reason") or "stop",
            prompt_tokens=_usage(payload, "prompt_tokens"),
            completion_tokens=_usage(payload, "completion_tokens"),
            logprobs=_token_logprobs(choice) if logprobs is not None else None,
        )

    async def choose(self, call: Call) -> Completion:
        """Weigh single-token choices by the softmax of their log-probabilities as the next token (methods.md §4.6).

        Exact on vLLM, which reports the log-probability of any listed token. With `approximate_choices`, read from
        the most probable tokens that any server reports. Raises UserError for a choice that is not one token.
        """
        weigh = self._weigh_reported if self.approximate_choices else self._weigh_exactly
        logprobs, payload = await weigh(call)
        return Completion.of_choices(
            logprobs,
            prompt_tokens=_usage(payload, "prompt_tokens"),
            completion_tokens=_usage(payload, "completion_tokens"),
        )

    async def _weigh_exactly(self, call: Call) -> tuple[dict[str, float], dict[str, Any]]:
        ids = {choice: await self._token_id(choice) for choice in call.choices}
        extra = {"logprob_token_ids": list(ids.values()), "return_tokens_as_token_ids": True, "top_logprobs": 0}
        payload = await self._ask(call, {**extra, "logprobs": True, "max_tokens": 1})
        reported = _next_token_logprobs(payload)
        try:
            return {choice: reported[f"token_id:{id}"] for choice, id in ids.items()}, payload
        except KeyError as missing:
            raise UserError(
                f"the server of {self._name} did not report the log-probability of {missing}: serve the model on a "
                "vLLM that knows logprob_token_ids, or accept estimates with llm.approximate_choices=true."
            ) from None

    async def _weigh_reported(self, call: Call) -> tuple[dict[str, float], dict[str, Any]]:
        payload = await self._ask(call, {"logprobs": True, "top_logprobs": _REPORTED, "max_tokens": 1})
        reported = _next_token_logprobs(payload)
        return estimate_choices(call.choices, reported), payload

    async def _token_id(self, choice: str) -> int:
        """The id of a choice's only token, asked once per choice."""
        async with self._tokenising:
            if choice not in self._token_ids:
                self._token_ids[choice] = await self._tokenise(choice)
            return self._token_ids[choice]

    async def _tokenise(self, choice: str) -> int:
        tokens = await self.tokens(choice)
        if len(tokens) != 1:
            raise UserError(
                f"'{choice}' is {len(tokens)} tokens for {self._name}, and only single tokens can be weighed: "
                "serve a model whose tokenizer has it as one token."
            )
        return tokens[0]

    async def tokens(self, text: str) -> list[int]:
        """The ids of a text's tokens, from vLLM's `/tokenize`. Raises UserError where the server is no vLLM.

        Ray Serve LLM refuses that for some versions of vLLM; then they are read off a completion of one token.
        """
        request = {"model": self._name, "prompt": text, "add_special_tokens": False}
        reply = await self._pool.post("../tokenize", orjson.dumps(request))
        if reply.status == 200:
            return list(self._pool.read(reply)["tokens"])
        completing = orjson.dumps({**request, "max_tokens": 1, "return_token_ids": True})
        completion = await self._pool.post("completions", completing)
        if completion.status == 200:
            for choice in self._pool.read(completion).get("choices") or ():
                if tokens := choice.get("prompt_token_ids"):
                    return list(tokens)
        raise UserError(
            f"exact choices need vLLM's /tokenize, but {self._pool.explain(reply)}; "
            "accept estimates with llm.approximate_choices=true."
        )

    async def _ask(self, call: Call, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Post one chat completion and check that the answer holds one."""
        body = orjson.dumps({**self._body(call), **(self.extra_body or {}), **extra})
        reply = await self._pool.post("chat/completions", body, affinity=_affinity(call.messages))
        if reply.status != 200:
            raise self._refusal(reply)
        payload = self._pool.read(reply)
        if not payload.get("choices") or not isinstance(payload["choices"][0].get("message"), dict):
            raise ServiceError(f"no completion: {self._pool.explain(reply)}")
        return payload

    def _body(self, call: Call) -> dict[str, Any]:
        sampling = call.sampling
        body: dict[str, Any] = {
            "model": self._name,
            "messages": [{"role": message.role, "content": message.content} for message in call.messages],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": call.seed,
        }
        if sampling.stop:
            body["stop"] = sampling.stop
        if call.messages[-1].role == "assistant":  # vLLM's way of continuing a text instead of answering it
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        return body

    def _refusal(self, reply: Reply) -> ServiceError:
        text = self._pool.explain(reply)
        too_long = reply.status in (400, 413, 422) and _OVERFLOW.search(server_message(reply))
        return ContextOverflow(text) if too_long else ServiceError(text)

    async def _find_model(self) -> tuple[str, str]:
        """The name to ask for and the identity of what is served, which has to be the same on every server."""
        replies, problems = [], []
        for answer in await self._pool.survey("models"):
            if isinstance(answer, str):
                problems.append(answer)
            elif answer.transient:
                problems.append(self._pool.explain(answer))
            else:
                replies.append(answer)
        if not replies:
            problem = "; ".join(problems)
            raise UserError(f"no model server is up: {problem}. Start one there, or set llm.base_urls to where one is.")
        for problem in problems:
            log.warning("going on without a model server: %s", problem)
        found = {reply.url: self._read_card(reply) for reply in replies}
        if len(set(found.values())) > 1:
            listing = ", ".join(f"{identity} at {url}" for url, (_, identity) in found.items())
            raise UserError(f"llm.base_urls serve different models: {listing}. Name servers of one model.")
        return next(iter(found.values()))

    def _read_card(self, reply: Reply) -> tuple[str, str]:
        if reply.status in (401, 403):
            raise UserError(f"{self._pool.explain(reply)}. Put a valid key into the variable {self.api_key_env}.")
        if reply.status != 200:
            raise UserError(f"{self._pool.explain(reply)}. llm.base_urls must end in the API's prefix, usually /v1.")
        cards = {card["id"]: card for card in self._pool.read(reply).get("data", [])}
        names = ", ".join(cards)
        if self.model is not None and self.model not in cards:
            raise UserError(f"{reply.url} serves {names}, not llm.model={self.model}.{nearest(self.model, cards)}")
        if self.model is None and len(cards) != 1:
            raise UserError(f"{reply.url} serves {len(cards)} models ({names}): set llm.model to one of them.")
        name = self.model if self.model is not None else next(iter(cards))
        if room := cards[name].get("max_model_len"):
            self.context_length = min(room, self.context_length or room)
        return name, self._identity(cards[name])

    def _identity(self, card: Mapping[str, Any]) -> str:
        """The model's name, the checkpoint and base model behind the name, and our own additions to each call."""
        origins = [origin for key in ("root", "parent") if (origin := card.get(key)) and origin != card["id"]]
        identity = " of ".join([card["id"], *dict.fromkeys(origins)])
        if self.extra_body:
            identity += " " + orjson.dumps(self.extra_body, option=orjson.OPT_SORT_KEYS).decode()
        return identity


def estimate_choices(choices: Sequence[str], reported: Mapping[str, float]) -> dict[str, float]:
    """Log-probability of each choice from those of the most probable next tokens.

    A token counts for the choice that it begins, if it begins only one. A choice that was not reported gets the lowest
    reported value, which is the most it can have. Raises ServiceError when none was reported.
    """
    mass = dict.fromkeys(choices, 0.0)
    for token, logprob in reported.items():
        begun = [choice for choice in choices if token.strip() and choice.strip().startswith(token.strip())]
        exact = [choice for choice in begun if choice.strip() == token.strip()]
        if len(owners := exact or begun) == 1:
            mass[owners[0]] += math.exp(logprob)
    if not any(mass.values()):
        raise ServiceError(f"none of the {len(reported)} reported tokens begins one of the choices alone")
    floor = min(reported.values())
    return {choice: math.log(weight) if weight else floor for choice, weight in mass.items()}


def _affinity(messages: Sequence[Message]) -> int:
    return zlib.crc32("".join(message.content[:_AFFINITY_CHARACTERS] for message in messages[:2]).encode())


def _usage(payload: Mapping[str, Any], kind: str) -> int:
    return (payload.get("usage") or {}).get(kind) or 0


def _next_token_logprobs(payload: Mapping[str, Any]) -> Mapping[str, float]:
    positions = _token_logprobs(payload["choices"][0])
    if not positions:
        raise ServiceError("the server reported no log-probabilities")
    return positions[0]


def _token_logprobs(choice: Mapping[str, Any]) -> tuple[Mapping[str, float], ...]:
    """Per generated token the log-probabilities that were reported, its own first."""
    return tuple(_reported(position) for position in (choice.get("logprobs") or {}).get("content") or ())


def _reported(position: Mapping[str, Any]) -> dict[str, float]:
    logprobs: dict[str, float] = {position["token"]: position["logprob"]}
    for entry in position.get("top_logprobs") or ():
        logprobs.setdefault(entry["token"], entry["logprob"])  # tokens that are parts of a character look alike
    return logprobs
