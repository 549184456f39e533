"""The configuration of each dataset: the class it builds and the graph it selects."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

CONF = Path(__file__).resolve().parents[2] / "conf" / "dataset"

GRAPHS = {
    "webqsp": "sparql",
    "cwq": "sparql",
    "grailqa": "sparql",
    "metaqa": "embedded",
    "grbench": "grbench",
    "rog": "subgraph",
    "custom": "embedded",
}


@pytest.fixture
def compose(tmp_path: Path) -> Iterator[Any]:
    """Compose the real dataset files with a stub of the graph group."""
    (tmp_path / "dataset").mkdir()
    (tmp_path / "kg").mkdir()
    (tmp_path / "config.yaml").write_text("defaults: [{kg: embedded}, {dataset: metaqa}, _self_]\n")
    for name in GRAPHS:
        (tmp_path / "dataset" / f"{name}.yaml").write_text((CONF / f"{name}.yaml").read_text())
    for graph in {*GRAPHS.values()}:
        (tmp_path / "kg" / f"{graph}.yaml").write_text(f"name: {graph}\n")

    def composed(*overrides: str) -> dict[str, Any]:
        GlobalHydra.instance().clear()
        with hydra.initialize_config_dir(str(tmp_path), version_base="1.3"):
            config = OmegaConf.to_container(hydra.compose("config", list(overrides)), resolve=True)
        assert isinstance(config, dict)
        return config

    yield composed
    GlobalHydra.instance().clear()


def _built(section: dict[str, Any]) -> Any:
    module, _, name = section["_target_"].rpartition(".")
    keys = {key: value for key, value in section.items() if key not in ("_target_", "strict")}
    return getattr(import_module(module), name)(**keys)


@pytest.mark.parametrize(("name", "graph"), GRAPHS.items())
def test_each_file_builds_its_dataset_and_selects_its_graph(compose: Any, name: str, graph: str) -> None:
    files = ("triples", "questions") if name == "custom" else ("path",)
    config = compose(f"dataset={name}", *(f"dataset.{file}=/data" for file in files))
    assert config["kg"] == {"name": graph}
    assert config["dataset"]["strict"] is False
    dataset = _built(config["dataset"])
    assert dataset.name == ("metaqa-1hop" if name == "metaqa" else name)
    assert pickle.loads(pickle.dumps(dataset)) == dataset


@pytest.mark.parametrize("name", GRAPHS)
def test_the_command_line_overrides_the_graph(compose: Any, name: str) -> None:
    choice = "sparql" if GRAPHS[name] != "sparql" else "embedded"
    assert compose(f"dataset={name}", f"kg={choice}")["kg"] == {"name": choice}
    assert compose(f"kg={choice}", f"dataset={name}")["kg"] == {"name": choice}


def test_overrides_reach_the_dataset(compose: Any) -> None:
    assert _built(compose("dataset.path=/data", "dataset.hops=3")["dataset"]).name == "metaqa-3hop"
    config = compose("dataset=custom", "dataset.filter={gold_pattern_in_slice:true,level:zero-shot}")
    assert config["dataset"]["filter"] == {"gold_pattern_in_slice": True, "level": "zero-shot"}


@pytest.mark.parametrize("name", GRAPHS)
def test_every_key_is_explained_on_the_line_above_it(name: str) -> None:
    lines = (CONF / f"{name}.yaml").read_text().splitlines()
    body = lines[next(number for number, line in enumerate(lines) if line.startswith("_target_")) + 1 :]
    for number, line in enumerate(body):
        assert line.startswith("#") or body[number - 1].startswith("#"), line
