"""A model that a job serves: its name, place and command line. Tests with servers are in `tests/integration`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline import config
from pipeline.config import default
from pipeline.errors import UserError
from pipeline.llm.serve import ServedModel, hosting
from pipeline.llm.serve.directory import Directory, Report
from pipeline.llm.serve.fleet import Placement
from pipeline.llm.serve.in_group import place


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "llama"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def copied(checkpoint: Path, parent: Path, **changed: str) -> Path:
    folder = parent / checkpoint.name
    folder.mkdir(parents=True)
    for file in checkpoint.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    for name, text in changed.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def name(model: Path | str, **keys: Any) -> str:
    return default(ServedModel, model=str(model), **keys).name


def test_the_name_of_a_checkpoint_depends_on_its_contents_not_on_its_path(checkpoint: Path, tmp_path: Path) -> None:
    assert name(checkpoint).startswith("llama@")
    assert name(copied(checkpoint, tmp_path / "same", README_md="words")) == name(checkpoint)
    assert name(copied(checkpoint, tmp_path / "other", model_safetensors="Weights")) != name(checkpoint)
    assert name(copied(checkpoint, tmp_path / "template", chat_jinja="{{ x }}")) != name(checkpoint)


def test_everything_that_determines_the_outputs_is_in_the_name(checkpoint: Path) -> None:
    assert name("meta/llama") == name("meta/llama", replicas=4, tensor_parallel=2, port=1) == "meta/llama"
    assert name("meta/llama", dtype="float16", engine_kwargs={"quantization": "fp8"}) == "meta/llama-fp8-float16"
    assert name("meta/llama", engine_kwargs={"revision": "abc"}, adapter="planner") == "meta/llama-abc+planner"
    assert name("meta/llama", adapter=str(checkpoint)) == f"meta/llama+{name(checkpoint)}"


def test_workers_get_the_configuration_of_an_endpoint() -> None:
    served = default(ServedModel, model="meta/llama", timeout_s=7, extra_body={"top_k": 3})
    endpoint = config.build("llm", {"llm": served.as_endpoint(["http://127.0.0.1:1/v1"])})
    assert (endpoint.base_urls, endpoint.model) == (("http://127.0.0.1:1/v1",), "meta/llama")
    assert (endpoint.timeout_s, endpoint.extra_body) == (7, {"top_k": 3})


def test_parts_on_one_node_are_one_bundle_and_processes_of_vllm() -> None:
    keys = {"tensor_parallel": 2, "autoscale": (1, 8), "accelerator": "H100", "placement": "STRICT_PACK"}
    model = default(ServedModel, model="m", engine_kwargs={"quantization": "fp8"}, **keys)
    assert model.placed == Placement(bundles=({"GPU": 2, "accelerator_type:H100": 0.001},), strategy="STRICT_PACK")
    assert model.counts == (1, 8)
    assert model.launch((), "").arguments == ("--dtype=auto", "--tensor-parallel-size=2", "--quantization=fp8")


def test_other_parts_are_bundles_in_which_ray_starts_them() -> None:
    model = default(ServedModel, model="m", tensor_parallel=2, engine_kwargs={"pipeline_parallel_size": 2})
    assert model.placed == Placement(bundles=({"GPU": 1},) * 4, strategy="PACK")
    assert "--distributed-executor-backend=ray" in model.launch((), "").arguments
    assert default(ServedModel, model="m", replicas=3, tensor_parallel=2, resources={"CPU": 4}).cpus == 3 * 2 * 4


@pytest.mark.exhaustive
def test_arguments_of_the_engine_are_words_of_vllms_command_line() -> None:
    pytest.importorskip("vllm")
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    given = {
        "enforce_eager": True,
        "enable_chunked_prefill": False,
        "gpu_memory_utilization": 0.5,
        "hf_overrides": {"rope_theta": 7},
        "quantization": None,
    }
    launch = default(ServedModel, model="m", max_model_len=64, engine_kwargs=given).launch((), "")
    read = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser()).parse_args(list(launch.arguments))
    assert {key: getattr(read, key) for key in given} == given
    assert (read.max_model_len, read.dtype) == (64, "auto")


def test_adapters_are_modules_of_one_server_and_the_token_is_no_word_of_its_command_line(checkpoint: Path) -> None:
    base = default(ServedModel, model="org/llama")
    planner = default(ServedModel, model="org/llama", adapter=str(checkpoint))
    launch = base.launch((base, planner), "the-token")
    assert launch.name == "org/llama"
    *_, lora, most, option, module = launch.arguments
    assert (lora, most, option) == ("--enable-lora", "--max-loras=1", "--lora-modules")
    assert json.loads(module) == {"name": planner.name, "path": str(checkpoint)}
    assert "the-token" not in repr(launch)


class TestDirectory:
    @pytest.fixture(autouse=True)
    def quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pipeline.llm.serve.directory._LEARNING_S", 0)

    async def test_clients_learn_who_joins_leaves_and_is_gone(self) -> None:
        directory = Directory("token")
        none = await directory.changes(-1)
        assert none[1:] == ("token", (), ())
        waiting = asyncio.create_task(directory.changes(none.version))
        await directory.report(0, Report("node", "http://a/v1"))
        first = await waiting
        assert first.urls == ("http://a/v1",)
        await directory.report(0, Report("node", "http://a/v1", running=3))
        assert (await directory.changes(-1)).version == first.version
        await directory.report(1, Report("node", "http://b/v1"))
        await directory.report(0, Report("node", "http://a/v1", is_leaving=True))
        second = await directory.changes(first.version)
        assert second[2:] == (("http://b/v1",), ("http://a/v1",))
        await directory.report(0, Report("node", None, is_leaving=True))
        await directory.forget(1)
        assert (await directory.changes(second.version))[2:] == ((), ())

    async def test_a_silent_server_is_taken_to_be_gone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pipeline.llm.serve.directory._SILENCE_S", 0.05)
        monkeypatch.setattr("pipeline.llm.serve.directory._WAIT_S", 0.1)
        directory = Directory("")
        await directory.report(0, Report("node", "http://a/v1"))
        before = await directory.changes(-1)
        assert before.urls == ("http://a/v1",)
        assert (await directory.changes(before.version)).urls == ()


def test_an_engine_in_an_existing_placement_group_gets_it() -> None:
    class Arguments:  # a double of vLLM's
        def create_engine_config(self, usage: str) -> SimpleNamespace:
            return SimpleNamespace(usage=usage, parallel_config=SimpleNamespace(placement_group=None))

    place(Arguments, "the group")
    made = Arguments().create_engine_config("a use")
    assert (made.usage, made.parallel_config.placement_group) == ("a use", "the group")


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"engine_kwargs": {"max_model_len": 7}}, "llm.engine_kwargs.max_model_len has its own key"),
        ({"autoscale": (8, 1)}, r"llm.autoscale=\[8, 1\] is wrong"),
    ],
)
def test_a_mistake_is_answered_with_one_sentence(keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        default(ServedModel, model="m", **keys)


async def test_missing_resources_of_a_fixed_cluster_are_reported_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.cluster_resources", lambda: {"CPU": 2.0})
    monkeypatch.setattr("ray.nodes", lambda: [{"NodeManagerAddress": "127.0.0.1", "Alive": True}])
    model = default(ServedModel, model="org/llama")
    with pytest.raises(UserError, match="org/llama cannot be served: the Ray cluster has too little of GPU"):
        async with hosting([model], grows=False, guarded=True):
            pass


@pytest.mark.parametrize("placement", ["PACK", "STRICT_PACK"])
def test_all_parts_of_a_copy_need_their_resources(placement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.cluster_resources", lambda: {"CPU": 8.0, "GPU": 2.0})
    assert default(ServedModel, model="m", tensor_parallel=2, placement=placement).lacking is None
    lacking = default(ServedModel, model="m", tensor_parallel=4, placement=placement).lacking
    assert lacking == "the Ray cluster has too little of GPU for llm.resources={'GPU': 1} in each of 4 parts"


def test_an_empty_folder_is_not_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a checkpoint"):
        name(tmp_path)
