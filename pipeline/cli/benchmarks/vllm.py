"""Throughput of the pipeline and of a bare load generator on one vLLM server, with the same calls and concurrency."""

from __future__ import annotations

import asyncio
import tempfile
import urllib.request
from collections.abc import Iterable
from pathlib import Path

import orjson

from pipeline.cli.benchmarks.announcing import announce
from pipeline.cli.benchmarks.client import body_of
from pipeline.cli.benchmarks.replay import post_all, recorded, replay_at_once, replay_questions
from pipeline.cli.benchmarks.runs import run_method, run_steady
from pipeline.cli.benchmarks.world import refuse
from pipeline.config import default
from pipeline.llm.prompt import Call
from pipeline.llm.vllm import VllmServer, read_metrics
from pipeline.simulation.world import SyntheticWorld
from pipeline.training.llama import LlamaShape, make_llama

_ARGUMENTS = ("--dtype=float32", "--enforce-eager", "--no-enable-chunked-prefill", "--max-model-len=4096")
_SHAPE = {"hidden_size": 512, "layers": 8, "heads": 8, "key_value_heads": 4}
"""Large enough that the model keeps a server of two cores busy, as on a GPU. With the small Llama of the tests, clients
and server compete for the cores, and the client that computes less wins."""
_TRIPLES = 1_000


def vllm() -> dict[str, float]:
    """Calls per second of the pipeline against those of a bare client on one vLLM server, 32 in flight.

    Also tokens per second of replayed calls, in the order of their questions against all at once.
    """
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "llama")
        make_llama(default(SyntheticWorld), refuse, default(LlamaShape, **_SHAPE), seed=0).save(model)
        with VllmServer(str(model), Path(folder, "server.log"), _ARGUMENTS, resettable=True) as server:
            figures = measure_saturation(server, Path(folder), questions=64, in_flight=32, rounds=2)
            return figures | measure_replay(server, Path(folder), questions=48, in_flight=32, rounds=2)


def measure_saturation(
    server: VllmServer, folder: Path, *, questions: int, in_flight: int, rounds: int
) -> dict[str, float]:
    """Return calls per second and prefix cache hit rates of both, in turn, after a warm-up round.

    Each measurement begins with an empty prefix cache. `in_flight` questions are in flight, with one call each.
    """
    figures: dict[str, list[float]] = {}
    for round in range(rounds + 1):
        announce(f"the pipeline and a bare client, {_round(round, rounds)}")
        run = folder / f"run-{round}"
        measured = {"pipeline": _measure_pipeline(server, run, questions, in_flight)}
        measured["bare"] = _measure_bare(server, recorded(run, as_long=False), in_flight)
        for client, (rate, hits) in measured.items() if round else ():
            figures.setdefault(f"{client}_calls_per_s", []).append(rate)
            figures.setdefault(f"{client}_prefix_cache_hit_rate", []).append(hits)
    means = {name: sum(values) / len(values) for name, values in figures.items()}
    return means | {"pipeline_to_bare": means["pipeline_calls_per_s"] / means["bare_calls_per_s"]}


def measure_replay(
    server: VllmServer, folder: Path, *, questions: int, in_flight: int, rounds: int
) -> dict[str, float]:
    """Return tokens per second of the calls of ArG's questions, in their order and all at once, after a warm-up round.

    Each measurement begins with an empty prefix cache. The calls are those of a run with the oracle.
    """
    run = folder / "replayed"
    run_method(run, ["method=arg", "llm=oracle", f"dataset.triples={_TRIPLES}", f"run.limit={questions}"])
    made = recorded(run, as_long=True)
    together = [call for calls in made for call in calls]
    figures: dict[str, list[float]] = {}
    for round in range(rounds + 1):
        announce(f"calls in the order of their questions and all at once, {_round(round, rounds)}")
        for way in ("questions", "at_once"):
            before = _reset(server)
            if way == "questions":
                seconds, tokens = asyncio.run(replay_questions(server.base_url, made, in_flight))
            else:
                seconds, tokens = asyncio.run(replay_at_once(server.base_url, server.name, together))
            if round:
                figures.setdefault(f"replay_{way}_tokens", []).append(tokens)
                figures.setdefault(f"replay_{way}_tokens_per_s", []).append(tokens / seconds)
                figures.setdefault(f"replay_{way}_prefix_cache_hit_rate", []).append(_hit_rate(server, before))
    means = {name: sum(values) / len(values) for name, values in figures.items()}
    ratio = means["replay_questions_tokens_per_s"] / means["replay_at_once_tokens_per_s"]
    return means | {"replay_questions_to_at_once": ratio}


def _round(number: int, rounds: int) -> str:
    return f"round {number} of {rounds}" if number else "warm-up"


def _measure_pipeline(server: VllmServer, run: Path, questions: int, in_flight: int) -> tuple[float, float]:
    endpoint = ["llm=endpoint", f"llm.base_urls=[{server.base_url}]"]
    words = [
        *endpoint,
        f"dataset.triples={_TRIPLES}",
        f"dataset.questions={questions}",
        f"engine.concurrency={in_flight}",
    ]
    before = _reset(server)
    summary = run_steady(run, words, calls=8)
    return summary["physical_llm_calls"] / (summary["wall_s"] - summary["opening_s"]), _hit_rate(server, before)


def _measure_bare(server: VllmServer, made: Iterable[list[Call]], in_flight: int) -> tuple[float, float]:
    questions = [[orjson.dumps(body_of(call, server.name)) for call in calls] for calls in made]
    calls = sum(map(len, questions))
    before = _reset(server)
    seconds, _ = asyncio.run(post_all(server.base_url, questions, in_flight))
    return calls / seconds, _hit_rate(server, before)


def _reset(server: VllmServer) -> tuple[float, float]:
    """Empty the prefix cache, and return the tokens looked up in it so far, and those found."""
    url = server.base_url.removesuffix("v1") + "reset_prefix_cache"
    urllib.request.urlopen(urllib.request.Request(url, method="POST")).close()  # noqa: S310 — http
    return _looked_up(server)


def _hit_rate(server: VllmServer, before: tuple[float, float]) -> float:
    queries, hits = (now - then for now, then in zip(_looked_up(server), before, strict=True))
    return hits / queries


def _looked_up(server: VllmServer) -> tuple[float, float]:
    metrics = read_metrics(server.metrics_url)
    return metrics["vllm:prefix_cache_queries_total"], metrics["vllm:prefix_cache_hits_total"]
