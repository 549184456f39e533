"""Runs in the real stores of MLflow and Weights & Biases: an SQLite database, and a folder of the offline mode."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import ServiceError
from pipeline.export.exported_run import ExportedConfiguration
from pipeline.export.formats import export
from pipeline.export.tracking import tracked_run

pytestmark = pytest.mark.exhaustive


def test_mlflow_has_parameters_metrics_and_tags_once(exported: ExportedConfiguration, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    for _ in range(2):  # the second export replaces the first
        (line,) = export([exported], "mlflow", uri)
    from mlflow.tracking import MlflowClient  # it takes seconds, in each process that collects tests

    client, tracked = MlflowClient(tracking_uri=uri), tracked_run(exported)
    experiment = client.get_experiment_by_name("kgqa")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_id in line
    assert run.info.status == "FINISHED"
    assert run.info.start_time == tracked.started_ms
    assert run.data.params == dict(tracked.parameters)
    assert run.data.metrics == pytest.approx(dict(tracked.metrics))
    assert run.data.tags["kgqa.graph"] == exported.served["graph"]
    assert run.data.tags["mlflow.runName"] == exported.name


def test_an_unknown_store_of_mlflow_is_one_sentence(exported: ExportedConfiguration) -> None:
    with pytest.raises(ServiceError, match=r"output=nowhere://x: MLflow says: "):
        export([exported], "mlflow", "nowhere://x")


def records(file: Path) -> list[Any]:
    """The records that a run of the offline mode would upload: LevelDB's log format after a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, parts, found = file.read_bytes(), 7, b"", []
    while at + 7 <= len(data):
        if 32_768 - at % 32_768 < 7:  # the rest of a block is padding
            at += 32_768 - at % 32_768
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in {1, 4}:  # whole, or the last part
            record = Record()
            record.ParseFromString(parts)
            found.append(record)
            parts = b""
    return found


def test_weights_and_biases_has_config_summary_and_tags(
    exported: ExportedConfiguration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "WANDB_SILENT": "true"}.items():
        monkeypatch.setenv(name, value)
    (line,) = export([exported], "wandb", "team/project")
    assert line.startswith(f"{exported.name} is a run of the project team/project")
    import wandb

    wandb.teardown()  # as at the end of a process: until then, the file may lack its last records
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    tracked = tracked_run(exported)
    config: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    for record in records(file):
        for update in (*record.run.config.update, *record.config.update):
            config[update.key or ".".join(update.nested_key)] = json.loads(update.value_json)
        for update in record.summary.update:
            summary[update.key or ".".join(update.nested_key)] = json.loads(update.value_json)
    (started,) = [record.run for record in records(file) if record.run.run_id]
    assert (started.entity, started.project, started.display_name) == ("team", "project", exported.name)
    assert set(started.tags) >= {"srp", "synthetic", "oracle"}
    assert config.items() >= tracked.parameters.items()
    assert config["kgqa.graph"] == exported.served["graph"]
    assert {name: summary[name] for name in tracked.metrics} == pytest.approx(dict(tracked.metrics))
