"""A Llama in this process and the same one on a real vLLM answer alike; on Ray, each worker has one of its own."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import polars as pl
import pytest
import yaml

from pipeline.config import default
from pipeline.errors import ContextOverflow
from pipeline.llm.embedded.bundled import BUNDLED_MODEL
from pipeline.llm.embedded.model import EmbeddedModel
from pipeline.llm.endpoint import EndpointModel
from pipeline.llm.prompt import Completion, Message, Sampling
from pipeline.llm.vllm import VllmServer
from pipeline.methods.arg.tokens import CLASSES, OPEN, RETRIEVE_ENTITY
from pipeline.traces.reader import RecordedCalls
from pipeline.training.bundled_sources import METHODS
from tests.integration.conftest import CONTEXT, VLLM_WORDS, RayCluster
from tests.integration.models.test_vllm import kgqa
from tests.llm.reference import BEGUN, CHAT, call

pytestmark = pytest.mark.exhaustive

PROMPTS: list[Sequence[Message]] = [
    CHAT,
    BEGUN,
    (*CHAT, Message("assistant", "")),
    (*CHAT, Message("assistant", "à 漢 \n")),
    (Message("user", "Write<|eot_id|> <paragraph> à 漢字 🙂\t[Utility:5]"),),
    *[(Message("user", f"Where was the wife of number {n} born?"),) for n in range(15)],
]


@pytest.fixture
async def served(vllm_server: VllmServer) -> AsyncIterator[EndpointModel]:
    async with default(EndpointModel, base_urls=(vllm_server.base_url,)) as model:
        yield model


@pytest.fixture
async def embedded(llama: Path) -> AsyncIterator[EmbeddedModel]:
    async with default(EmbeddedModel, model=str(llama), threads=1) as model:
        yield model


def assert_alike(ours: Completion, theirs: Completion) -> None:
    """The same but for the noise of floats, down to what tokens are called."""
    assert ours.text == theirs.text
    assert ours.finish_reason == theirs.finish_reason
    assert (ours.prompt_tokens, ours.completion_tokens) == (theirs.prompt_tokens, theirs.completion_tokens)
    assert (ours.logprobs is None) == (theirs.logprobs is None)
    for mine, other in zip(ours.logprobs or (), theirs.logprobs or (), strict=True):
        assert next(iter(mine)) == next(iter(other))
        # Of two tokens whose probabilities differ by less than the noise, each model may list another one.
        assert list(mine.values()) == pytest.approx(list(other.values()), abs=1e-3)
        assert all(mine[token] == pytest.approx(other[token], abs=1e-3) for token in mine.keys() & other.keys())


async def assert_chosen_alike(ours: EmbeddedModel, theirs: EndpointModel, messages: Sequence[Message]) -> None:
    """Of each class of reflection tokens the same member, by the same probabilities."""
    for members in CLASSES.values():
        asked = call(messages, choices=members)
        mine, other = await ours.choose(asked), await theirs.choose(asked)
        assert mine.probabilities == pytest.approx(other.probabilities, abs=1e-3)
        assert_alike(mine, other)


@pytest.mark.parametrize("logprobs", [None, 0, 1, 6])
async def test_the_same_tokens_text_and_log_probabilities(
    embedded: EmbeddedModel, served: EndpointModel, logprobs: int | None
) -> None:
    names = set()

    async def compare(messages: Sequence[Message]) -> None:
        asked = call(messages, Sampling(max_tokens=16, logprobs=logprobs))
        ours = await embedded.complete(asked)
        assert_alike(ours, await served.complete(asked))
        names.update(name for position in ours.logprobs or () for name in position)

    await asyncio.gather(*map(compare, PROMPTS))
    if logprobs == 6:
        assert "" in names, "some tokens were parts of characters"


async def test_the_same_ends(embedded: EmbeddedModel, served: EndpointModel) -> None:
    async def count_ended(messages: Sequence[Message]) -> int:
        ended = 0
        text = (await embedded.complete(call(messages, Sampling(max_tokens=40)))).text
        stops = [("\n",), (text[5:9],), (text[30:31], text[20:24], text[20:40]), (OPEN, RETRIEVE_ENTITY, text[12:14])]
        for stop in stops:
            asked = call(messages, Sampling(max_tokens=40, stop=stop, logprobs=2))
            ours = await embedded.complete(asked)
            assert_alike(ours, await served.complete(asked))
            ended += ours.finish_reason == "stop"
        return ended

    assert sum(await asyncio.gather(*map(count_ended, PROMPTS))) >= 3 * len(PROMPTS)


async def test_the_same_probabilities_of_choices(embedded: EmbeddedModel, served: EndpointModel) -> None:
    await asyncio.gather(*(assert_chosen_alike(embedded, served, messages) for messages in PROMPTS))


async def test_the_same_room(embedded: EmbeddedModel, served: EndpointModel) -> None:
    assert embedded.context_length == served.context_length == CONTEXT
    words = CONTEXT - len(embedded._chat.prompt_ids([Message("user", "")]))
    almost = call([Message("user", " who" * (words - 3))])
    ours = await embedded.complete(almost)
    assert 0 < CONTEXT - ours.prompt_tokens == ours.completion_tokens < 4
    assert_alike(ours, await served.complete(almost))
    for model in (embedded, served):
        with pytest.raises(ContextOverflow):
            await model.complete(call([Message("user", " who" * (words + 1))]))


BOUNDED = ("llm.max_new_tokens=200", "budget.max_llm_calls=60")
"""Limits for replies that repeat themselves without end."""
MOST_OF_ROLE = 2
"""Calls of each role that both models answer."""


async def test_the_bundled_model_answers_the_prompts_of_every_method_alike(tmp_path: Path) -> None:
    points, run = tmp_path / "points.txt", tmp_path / "run"
    points.write_text("".join(f"{shlex.join(words)}\n" for words in [*METHODS.values(), ["method=cot"]]), "utf-8")
    assert kgqa("sweep", str(points), "llm=embedded", *BOUNDED, "run.limit=1", f"run.dir={run}").returncode == 0
    recorded = RecordedCalls(str(run))
    ids = pl.read_parquet(run / "traces" / "*.parquet")["question_id"].unique(maintain_order=True)
    calls = [call for id in ids for call in recorded.calls(id).values()]
    of_role = {role: [each for each in calls if each.role == role][:MOST_OF_ROLE] for role in {c.role for c in calls}}
    assert {role.partition(".")[0] for role in of_role} == {*METHODS, "cot"}
    asked = [recorded.messages(each) for calls in of_role.values() for each in calls]
    assert len(asked) > len(of_role) > 25
    with VllmServer(str(BUNDLED_MODEL), tmp_path / "server.log", VLLM_WORDS) as server:
        async with default(EmbeddedModel) as ours, default(EndpointModel, base_urls=(server.base_url,)) as theirs:

            async def compare(messages: Sequence[Message]) -> None:
                segment = call(messages, Sampling(max_tokens=60, logprobs=1))
                assert_alike(await ours.complete(segment), await theirs.complete(segment))
                await assert_chosen_alike(ours, theirs, messages)

            await asyncio.gather(*map(compare, asked))


def test_each_worker_of_a_ray_cluster_has_its_own(llama: Path, ray_cluster: RayCluster, tmp_path: Path) -> None:
    words = ["method=arg", "method.max_new_tokens=12", "dataset.triples=2000", "run.limit=20"]
    words += ["llm=embedded", f"llm.model={llama}"]
    served = []
    for folder, engine in (("local", []), ("ray", ["engine=ray", "engine.workers=2", "engine.shard_size=5"])):
        done = kgqa("evaluate", *words, *engine, f"run.dir={tmp_path / folder}", cluster=ray_cluster)
        assert done.returncode == 0, done.stderr
        (point,) = json.loads((tmp_path / folder / "summary.json").read_text())["points"]
        assert (point["questions"], point["failed"]) == (20, 0)
        served.append(yaml.safe_load((tmp_path / folder / "run.yaml").read_text())["served"])
    assert served[0] == served[1]
