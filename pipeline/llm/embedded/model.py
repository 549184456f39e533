"""The backend `llm=embedded`: runs a Llama on the CPU with CTranslate2 and replies as a served one does."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import ConfigDict, PositiveInt
from pydantic.dataclasses import dataclass

from pipeline.errors import ContextOverflow, UserError
from pipeline.kg.interface import KnowledgeGraph
from pipeline.llm.checkpoint import digest_of
from pipeline.llm.embedded.batches import Batches, Generated, Unwanted
from pipeline.llm.embedded.beams import Beams
from pipeline.llm.embedded.bundled import BUNDLED_MODEL, reply_cap, training
from pipeline.llm.embedded.chat import Chat
from pipeline.llm.embedded.llama import Llama
from pipeline.llm.embedded.reply import Ends, Reply, Round
from pipeline.llm.interface import Model, OneModel, capped_identity
from pipeline.llm.prompt import Call, Candidate, Completion, Sampling
from pipeline.llm.roles import method_of
from pipeline.types import RUNTIME_ONLY, Example


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class EmbeddedModel(OneModel):
    """One Llama in this process. The fields are described in `conf/llm/embedded.yaml`."""

    model: str | None
    max_new_tokens: PositiveInt | None
    threads: Annotated[PositiveInt | None, RUNTIME_ONLY]

    label = None

    async def __aenter__(self) -> Self:
        """Load the checkpoint. Raises UserError if there is none or it is not supported."""
        threads = self.threads or _available_cores()
        folder = _folder(self.model)
        self.identity = f"llama@{await asyncio.to_thread(digest_of, folder)}"
        self._llama = await asyncio.to_thread(Llama, folder, threads)
        self.context_length = self._llama.context
        self._chat = await asyncio.to_thread(Chat, folder, self._llama.vocabulary)
        self._batches = Batches(self._generate, threads)
        self._ends: dict[tuple[str, ...], Ends] = {}
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._batches.close()

    def for_question(self, example: Example, kg: KnowledgeGraph) -> Model:
        return _Capped(self, example.question.dataset)

    def remark(self, method: str, dataset: str, keys: Mapping[str, Any]) -> str | None:
        """Return a warning if the bundled model was not trained for the method on the dataset, or with other keys."""
        trained = training()
        if self.model is not None:
            return None
        if trained.covers(method, dataset):
            words = " ".join(f"method.{key}={value}" for key, value in trained.differing(method, keys).items())
            return words and (
                f"the bundled model was trained for {method} with {words}: with other values, prompts are often "
                "longer, and answers many times slower, and worse"
            )
        return (
            f"the bundled model was trained for {', '.join(trained.methods)} on {' and '.join(trained.datasets)}, not "
            f"for {method} on {dataset}: expect poor answers, from replies of at most {self.cap(method, dataset)} "
            "tokens (llm.max_new_tokens); llm.model=FOLDER runs another model"
        )

    def cap(self, method: str, dataset: str) -> int | None:
        """Return the most tokens of a reply to a method on a dataset; None leaves it to the method."""
        return reply_cap(self.model, self.max_new_tokens, method, dataset)

    async def complete(self, call: Call) -> Completion:
        """Answer one call. Raises ContextOverflow, or Unanswerable if the chat template refuses the prompt."""
        sampling = call.sampling
        if sampling.is_beam_search:
            return await self._search(call)
        if sampling.candidates > 1:
            return await self._draw(call)
        reply = await self._reply(call, sampling, seed=call.seed)
        return self._completion(reply, sampling)

    async def _search(self, call: Call) -> Completion:
        """Return the candidates of a beam search."""
        prompt, sampling = self._prompt(call, call.sampling)
        found = Beams(self._chat, prompt, sampling, self._ends_of(()))
        await self._batches.finish(found)
        best = found.candidates[0]
        return Completion(
            text=best.text,
            finish_reason=best.finish_reason,
            prompt_tokens=len(prompt),
            completion_tokens=found.tokens,
            seconds=found.seconds,
            candidates=found.candidates,
        )

    async def _draw(self, call: Call) -> Completion:
        """Return independent draws, each with a seed of its own; those with the best scores come first."""
        sampling = call.sampling
        seeds = range(call.seed, call.seed + sampling.candidates)
        replies = await asyncio.gather(*(self._reply(call, sampling, seed=seed) for seed in seeds))
        found = [(self._completion(reply, sampling), _score(reply)) for reply in replies]
        ranked = sorted(found, key=lambda pair: -(pair[1] or 0.0))
        return replace(
            ranked[0][0],
            completion_tokens=sum(completion.completion_tokens for completion, _ in found),
            seconds=max(reply.seconds for reply in replies),
            candidates=tuple(Candidate(each.text, each.finish_reason, score) for each, score in ranked),
        )

    def _completion(self, reply: Reply, sampling: Sampling) -> Completion:
        logprobs = (self._chat.logprobs_by_text(each, reply.ids[:at]) for at, each in enumerate(reply.logprobs))
        return Completion(
            text=reply.text,
            finish_reason=reply.finish_reason or "stop",
            prompt_tokens=len(reply.prompt),
            completion_tokens=len(reply.ids),
            logprobs=tuple(logprobs) if sampling.logprobs is not None else None,
            seconds=reply.seconds,
        )

    async def choose(self, call: Call) -> Completion:
        """Return the softmax of single-token choices' log-probabilities as the next token (specification §4.6).

        Raises UserError for a choice that is not one token, and the errors of `complete`.
        """
        ids = {choice: self._token(choice) for choice in call.choices}
        reply = await self._reply(call, Sampling(max_tokens=1), seed=call.seed, listed=list(ids.values()))
        next_token = reply.logprobs[0]
        completion = Completion.of_choices(
            {choice: next_token[id] for choice, id in ids.items()},
            prompt_tokens=len(reply.prompt),
            completion_tokens=len(reply.ids),
        )
        return replace(completion, seconds=reply.seconds)

    async def tokens(self, text: str) -> list[int]:
        """Return the ids of a text's tokens."""
        return self._chat.tokens(text)

    def is_hidden(self, id: int) -> bool:
        """Return whether a token is special and therefore left out of replies."""
        return id in self._chat.hidden

    async def _reply(self, call: Call, sampling: Sampling, *, seed: int, listed: Sequence[int] = ()) -> Reply:
        prompt, sampling = self._prompt(call, sampling)
        reply = Reply(self._chat, prompt, sampling, self._ends_of(sampling.stop), seed=seed, listed=listed)
        await self._batches.finish(reply)
        return reply

    def _prompt(self, call: Call, sampling: Sampling) -> tuple[list[int], Sampling]:
        """Return the ids of the prompt, and the parameters with the tokens that the context has room for."""
        prompt = self._chat.prompt_ids(call.messages)
        room = self._llama.context - len(prompt)
        if room < 1:
            raise ContextOverflow(
                f"the prompt has {len(prompt)} tokens, but the model's context has only {self._llama.context}"
            )
        return prompt, replace(sampling, max_tokens=min(room, sampling.max_tokens))

    def _ends_of(self, stop: tuple[str, ...]) -> Ends:
        if stop not in self._ends:
            end = self._chat.end_of_turn
            turn = self._llama.ends | ({end} if end is not None else set())
            tokens = turn.union(*(self._chat.tokens_with(text) for text in stop))
            complete = all(len(self._chat.tokens(text)) == 1 for text in stop)
            self._ends[stop] = Ends(turn, stop, tuple(sorted(tokens)), complete)
        return self._ends[stop]

    def _token(self, choice: str) -> int:
        tokens = self._chat.tokens(choice)
        if len(tokens) != 1:
            raise UserError(
                f"'{choice}' is {len(tokens)} tokens for {self.identity}, but choices must be single tokens; "
                "use a model whose tokenizer has it as one token"
            )
        return tokens[0]

    def _generate(self, replies: Sequence[Generated], unwanted: Unwanted) -> None:
        """Run one round for replies with the same `next_round`."""
        began = time.perf_counter()
        self._run(replies[0].next_round, replies, unwanted)
        seconds = time.perf_counter() - began
        for reply in replies:
            reply.seconds += seconds

    def _run(self, round: Round, replies: Sequence[Generated], unwanted: Unwanted) -> None:
        contexts = [reply.context for reply in replies]
        if round.beams > 1:
            searched = self._llama.search(
                contexts, round.ends, round.limit, width=round.beams, length_penalty=round.length_penalty
            )
            for beams, found in zip(replies, searched, strict=True):
                assert isinstance(beams, Beams), "replies of a batch have equal requests"
                beams.add(found)
            return
        generated = self._llama.generate(contexts, round.ends, round.limit, logits=round.logits, stops=unwanted)
        for reply, (ids, scores) in zip(replies, generated, strict=True):
            assert isinstance(reply, Reply), "replies of a batch have equal requests"
            reply.add(ids, scores)


