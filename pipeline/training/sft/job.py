"""Runs a fine-tuning on Ray Train, replaces lost workers, resumes from the last checkpoint, and returns its model."""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.util.queue import Empty, Queue

from pipeline.engine.cluster import joined, kept_handler
from pipeline.errors import ServiceError, UserError
from pipeline.training.llama import Checkpoint
from pipeline.training.sft.config import Workers
from pipeline.training.sft.model import open_tokenizer, read_trained
from pipeline.training.sft.worker import LAST_ONLY, EncodedTexts, Task, train

if TYPE_CHECKING:
    from ray.train import Result

_NAME = "checkpoints"
_TASK = "task.json"

Record = Mapping[str, float]
"""A log record of one step: `step`, `epoch`, and `loss` and `learning_rate`, or `eval_loss` and `eval_accuracy`.

The record before the first step holds `texts`, the number of texts, and `left_out`, the number of those too long.
"""


def fine_tune(task: Task, workers: Workers, storage: Path, on_record: Callable[[Record, int], None]) -> Checkpoint:
    """Train, or resume from the last checkpoint in `storage`, and return the trained model.

    Every node must see `storage`. `on_record` receives each record and the number of the last step. Raises UserError if
    `storage` belongs to another training, and ServiceError if workers were lost more often than `max_failures`.
    """
    open_tokenizer(task.model, task.sft_config)  # fail before anything is started if the model is missing
    _claim(storage, task)
    cluster = {"address": workers.address, "workers": workers.count, "cpus_per_worker": workers.cpus}
    with redirect_stdout(sys.stderr), joined(cluster, cpus=1), _listening(on_record) as queue:
        result = _fit(task, workers, storage, queue)
    if result.checkpoint is None:
        raise ServiceError(f"the training ended without a checkpoint: {result.error}")
    with result.checkpoint.as_directory() as folder:
        last = Path(folder, _checkpoint_name())
        _write_curves(last, storage / "metrics.jsonl")
        return read_trained(task.model, task.sft_config, last)


def _fit(task: Task, workers: Workers, storage: Path, queue: Queue) -> Result:
    from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer
    from ray.train.v2.api.exceptions import TrainingFailedError

    trainer = TorchTrainer(
        _work,
        train_loop_config={"task": task, "queue": queue},
        torch_config=TorchConfig(backend="nccl" if workers.gpus else "gloo"),
        scaling_config=ScalingConfig(
            num_workers=workers.count,
            use_gpu=workers.gpus,
            resources_per_worker={"CPU": workers.cpus} | ({"GPU": 1} if workers.gpus else {}),
        ),
        run_config=RunConfig(
            name=_NAME,
            storage_path=str(storage.resolve()),
            failure_config=FailureConfig(max_failures=workers.max_failures),
            checkpoint_config=CheckpointConfig(num_to_keep=LAST_ONLY),
        ),
    )
    try:
        with kept_handler(signal.SIGINT):
            return trainer.fit()
    except TrainingFailedError as error:
        raise _as_own_error(error) from None


def _work(config: Mapping[str, Any]) -> None:
    """One worker of Ray Train."""
    from ray.train import get_checkpoint, get_context
    from ray.train.huggingface.transformers import RayTrainReportCallback

    is_first = get_context().get_world_rank() == 0
    callbacks = [RayTrainReportCallback(), *([_log_callback(config["queue"])] if is_first else [])]

    def report_texts(encoded: EncodedTexts) -> None:
        if is_first:
            config["queue"].put(({"step": 0, "texts": encoded.count, "left_out": sum(encoded.dropped.values())}, 0))

    if (checkpoint := get_checkpoint()) is None:
        train(config["task"], callbacks, None, report_texts)
        return
    with checkpoint.as_directory() as folder:
        train(config["task"], callbacks, Path(folder, _checkpoint_name()), report_texts)


def _log_callback(queue: Queue) -> Any:
    """Return a callback that sends each log record to the job."""
    from transformers import TrainerCallback

    class LogCallback(TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            queue.put(({"step": state.global_step, **(logs or {})}, state.max_steps))

    return LogCallback()


@contextmanager
def _listening(on_record: Callable[[Record, int], None]) -> Iterator[Queue]:
    """Open a queue and pass its records to `on_record` as they arrive."""
    queue, ended = Queue(actor_options={"num_cpus": 0}), threading.Event()

    def listen() -> None:
        while not ended.is_set():
            try:
                on_record(*queue.get(timeout=0.5))
            except Empty:
                continue

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield queue
    finally:
        ended.set()
        listener.join()
        ray.kill(queue.actor)


def _claim(storage: Path, task: Task) -> None:
    """Record in `storage` that it belongs to this training. Raises UserError if it belongs to another one."""
    ours = json.loads(json.dumps(_determinants(task)))
    file = storage / _TASK
    if not file.exists():
        storage.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(ours, indent=2) + "\n", encoding="utf-8")
        return
    theirs = json.loads(file.read_text(encoding="utf-8"))
    if differing := sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)):
        raise UserError(
            f"{storage} holds checkpoints of a training with a different {', '.join(differing)}: remove that folder, "
            "or give another output= (another storage= if that is given)"
        )


def _determinants(task: Task) -> dict[str, Any]:
    """Return everything that the weights depend on."""
    digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in task.texts]
    return {"model": task.model, "texts": digests, **asdict(task.sft_config)}


def _write_curves(checkpoint: Path, file: Path) -> None:
    """Write the log records up to a checkpoint; each step occurs once, even if workers were lost in between."""
    state = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    file.write_text("".join(json.dumps(record) + "\n" for record in state["log_history"]), encoding="utf-8")


def _checkpoint_name() -> str:
    from ray.train.huggingface.transformers import RayTrainReportCallback

    return str(RayTrainReportCallback.CHECKPOINT_NAME)


def _as_own_error(error: Exception) -> ServiceError | UserError:
    """Return the cause of a failed training as an error with a one-sentence message."""
    failures = getattr(error, "worker_failures", {}) or {}
    cause: BaseException = next(iter(failures.values()), error)
    if isinstance(cause, UserError):
        return cause
    last = (str(cause).strip() or type(cause).__name__).splitlines()[-1]
    return ServiceError(f"the training failed: {last}")
