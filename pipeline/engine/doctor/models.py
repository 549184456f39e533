"""Checks each model server, or the Llama in this process: identity, latency, and the tokens that ArG needs.

All servers of a model must serve the same model, and `choose` must be exact if the method requires it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from pipeline import config
from pipeline.engine.configuration import Configuration
from pipeline.engine.doctor.finding import Finding, compared, ok, problem, warning
from pipeline.engine.doctor.trivial_prompt import CHOICES, TrivialPrompt
from pipeline.errors import KgqaError, RequestRefused, ServiceError, Unanswerable, UserError
from pipeline.llm.embedded.model import EmbeddedModel
from pipeline.llm.endpoint import EndpointModel
from pipeline.llm.interface import simulated
from pipeline.llm.prompt import Call, Sampling
from pipeline.llm.roles import remarks
from pipeline.methods.arg.method import ArG
from pipeline.methods.arg.tokens import CLASSES

_Real: TypeAlias = EndpointModel | EmbeddedModel
"""A language model: one server, or the model in this process."""

_TIMEOUT_S = 30.0
_MAX_TOKENS = 64
"""Of a trivial reply. Some servers refuse fewer than 16, and a method allows at least as many."""
_SHOWN = 3
_UNHIDE = "Set llm.extra_body={skip_special_tokens: false}."
_UNSUITABLE = "Set these keys, or use the model for what it was trained for, or set llm.model to another one."
_REMEDY = "Serve a model that was trained on these tokens, or set method.generator=prompted."


async def models(configuration: Configuration) -> list[Finding]:
    """Check the model of each role, server by server, and whether it suits the method and the dataset."""
    llm = configuration.config["llm"]
    method = config.build("method", configuration.config)
    dataset = config.build("dataset", configuration.config).name
    findings: list[Finding] = []
    for role, keys in config.models(llm).items():
        name = f"model of {role}" if role else "model"
        findings += await _model(name, keys, method)
        for remark in remarks(config.build("llm", {"llm": keys}), method, dataset, configuration.config):
            findings += warning(name, remark, _UNSUITABLE)
    return findings


async def _model(name: str, keys: dict[str, Any], method: object) -> list[Finding]:
    model = config.build("llm", {"llm": keys})
    if isinstance(model, EmbeddedModel):
        _, found = await _check(name, model, method)
        return found
    if not isinstance(model, EndpointModel):
        # A replayed or served model is known only when it is open: the dry run opens it.
        label = simulated(getattr(model, "label", None))
        return ok(name, f"{label}: no language model, answers in this process") if label else []
    timeout_s = min(model.timeout_s, _TIMEOUT_S)
    servers = [replace(model, base_urls=(url,), max_retries=0, timeout_s=timeout_s) for url in model.base_urls]
    looks = await asyncio.gather(*(_check(f"{name} {server.base_urls[0]}", server, method) for server in servers))
    identities = {url: identity for url, (identity, _) in zip(model.base_urls, looks, strict=True)}
    different = compared(name, identities, "serve different models", "Name servers of one model in llm.base_urls.")
    return [*(finding for _, found in looks for finding in found), *different]


async def _check(subject: str, model: _Real, method: object) -> tuple[str | None, list[Finding]]:
    """Return the identity of a model (None if it cannot be used) and its findings."""
    try:
        async with model as open_model:
            began = time.monotonic()
            await open_model.complete(_call())
            latency_s = time.monotonic() - began
            room = f", context of {length:,} tokens" if (length := open_model.context_length) else ""
            served = ok(subject, f"up, serves {open_model.identity}, a trivial call took {latency_s:.2f} s{room}")
            return open_model.identity, [
                *served,
                *await _choices(subject, open_model, method),
                *await _reflection_tokens(subject, open_model, method),
            ]
    except (UserError, RequestRefused, Unanswerable) as error:
        return None, problem(subject, "it cannot be used", str(error))
    except ServiceError as error:
        fix = "See its log. Restart it, or try again later if it only has too many requests."
        return None, problem(subject, f"a trivial call fails: {error}", fix)


def _call(*, choices: tuple[str, ...] = ()) -> Call:
    prompt = TrivialPrompt()
    return Call(prompt, prompt.messages(), Sampling(max_tokens=_MAX_TOKENS), key="doctor", seed=0, choices=choices)


async def _choices(subject: str, model: _Real, method: object) -> list[Finding]:
    """Check that `choose` gives exact probabilities, which ArG needs with `probabilities=exact`."""
    wanted = isinstance(method, ArG) and method.probabilities == "exact"
    try:
        await model.choose(_call(choices=CHOICES))
    except KgqaError as error:
        if not wanted:
            return ok(subject, "cannot compute exact probabilities of choices, which this method does not need")
        missing = "it cannot compute exact probabilities of choices, which method.probabilities=exact needs"
        return problem(subject, missing, str(error))
    if isinstance(model, EndpointModel) and model.approximate_choices:
        return ok(subject, "estimates the probabilities of choices (llm.approximate_choices); tables will say so")
    return ok(subject, "computes exact probabilities of choices")


async def _reflection_tokens(subject: str, model: _Real, method: object) -> list[Finding]:
    """Check that the tokens of a fine-tuned ArG are single tokens, and present in replies (specification §4.2)."""
    if not isinstance(method, ArG) or method.generator != "finetuned":
        return []
    tokens = [token for members in CLASSES.values() for token in members]
    try:
        ids = dict(zip(tokens, [await model.tokens(token) for token in tokens], strict=True))
    except KgqaError as error:
        return warning(
            subject,
            f"it does not report whether ArG's {len(tokens)} reflection tokens are in its vocabulary: {error}",
            "Serve the model on vLLM, whose /tokenize reports it.",
        )
    if pieces := {token: len(found) for token, found in ids.items() if len(found) != 1}:
        return problem(subject, _in_pieces(pieces, len(tokens)), _REMEDY)
    if await _hidden(model, ids[tokens[0]]):
        found = "it omits reflection tokens from its replies, because they are special tokens"
        return problem(subject, found, _UNHIDE if isinstance(model, EndpointModel) else _REMEDY)
    return ok(subject, f"each of ArG's {len(tokens)} reflection tokens is one token")


def _in_pieces(pieces: dict[str, int], tokens: int) -> str:
    shown = ", ".join(f"{token} is {count}" for token, count in list(pieces.items())[:_SHOWN])
    more = ", …" if len(pieces) > _SHOWN else ""
    return f"{len(pieces)} of ArG's {tokens} reflection tokens are several tokens for it: {shown}{more}"


async def _hidden(model: _Real, ids: Sequence[int]) -> bool:
    """Check whether a reply of only this token is empty. vLLM can be restricted to listed tokens."""
    if isinstance(model, EmbeddedModel):
        return model.is_hidden(ids[0])
    held = replace(model, extra_body={**(model.extra_body or {}), "allowed_token_ids": list(ids)})
    async with held as open_model:
        return not (await open_model.complete(_call())).text.strip()