class _Capped:
    """The model for a question of a dataset, with its cap on the tokens of a reply."""

    def __init__(self, model: EmbeddedModel, dataset: str) -> None:
        self._model = model
        self._dataset = dataset

    def identity_of(self, role: str) -> str:
        return capped_identity(self._model.identity, self._cap(role))

    async def complete(self, call: Call) -> Completion:
        if (cap := self._cap(call.prompt.role)) is not None:
            call = replace(call, sampling=replace(call.sampling, max_tokens=min(cap, call.sampling.max_tokens)))
        return await self._model.complete(call)

    async def choose(self, call: Call) -> Completion:
        return await self._model.choose(call)

    def _cap(self, role: str) -> int | None:
        return self._model.cap(method_of(role), self._dataset)


def _score(reply: Reply) -> float | None:
    """Return the sum of the log-probabilities of a reply's tokens; None if they were not requested."""
    own = [next(iter(position.values())) for position in reply.logprobs]
    return sum(own) if own else None


def _folder(model: str | None) -> Path:
    folder = BUNDLED_MODEL if model is None else Path(model).expanduser()
    if not folder.is_dir():
        raise UserError(
            f"llm.model={model} is not a folder on this machine; llm=embedded needs the folder of a Llama checkpoint"
        )
    return folder


def _available_cores() -> int:
    """Return the number of cores for this process: OpenMP's, which Ray sets for its workers, or all allowed ones."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    if limit.isdigit():
        return int(limit)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
