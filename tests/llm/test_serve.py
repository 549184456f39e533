"""A model that a job serves: its name and Ray's configuration. Tests with servers are in `tests/integration`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline import config
from pipeline.config import default
from pipeline.errors import UserError
from pipeline.llm.serve import ServedModel, hosting


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


def test_rays_configuration_has_replicas_bundles_and_placement() -> None:
    keys = {"tensor_parallel": 2, "autoscale": (1, 8), "accelerator": "H100", "placement": "STRICT_PACK"}
    told = default(ServedModel, model="m", engine_kwargs={"quantization": "fp8"}, **keys).llm_config()
    assert told["engine_kwargs"] == {"dtype": "auto", "tensor_parallel_size": 2, "quantization": "fp8"}
    assert told["deployment_config"]["autoscaling_config"] == {"min_replicas": 1, "max_replicas": 8}
    assert told["placement_group_config"] == {"bundle_per_worker": {"GPU": 1}, "strategy": "STRICT_PACK"}
    assert default(ServedModel, model="m", replicas=3, resources={"CPU": 4}).cpus == 3 * (1 + 4) + 1


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
        async with hosting([model], "run", grows=False):
            pass


def test_an_empty_folder_is_not_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a checkpoint"):
        name(tmp_path)
