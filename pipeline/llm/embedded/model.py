"""A Llama in this process, on the CPU, through CTranslate2: what a served one answers, without a server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from pydantic import ConfigDict, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.errors import ContextOverflow, UserError
from pipeline.kg.port import KnowledgeGraph
from pipeline.llm.checkpoint import digest_of
from pipeline.llm.embedded.batches import Batches
from pipeline.llm.embedded.chat import Chat
from pipeline.llm.embedded.llama import Llama
from pipeline.llm.embedded.reply import Ends, Reply
from pipeline.llm.port import OneModel
from pipeline.llm.prompt import Call, Completion, Sampling
from pipeline.types import Example

RESIDENT = Path(__file__).resolve().parents[2] / "resident"
"""The Llama that comes with the package."""


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class EmbeddedModel(OneModel):
    """One Llama in this process. The fields are described in `conf/llm/embedded.yaml`."""

    model: str | None = None
    threads: PositiveInt | None = None

    def __post_init__(self) -> None:
        self.label: str | None = None

    async def __aenter__(self) -> Self:
        """Load the checkpoint. Raises UserError where there is none, or one of another kind."""
        threads = self.threads or _cores()
        folder = _folder(self.model)
        self.identity = f"llama@{await asyncio.to_thread(digest_of, folder)}"
        self._llama = await asyncio.to_thread(Llama, folder, threads)
        self._chat = await asyncio.to_thread(Chat, folder, self._llama.vocabulary)
        self._batches = Batches(self._write, threads)
        self._ends: dict[tuple[str, ...], Ends] = {}
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._batches.close()

    @property
    def context_length(self) -> int:
        """Tokens that it has room for, prompt and reply together."""
        return self._llama.context

    def for_question(self, example: Example, kg: KnowledgeGraph) -> Self:
        return self

    async def complete(self, call: Call) -> Completion:
        """Answer one call. Raises ContextOverflow, or ServiceError where the chat template refuses the prompt."""
        sampling = call.sampling
        reply = await self._reply(call, sampling)
        named = (self._chat.named(each, reply.written[:place]) for place, each in enumerate(reply.logprobs))
        return Completion(
            text=reply.text,
            finish_reason=reply.finish_reason or "stop",
            prompt_tokens=len(reply.prompt),
            completion_tokens=len(reply.written),
            logprobs=tuple(named) if sampling.logprobs is not None else None,
        )

    async def choose(self, call: Call) -> Completion:
        """Weigh single-token choices by the softmax of their log-probabilities as the next token (methods.md §4.6).

        Raises UserError for a choice that is not one token, ContextOverflow and ServiceError as `complete`.
        """
        ids = {choice: self._token(choice) for choice in call.choices}
        reply = await self._reply(call, Sampling(max_tokens=1), listed=list(ids.values()))
        next_token = reply.logprobs[0]
        return Completion.of_choices(
            {choice: next_token[id] for choice, id in ids.items()},
            prompt_tokens=len(reply.prompt),
            completion_tokens=len(reply.written),
        )

    async def tokens(self, text: str) -> list[int]:
        """The ids of a text's tokens."""
        return self._chat.tokens(text)

    def hides(self, id: int) -> bool:
        """Whether replies leave a token out, because it is a special one."""
        return self._chat.hides(id)

    async def _reply(self, call: Call, sampling: Sampling, listed: Sequence[int] = ()) -> Reply:
        prompt = self._chat.prompt(call.messages)
        room = self._llama.context - len(prompt)
        if room < 1:
            raise ContextOverflow(
                f"the prompt has {len(prompt)} tokens, and the Llama's context is of {self._llama.context}"
            )
        sampling = replace(sampling, max_tokens=min(room, sampling.max_tokens))
        reply = Reply(self._chat, prompt, sampling, self._ends_of(sampling.stop), seed=call.seed, listed=listed)
        await self._batches.finish(reply)
        return reply

    def _ends_of(self, stop: tuple[str, ...]) -> Ends:
        if stop not in self._ends:
            end = self._chat.end_of_turn
            turn = self._llama.ends | ({end} if end is not None else set())
            tokens = turn.union(*(self._chat.tokens_with(text) for text in stop))
            settled = all(len(self._chat.tokens(text)) == 1 for text in stop)
            self._ends[stop] = Ends(turn, stop, tuple(sorted(tokens)), settled)
        return self._ends[stop]

    def _token(self, choice: str) -> int:
        tokens = self._chat.tokens(choice)
        if len(tokens) != 1:
            raise UserError(
                f"'{choice}' is {len(tokens)} tokens for {self.identity}, and only single tokens can be weighed: "
                "take a model whose tokenizer has it as one token."
            )
        return tokens[0]

    def _write(self, replies: Sequence[Reply]) -> None:
        """Take replies that want the same one round further."""
        ends, limit, logits = replies[0].wanted
        rounds = self._llama.write([reply.ids for reply in replies], ends, limit, logits=logits)
        for reply, (ids, scores) in zip(replies, rounds, strict=True):
            reply.go_on(ids, scores)


def _folder(model: str | None) -> Path:
    folder = RESIDENT if model is None else Path(model).expanduser()
    if not folder.is_dir():
        raise UserError(
            f"llm.model={model} is no folder on this machine: llm=embedded runs the checkpoint of a Llama from a folder"
        )
    return folder


def _cores() -> int:
    """Cores for this process: what OpenMP is given, as Ray tells its workers, or all that it may run on."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    if told.isdigit():
        return int(told)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
