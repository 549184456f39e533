"""Real servers of a real Llama: plain vLLM, and vLLM as Ray places it, held against `transformers`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import polars as pl
import pytest
import torch
import transformers
import yaml
from safetensors.torch import load_file

from pipeline.cli.benchmarks.vllm import measure_replay, measure_saturation
from pipeline.config import default
from pipeline.errors import ContextOverflow, UserError
from pipeline.llm.endpoint import EndpointModel
from pipeline.llm.prompt import Message, Sampling
from pipeline.llm.vllm import VllmServer, read_metrics
from pipeline.methods.arg.tokens import CLASSES
from pipeline.simulation.world import SyntheticWorld
from pipeline.traces.folder import RunFolder
from pipeline.training.llama import REFLECTION_TOKENS
from tests.integration.conftest import RayCluster, ServedLlama, VirtuosoFactory
from tests.integration.models.conftest import LLAMA_RUN, ServedRun
from tests.integration.processes import is_loopback, listening
from tests.llm.reference import BEGUN, CHAT, Reference, call
from tests.support import KGQA, METHODS, short_replies, until


@pytest.fixture(scope="module")
def reference(llama: Path) -> Reference:
    return Reference.of(llama)


@pytest.fixture(params=["plain", pytest.param("serve", marks=pytest.mark.exhaustive)])
def model(request: pytest.FixtureRequest) -> EndpointModel:
    """The same Llama behind each kind of server."""
    if request.param == "plain":
        return default(EndpointModel, base_urls=(request.getfixturevalue("vllm_server").base_url,))
    served = request.getfixturevalue("served_llama")
    return default(EndpointModel, base_urls=(served.base_url,), model=served.model)


def test_the_tokenizer_keeps_texts_and_has_the_reflection_tokens(reference: Reference) -> None:
    text = "Who  wrote\n\n\tÀ é 漢字 12345?[Utility:5]<paragraph>x -> people.person.spouse_s</paragraph> "
    tokenizer = reference.tokenizer
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == tokenizer.decode(ids, skip_special_tokens=True) == text
    assert [tokenizer.tokenize(token) for token in REFLECTION_TOKENS] == [[token] for token in REFLECTION_TOKENS]


@pytest.mark.parametrize("messages", [CHAT, BEGUN], ids=["answers", "continues"])
async def test_choices_are_exact_softmaxes_over_their_class(
    model: EndpointModel, reference: Reference, messages: Sequence[Message]
) -> None:
    async with model as llm:
        for members in CLASSES.values():
            weighed = await llm.choose(call(messages, choices=members))
            assert weighed.probabilities == pytest.approx(reference.probabilities(messages, members), abs=1e-4)
            assert weighed.prompt_tokens == len(reference.ids(messages))
        with pytest.raises(UserError, match=r"'no token' is \d tokens"):
            await llm.choose(call(messages, choices=("[Unrelevant]", "no token")))


async def test_text_logprobs_stops_seeds_and_a_full_context(model: EndpointModel, reference: Reference) -> None:
    tokenizer = reference.tokenizer
    async with model as llm:
        greedy = await llm.complete(call(CHAT, Sampling(max_tokens=12, logprobs=5)))
        assert (greedy.prompt_tokens, greedy.completion_tokens) == (len(reference.ids(CHAT)), 12)
        assert greedy.finish_reason == "length"
        first, *_ = greedy.logprobs or ()
        expected = reference.next_logprobs(CHAT).topk(5)
        assert list(first.values()) == pytest.approx(expected.values.tolist(), abs=1e-4)
        assert list(first) == [tokenizer.decode([id]) for id in expected.indices.tolist()]

        stop = greedy.text[6:10]
        stopped = await llm.complete(call(CHAT, Sampling(max_tokens=12, stop=(stop,))))
        assert (stopped.text, stopped.finish_reason) == (greedy.text.partition(stop)[0], "stop")

        drawn = Sampling(max_tokens=12, temperature=1.0)
        once, again, other = [(await llm.complete(call(CHAT, drawn, seed=seed))).text for seed in (1, 1, 2)]
        assert once == again != other

        with pytest.raises(ContextOverflow):
            await llm.complete(call([Message("user", "who " * 9000)]))


async def test_a_beam_search_returns_the_best_sequences(vllm_server: VllmServer, llama: Path) -> None:
    """Without a length penalty: vLLM counts the tokens of the prompt in the length, the reference does not."""
    reference = Reference.of(llama)
    sampling = Sampling(candidates=4, search="beam", max_tokens=6, length_penalty=0.0)
    async with default(EndpointModel, base_urls=(vllm_server.base_url,)) as llm:
        found = await llm.complete(call(CHAT, sampling))
        drawn = await llm.complete(call(CHAT, Sampling(candidates=5, temperature=1.0, max_tokens=6, logprobs=0)))
    expected = [reference.tokenizer.decode(ids, skip_special_tokens=True) for _, ids in reference.beams(CHAT, sampling)]
    assert [each.text for each in found.candidates] == expected
    assert len(set(expected)) == 4
    assert found.prompt_tokens == len(reference.ids(CHAT))
    assert found.completion_tokens > 6
    scores = [each.score or 0.0 for each in drawn.candidates]
    assert len(scores) == 5
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] < 0


@pytest.mark.exhaustive
async def test_identities_name_the_checkpoint_and_the_adapter(
    vllm_server: VllmServer, served_llama: ServedLlama, llama: Path
) -> None:
    async with default(EndpointModel, base_urls=(vllm_server.base_url,)) as plain:
        assert plain.identity == f"llama of {llama}"
    assert re.fullmatch(r"llama@\w{8}-float32", served_llama.model)
    assert re.fullmatch(re.escape(served_llama.model) + r"\+lora@\w{8}", served_llama.adapted)


@pytest.mark.exhaustive
async def test_an_adapter_answers_as_if_it_were_part_of_the_weights(
    served_llama: ServedLlama, adapter: Path, llama: Path
) -> None:
    merged = transformers.AutoModelForCausalLM.from_pretrained(llama, dtype=torch.float32)
    weights = load_file(adapter / "adapter_model.safetensors")
    for layer, block in enumerate(merged.model.layers):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        low, high = weights[f"{name}.lora_A.weight"], weights[f"{name}.lora_B.weight"]
        block.self_attn.q_proj.weight.data += 4 / 8 * high @ low  # lora_alpha / r
    expected = Reference(merged.eval(), transformers.AutoTokenizer.from_pretrained(llama))
    async with default(EndpointModel, base_urls=(served_llama.base_url,), model=served_llama.adapted) as llm:
        weighed = await llm.choose(call(CHAT, choices=CLASSES["utility"]))
    assert weighed.probabilities == pytest.approx(expected.probabilities(CHAT, CLASSES["utility"]), abs=1e-3)


SETTINGS = {
    "srp": "method.retries=0 budget.max_llm_calls=60",
    "tog": "method.retries=0 budget.max_llm_calls=60",
    "pog": "method.calls=batched",
    "arg": "method.generator=prompted",
    "rog": "method.planner=listed",
}
"""SRP and ToG, which ask of several entities at once, are given calls enough; PoG asks of all in one call. ArG has no
trained model. vLLM counts a prompt of several candidates again for each, so RoG has a planner that asks for one."""
POINTS = [" ".join([*short_replies(method, 16), SETTINGS.get(method, "")]) for method in METHODS]
SMALL = ["budget.max_llm_calls=4", "budget.max_evidence_triples=20", "budget.max_frontier=50"]
RAY = ["engine=ray", "engine.workers=2", "engine.concurrency=16", "engine.shard_size=10"]


def kgqa(*words: str, cluster: RayCluster | None = None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | ({"RAY_ADDRESS": cluster.address} if cluster else {})
    return subprocess.run([*KGQA, *words], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.exhaustive
async def test_all_methods_on_a_served_model_and_virtuoso_lose_no_question_and_no_token(
    served_llama: ServedLlama, ray_cluster: RayCluster, virtuoso_factory: VirtuosoFactory, tmp_path: Path
) -> None:
    replicas = virtuoso_factory(default(SyntheticWorld).triples(), replicas=2)
    graph = ["kg=sparql", f"kg.endpoints=[{','.join(server.endpoint for server in replicas)}]"]
    points = tmp_path / "points.txt"
    points.write_text("\n".join(POINTS))
    before = counted_tokens(served_llama)
    words = [str(points), "run.limit=50", *SMALL, *RAY, *graph, *served_llama.words, f"run.dir={tmp_path / 'run'}"]
    done = kgqa("sweep", *words, cluster=ray_cluster)
    assert done.returncode == 0, done.stderr
    rows = pl.read_parquet(RunFolder(tmp_path / "run").traces)
    asked = rows.group_by("point").agg(pl.len(), pl.col("question_id").n_unique().alias("distinct"))
    assert sorted(asked.rows()) == [(point, 50, 50) for point in range(len(POINTS))]
    assert rows.filter(status="failed").select("question_id", "error").rows() == []
    asked_of = set(steps(rows)["endpoint"].drop_nulls())
    assert asked_of
    assert asked_of <= {server.endpoint for server in replicas}

    made = steps(rows).filter((pl.col("kind") == "llm") & ~pl.col("shared"))
    # A cap that is met while a method asks of two entities drops the calls in flight. Only the server counts those.
    assert made["finish_reason"].null_count() == 0
    counted = [now - then for now, then in zip(counted_tokens(served_llama), before, strict=True)]
    assert counted == list(made.select(pl.col("prompt_tokens", "completion_tokens").sum()).row(0))
    assert min(counted) > 1000


def steps(rows: pl.DataFrame) -> pl.DataFrame:
    """All steps of all rows."""
    return rows.select("steps").explode("steps").unnest("steps")


def counted_tokens(served: ServedLlama) -> tuple[float, float]:
    """The tokens that vLLM has read and written."""
    metrics = read_metrics(served.base_url.removesuffix("/v1") + "/metrics")
    return metrics["vllm:prompt_tokens_total"], metrics["vllm:generation_tokens_total"]


@pytest.mark.exhaustive
async def test_ray_exports_the_metrics_of_the_server(served_llama: ServedLlama, ray_cluster: RayCluster) -> None:
    async with default(EndpointModel, base_urls=(served_llama.base_url,), model=served_llama.model) as llm:
        await llm.complete(call(CHAT, Sampling(max_tokens=4)))
    expected = counted_tokens(served_llama)
    names = ("ray_vllm_prompt_tokens_total", "ray_vllm_generation_tokens_total")
    await until(lambda: tuple(read_metrics(ray_cluster.metrics_url)[name] for name in names) == expected)


@pytest.mark.exhaustive
def test_a_served_model_answers_on_loopback_only(served_llama: ServedLlama, ray_cluster: RayCluster) -> None:
    """The cluster is the test's own; what is started in it is the model server."""
    port = urlsplit(served_llama.base_url).port
    found = {on for addresses in listening(ray_cluster.mark).values() for on in addresses if on[1] == port}
    assert found
    assert all(map(is_loopback, found))


