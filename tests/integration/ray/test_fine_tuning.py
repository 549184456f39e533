"""Fine-tuning a real Llama with Ray Train, on what the project's own collections give."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

from pipeline.cli.main import main
from pipeline.config import compose, default
from pipeline.llm.endpoint import EndpointModel
from pipeline.llm.prompt import Message, Sampling
from pipeline.llm.vllm import VllmServer
from pipeline.training.llama import REFLECTION_TOKENS, LlamaShape, new_llama, train_tokenizer
from pipeline.training.sft.texts import read_texts, split
from tests.integration.conftest import RayCluster
from tests.llm.reference import Reference, call
from tests.support import KGQA

pytestmark = pytest.mark.exhaustive

COLLECTED = ("arg", "parog", "rog")
STEPS = 4
LONGEST = 900
"""Seconds that a training may take on a machine that is busy otherwise."""


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A few texts of each collection."""
    folder = tmp_path_factory.mktemp("texts")
    world = ["dataset.triples=1000", "dataset.questions=40", "dataset.split=train", "llm=oracle"]
    for word in COLLECTED:
        shorter = ["collect.reader_prompt_tokens=400"] if word == "rog" else []
        words = [word, *world, *shorter, f"output={folder}/{word}.jsonl", f"run.dir={folder}/{word}"]
        assert main(["collect", *words]) == 0
    return {word: folder / f"{word}.jsonl" for word in COLLECTED}


@pytest.fixture(scope="module")
def base(texts: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama that knows nothing. As Meta-Llama-3-8B, it has no chat template, no ArG tokens and no padding token."""
    parts = [part for text in read_texts(texts.values()) for part in text.parts]
    tokenizer = train_tokenizer(parts, 1024, added=())
    folder = tmp_path_factory.mktemp("models") / "base"
    shape = default(LlamaShape, vocabulary=1024, layers=2, spread=0.02, context=4096)
    new_llama(tokenizer, shape, seed=0).save_pretrained(folder)
    tokenizer.chat_template = tokenizer.pad_token = None
    tokenizer.save_pretrained(folder)
    assert transformers.AutoTokenizer.from_pretrained(folder).chat_template is None
    return folder


def words(task: str, texts: Path, base: Path, output: Path, *more: str) -> list[str]:
    """A training of a few steps in single precision, so that two of them come to the same."""
    recipe = {
        "max_steps": STEPS,
        "batch_size": 8,
        "learning_rate": 0.003,
        "checkpoint_steps": 1,
        "log_steps": 1,
        "evaluation_texts": 8,
        "precision": "float32",
        "weights": "float32",
    }
    given = [f"recipe.{key}={value}" for key, value in recipe.items()]
    return [
        *KGQA,
        "train",
        task,
        f"texts={texts}",
        f"model={base}",
        f"output={output}",
        *given,
        *more,
    ]


def train(command: Sequence[str]) -> None:
    """Train in this process, which has loaded the libraries already."""
    assert main(command[len(KGQA) :]) == 0


def curves(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(f"{output}.training", "metrics.jsonl").read_text("utf-8").splitlines()]


def of_steps(output: Path, figure: str) -> dict[int, float]:
    """A figure by step; that no step is told of twice is part of what is asked."""
    records = [(record["step"], record[figure]) for record in curves(output) if figure in record]
    assert len(dict(records)) == len(records)
    return dict(records)


@pytest.fixture(scope="module")
def shared(ray_cluster: RayCluster) -> str:
    """Train on the cluster of all tests, which is started already."""
    return f"workers.address={ray_cluster.address}"


@pytest.fixture(scope="module")
def undisturbed(texts: dict[str, Path], base: Path, shared: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ArG's generator after a few steps."""
    output = tmp_path_factory.mktemp("trained") / "arg"
    train(words("arg", texts["arg"], base, output, shared))
    return output


@pytest.fixture(scope="module")
def served(undisturbed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    with VllmServer(str(undisturbed), log, ("--dtype=float32", "--enforce-eager", "--max-model-len=4096")) as server:
        yield server


def test_the_loss_falls(undisturbed: Path) -> None:
    losses = of_steps(undisturbed, "eval_loss")
    assert sorted(losses) == [1, 2, 3, 4]
    assert losses[1] > losses[2] > losses[STEPS]
    assert sorted(of_steps(undisturbed, "loss")) == [1, 2, 3, 4]


def test_arg_has_its_tokens(undisturbed: Path, base: Path) -> None:
    before, after = (transformers.AutoTokenizer.from_pretrained(folder) for folder in (base, undisturbed))
    assert all(len(after.tokenize(token)) == 1 for token in REFLECTION_TOKENS)
    assert all(len(before.tokenize(token)) > 1 for token in REFLECTION_TOKENS)
    assert load_file(undisturbed / "model.safetensors")["lm_head.weight"].shape[0] == len(after)


def test_a_base_model_without_a_chat_template_gets_one(undisturbed: Path) -> None:
    written = transformers.AutoTokenizer.from_pretrained(undisturbed)
    turns = [{"role": "user", "content": "who?"}, {"role": "assistant", "content": "[Retrieve Relation]"}]
    laid_out = written.apply_chat_template(turns, tokenize=False)
    assert laid_out == f"{written.bos_token}user:\nwho?\n\nassistant:\n[Retrieve Relation]{written.eos_token}"


def test_a_trained_model_is_trained_on_other_texts(
    texts: dict[str, Path], undisturbed: Path, shared: str, tmp_path: Path
) -> None:
    other, transferred = tmp_path / "metaqa.jsonl", tmp_path / "transferred"
    other.write_bytes(b"".join(texts["arg"].read_bytes().splitlines(keepends=True)[::-1]))
    train(words("arg", other, undisturbed, transferred, shared))
    before, after = (transformers.AutoTokenizer.from_pretrained(folder) for folder in (undisturbed, transferred))
    assert len(after) == len(before), "no token is added twice"
    continued = of_steps(transferred, "eval_loss")
    assert continued[1] < of_steps(undisturbed, "eval_loss")[1], "it goes on from what it has learned"
    assert continued[STEPS] < continued[1]


def test_a_killed_training_goes_on(
    texts: dict[str, Path], base: Path, shared: str, undisturbed: Path, tmp_path: Path
) -> None:
    """The killed one has workers of another cluster than the one that goes on: its own."""
    command = words("arg", texts["arg"], base, tmp_path / "arg")
    with subprocess.Popen([*command, shared], stderr=subprocess.PIPE, text=True, start_new_session=True) as training:
        wait_for_a_checkpoint(tmp_path / "arg.training", training)
        os.killpg(training.pid, signal.SIGKILL)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST)
    assert done.returncode == 0, done.stderr[-3000:]
    first_step_again = min(steps_told(done.stderr))
    assert 1 < first_step_again <= STEPS
    for figure in ("loss", "eval_loss"):
        assert of_steps(tmp_path / "arg", figure) == pytest.approx(of_steps(undisturbed, figure), rel=1e-4)


def wait_for_a_checkpoint(storage: Path, training: subprocess.Popen[str]) -> None:
    """Wait until Ray has recorded a checkpoint. A training that is killed before that begins again, rightly."""
    deadline = time.monotonic() + LONGEST
    while not recorded_checkpoints(storage / "checkpoints/checkpoint_manager_snapshot.json"):
        assert training.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)


