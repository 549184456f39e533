"""Every model server by itself, and a Llama in this process: what answers, how fast, and with the tokens ArG needs.

Servers of one model have to serve the same, and `choose` has to be exact where a method asks for that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from pipeline import config
from pipeline.engine.checkup.finding import Finding, ok, problem, warning
from pipeline.engine.run import Point
from pipeline.errors import KgqaError, ServiceError, UserError
from pipeline.llm.embedded.model import EmbeddedModel
from pipeline.llm.endpoint import EndpointModel
from pipeline.llm.prompt import Call, Prompt, Sampling, Template
from pipeline.methods.arg.method import ArG
from pipeline.methods.arg.tokens import CLASSES

if TYPE_CHECKING:
    from pipeline.llm.oracle import Truth
    from pipeline.retrieval.lexical import LexicalEncoder

_Real: TypeAlias = EndpointModel | EmbeddedModel
"""A language model, one server of it or one in this process."""

_PATIENCE_S = 30.0
_TEMPLATE = Template(system="You answer with one letter.", user="{{question}}")
_CHOICES = ("A", "B")
"""One token each in every vocabulary that there is."""
_SHOWN = 3
_UNHIDE = "Set llm.extra_body={skip_special_tokens: false}."
_REMEDY = "Serve a model that was trained on these tokens, or take method.generator=prompted."


@dataclass(frozen=True)
class _Trivial(Prompt[str]):
    """The shortest call that there is."""

    role: ClassVar[str] = "doctor.trivial"

    @property
    def template(self) -> Template:
        return _TEMPLATE

    def inputs(self) -> dict[str, str]:
        return {"question": "Is this A or B?"}

    def parse(self, text: str) -> str:
        return text

    def fallback(self, text: str) -> str:
        return text

    def write_as_oracle(self, truth: Truth, slip: object) -> str:
        return _CHOICES[0]

    def write_by_similarity(self, encoder: LexicalEncoder) -> str:
        return _CHOICES[0]


async def models(point: Point) -> list[Finding]:
    """What answers each role, server by server."""
    llm = point.config["llm"]
    method = config.build("method", point.config)
    return [
        finding
        for role, keys in config.models(llm).items()
        for finding in await _model(f"model of {role}" if role else "model", keys, method)
    ]


async def _model(name: str, keys: dict[str, Any], method: object) -> list[Finding]:
    model = config.build("llm", {"llm": keys})
    if isinstance(model, EmbeddedModel):
        _, found = await _look(name, model, method)
        return found
    if not isinstance(model, EndpointModel):
        # A replayed or a served model is known once it is open, which the dry run does.
        label = getattr(model, "label", None)
        return [ok(name, f"{label}: no language model, answers in this process")] if label else []
    patience_s = min(model.timeout_s, _PATIENCE_S)
    servers = [replace(model, base_urls=(url,), max_retries=0, timeout_s=patience_s) for url in model.base_urls]
    looks = await asyncio.gather(*(_look(f"{name} {server.base_urls[0]}", server, method) for server in servers))
    identities = {url: identity for url, (identity, _) in zip(model.base_urls, looks, strict=True) if identity}
    return [*(finding for _, found in looks for finding in found), *_different(name, identities)]


def _different(name: str, identities: dict[str, str]) -> Iterator[Finding]:
    if len(set(identities.values())) > 1:
        listing = ", ".join(f"{identity} at {url}" for url, identity in identities.items())
        yield problem(
            name, f"its servers serve different models: {listing}", "Name servers of one model in llm.base_urls."
        )


async def _look(subject: str, model: _Real, method: object) -> tuple[str | None, list[Finding]]:
    """What a server or this process answers with, None where it does not, and what is to be said of it."""
    try:
        async with model as open_model:
            began = time.monotonic()
            await open_model.complete(_call())
            latency_s = time.monotonic() - began
            room = f", context of {length:,} tokens" if (length := open_model.context_length) else ""
            served = ok(subject, f"up, serves {open_model.identity}, a trivial call took {latency_s:.2f} s{room}")
            return open_model.identity, [
                served,
                *await _choices(subject, open_model, method),
                *await _reflection_tokens(subject, open_model, method),
            ]
    except UserError as error:
        return None, [problem(subject, "it cannot be used", str(error))]
    except ServiceError as error:
        return None, [
            problem(
                subject, f"it lists its models, but does not answer: {error}", "Look into its log, and start it again."
            )
        ]


def _call(*, choices: tuple[str, ...] = ()) -> Call:
    prompt = _Trivial()
    return Call(prompt, prompt.messages(), Sampling(max_tokens=1), key="doctor", seed=0, choices=choices)


async def _choices(subject: str, model: _Real, method: object) -> list[Finding]:
    """Whether `choose` gives exact probabilities, which ArG wants with `probabilities=exact`."""
    wanted = isinstance(method, ArG) and method.probabilities == "exact"
    try:
        await model.choose(_call(choices=_CHOICES))
    except KgqaError as error:
        if not wanted:
            return [ok(subject, "cannot weigh choices exactly, which this method does not ask for")]
        return [
            problem(subject, "choices cannot be weighed exactly, which method.probabilities=exact asks for", str(error))
        ]
    if isinstance(model, EndpointModel) and model.approximate_choices:
        return [ok(subject, "weighs choices by estimates (llm.approximate_choices), and tables will say so")]
    return [ok(subject, "weighs choices exactly")]


async def _reflection_tokens(subject: str, model: _Real, method: object) -> list[Finding]:
    """Whether what a fine-tuned ArG decides on are single tokens, and shown in the replies (methods.md §4.2)."""
    if not isinstance(method, ArG) or method.generator != "finetuned":
        return []
    tokens = [token for members in CLASSES.values() for token in members]
    try:
        ids = dict(zip(tokens, [await model.tokens(token) for token in tokens], strict=True))
    except KgqaError as error:
        return [
            warning(
                subject,
                f"nothing tells whether it knows ArG's {len(tokens)} reflection tokens: {error}",
                "Serve the model on vLLM, whose /tokenize tells.",
            )
        ]
    if pieces := {token: len(found) for token, found in ids.items() if len(found) != 1}:
        return [problem(subject, _in_pieces(pieces, len(tokens)), _REMEDY)]
    if await _hidden(model, ids[tokens[0]]):
        found = "it leaves reflection tokens out of its replies, because they are special tokens"
        return [problem(subject, found, _UNHIDE if isinstance(model, EndpointModel) else _REMEDY)]
    return [ok(subject, f"each of ArG's {len(tokens)} reflection tokens is one token")]


def _in_pieces(pieces: dict[str, int], tokens: int) -> str:
    shown = ", ".join(f"{token} is {count}" for token, count in list(pieces.items())[:_SHOWN])
    more = ", …" if len(pieces) > _SHOWN else ""
    return f"{len(pieces)} of ArG's {tokens} reflection tokens are several tokens for it: {shown}{more}"


async def _hidden(model: _Real, ids: Sequence[int]) -> bool:
    """Whether a reply that is made of nothing but this token comes back empty (vLLM can be held to listed tokens)."""
    if isinstance(model, EmbeddedModel):
        return model.hides(ids[0])
    held = replace(model, extra_body={**(model.extra_body or {}), "allowed_token_ids": list(ids)})
    async with held as open_model:
        return not (await open_model.complete(_call())).text.strip()