@pytest.mark.exhaustive
def test_a_run_on_another_server_finds_the_calls_of_one_that_served_the_model_itself(
    served_llama: ServedLlama, served_run: ServedRun, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = [*LLAMA_RUN, "run.limit=10", *served_llama.words, f"run.dir={run}", f"run.reuse=[{served_run.folder}]"]
    done = kgqa("evaluate", *words)
    assert done.returncode == 0, done.stderr
    ours, its = (pl.read_parquet(RunFolder(folder).traces) for folder in (run, served_run.folder))
    new = ours.join(its, on="question_id", how="anti")
    made = steps(new).filter(pl.col("kind") == "llm", ~pl.col("shared")).height
    assert (ours.height, its.height, new.height) == (10, 8, 2)
    assert 0 < made == json.loads((run / "summary.json").read_text())["physical_llm_calls"]


@pytest.mark.exhaustive
def test_a_run_that_serves_its_model_itself_is_complete(served_run: ServedRun, served_llama: ServedLlama) -> None:
    saved = served_run.folder / "run.yaml"
    assert yaml.safe_load(saved.read_text())["served"][0]["model"] == served_llama.model
    again = kgqa("evaluate", str(saved), "run.trust=true")  # engine_kwargs can make vLLM run code
    assert again.returncode == 0, again.stderr
    assert "nothing to run" in again.stderr


@pytest.mark.exhaustive
async def test_the_saturation_benchmark_measures_both(vllm_server: VllmServer, tmp_path: Path) -> None:
    figures = await asyncio.to_thread(measure_saturation, vllm_server, tmp_path, questions=4, in_flight=4, rounds=1)
    assert figures["pipeline_to_bare"] == figures["pipeline_calls_per_s"] / figures["bare_calls_per_s"]
    assert 0 < figures["bare_prefix_cache_hit_rate"] == figures["pipeline_prefix_cache_hit_rate"] < 1


@pytest.mark.exhaustive
async def test_replayed_calls_get_equally_many_tokens_in_both_ways(vllm_server: VllmServer, tmp_path: Path) -> None:
    figures = await asyncio.to_thread(measure_replay, vllm_server, tmp_path, questions=4, in_flight=2, rounds=1)
    assert figures["replay_questions_tokens"] == figures["replay_at_once_tokens"] > 0
    assert 0 < figures["replay_questions_prefix_cache_hit_rate"] < 1