def recorded_checkpoints(snapshot: Path) -> list[Any]:
    try:
        recorded: list[Any] = json.loads(snapshot.read_text())["checkpoint_results"]
    except (FileNotFoundError, json.JSONDecodeError):  # not written yet, or only in part
        return []
    return recorded


def steps_told(said: str) -> list[int]:
    return [int(line.split()[1].partition("/")[0]) for line in said.splitlines() if line.startswith("step ")]


def test_a_training_that_differs_is_refused(
    texts: dict[str, Path], base: Path, undisturbed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = words("arg", texts["arg"], base, Path(f"{undisturbed}-again"), f"storage={undisturbed}.training")
    assert main([*command[len(KGQA) :], "recipe.seed=3"]) == 2
    assert "holds checkpoints of a training with a different seed" in capsys.readouterr().err


def test_parog_with_an_adapter_on_two_sharded_workers(
    texts: dict[str, Path], base: Path, shared: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    more = (shared, "workers.count=2", "workers.sharded=true")
    adapter = "recipe.adapter={_target_: pipeline.training.sft.config.LoRA, rank: 4}"
    train(words("parog", texts["parog"], base, tmp_path / "parog", *more, adapter))
    assert f"{len(list(read_texts([texts['parog']])))} texts\n" in capfd.readouterr().err
    losses = of_steps(tmp_path / "parog", "eval_loss")
    assert losses[1] > losses[STEPS]
    before, after = (load_file(folder / "model.safetensors") for folder in (base, tmp_path / "parog"))
    assert before.keys() == after.keys()
    inner = "model.layers.0.mlp.up_proj.weight"
    assert torch.linalg.matrix_rank(after[inner] - before[inner], atol=1e-5) <= 4
    assert not torch.equal(before[inner], after[inner])


def test_rog_learns_to_plan_and_to_read_in_one_model(
    texts: dict[str, Path], base: Path, shared: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = [json.loads(line) for line in texts["rog"].read_text("utf-8").splitlines()]
    assert {row["role"] for row in rows} == {"rog.plan", "rog.read"}
    seed = compose(["output=o", "texts=t", "model=m"], name="train_rog")["recipe"]["seed"]
    used, evaluated = split(list(read_texts([texts["rog"]])), 8, seed)
    assert len(used) < len(rows) - len(evaluated), "several paths of an evaluated question have its prompt"

    interrupted = signal.getsignal(signal.SIGINT)
    train(words("rog", texts["rog"], base, tmp_path / "rog", shared))
    assert signal.getsignal(signal.SIGINT) is interrupted, "Ctrl-C is the caller's again"

    assert f"{len(used) + len(evaluated):,} texts\n" in capfd.readouterr().err
    losses = of_steps(tmp_path / "rog", "eval_loss")
    assert losses[1] > losses[STEPS]
    before, after = (load_file(folder / "model.safetensors") for folder in (base, tmp_path / "rog"))
    assert before.keys() == after.keys()
    assert not torch.equal(before["lm_head.weight"], after["lm_head.weight"])
    marks = transformers.AutoTokenizer.from_pretrained(tmp_path / "rog").tokenize("<PATH>a<SEP>b</PATH>")
    assert len(marks) > 5, "the marks are ordinary text"


async def test_vllm_serves_what_was_trained(served: VllmServer, undisturbed: Path, texts: dict[str, Path]) -> None:
    reference = Reference.of(undisturbed)
    async with default(EndpointModel, base_urls=(served.base_url,)) as backend:
        for text in list(read_texts([texts["arg"]]))[:5]:
            begun = text.text[: text.text.index("</paragraph>") + len("</paragraph>")]
            messages = (Message("user", text.messages[0]["content"]), Message("assistant", begun))
            answer = await backend.complete(call(messages, Sampling(max_tokens=1, logprobs=20)))
            expected = reference.next_logprobs(messages).topk(20).values.tolist()
            assert answer.logprobs is not None
            assert sorted(answer.logprobs[0].values(), reverse=True)[:20] == pytest.approx(expected, abs=1e-3)
