"""A missing optional dependency is one sentence that names its extra, before any other work."""

from __future__ import annotations

import re
import socket
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.extras import _MODULES, installation
from tests.cli.support import Kgqa

ROOT = Path(__file__).parents[2]
GPU = "pip install 'kgqa-pipeline[gpu]', or 'kgqa-pipeline[cpu-server]' without a GPU"


@pytest.mark.parametrize(
    ("missing", "words", "sentence"),
    [
        ("openai", "benchmark overhead", "kgqa benchmark overhead needs openai: [benchmark]"),
        ("openai", "benchmark all", "kgqa benchmark overhead needs openai: [benchmark]"),
        ("torch", "benchmark traces training", "kgqa benchmark training needs torch: [train]"),
        ("transformers", "init-model output=model", "kgqa init-model needs transformers: [train]"),
        ("peft", "train arg model=m texts=t output=o storage=s", "kgqa train arg needs peft: [train]"),
        ("torch", "train bundled-model metaqa=M output=o", "kgqa train bundled-model needs torch: [train]"),
        (
            "hydra_plugins.hydra_optuna_sweeper",
            "sweep hydra/sweeper=optuna",
            "hydra/sweeper=optuna needs hydra_plugins.hydra_optuna_sweeper: [optuna]",
        ),
        ("s3fs", "evaluate run.dir=s3://bucket/run", "run.dir=s3://bucket/run needs s3fs: [s3]"),
        ("s3fs", "report s3://bucket/run", "s3://bucket/run needs s3fs: [s3]"),
        (
            "sentence_transformers",
            "evaluate retrieval=dense",
            "the encoder all-MiniLM-L6-v2 needs sentence_transformers: [dense]",
        ),
        ("vllm", "evaluate llm=serve llm.model=a/b", f"a model server on this machine needs vllm: {GPU}"),
        ("vllm", "llm serve llm.model=a/b", f"a model server on this machine needs vllm: {GPU}"),
    ],
)
def test_the_sentence_names_the_module_and_the_extra(
    missing: str, words: str, sentence: str, kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    expected = re.sub(r"\[(\w+)\]$", lambda found: installation(found[1]), sentence)
    assert kgqa(*words.split()).sentence == expected
    assert not Path("runs").exists(), "a failed command leaves no empty folder"


def test_every_extra_in_a_sentence_exists() -> None:
    named = set()
    for file in [*ROOT.glob("pipeline/**/*.py"), *ROOT.glob("conf/**/*.yaml"), *ROOT.glob("docs/**/*.md")]:
        named |= set(re.findall(r"""(?:kgqa-pipeline|pip install "\.)\[([\w-]+)\]""", file.read_text(encoding="utf-8")))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert named | set(_MODULES) <= set(extras)


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The URL of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/sparql"


def test_loading_into_a_server_that_never_answers_ends(kgqa: Kgqa, silent_server: str) -> None:
    words = ("target=virtuoso", f"kg.endpoints=[{silent_server}]", "kg.timeout_s=1", "dataset.triples=1000")
    assert kgqa("graph", "load", *words).sentence == (
        f"{silent_server} did not answer within kg.timeout_s=1 seconds: check that the server works, or allow it more "
        "time"
    )
