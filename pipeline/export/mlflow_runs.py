"""Stores a configuration as a run of MLflow, with MLflow's own client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipeline.errors import ServiceError
from pipeline.export.exported_run import ExportedConfiguration
from pipeline.export.tracking import TrackedRun, tracked_run

_EXPERIMENT = "kgqa"
_MOST_PARAMETERS = 100
"""In one request to MLflow."""


def write(exported: ExportedConfiguration, output: str) -> Iterator[str]:
    """Store the configuration at a tracking URI: a server, `sqlite:///FILE`, or `file:FOLDER`.

    It is a run of the experiment `kgqa`. A run that is there already is deleted, and stored anew.
    """
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    try:
        yield _store(MlflowClient(tracking_uri=output), tracked_run(exported), output)
    except MlflowException as error:
        raise ServiceError(f"output={output}: MLflow says: {error}") from None


def _store(client: Any, run: TrackedRun, output: str) -> str:
    from mlflow.entities import Metric, Param

    found = client.get_experiment_by_name(_EXPERIMENT)
    experiment = found.experiment_id if found else client.create_experiment(_EXPERIMENT)
    for old in client.search_runs([experiment], f"tags.kgqa_id = '{run.id}'"):
        client.delete_run(old.info.run_id)
    tags = {**{f"kgqa.{name}": value for name, value in run.tags.items()}, "kgqa_id": run.id}
    created = client.create_run(experiment, start_time=run.started_ms, tags=tags, run_name=run.name).info.run_id
    parameters = [Param(_name(name), value) for name, value in run.parameters.items()]
    for start in range(0, len(parameters), _MOST_PARAMETERS):
        client.log_batch(created, params=parameters[start : start + _MOST_PARAMETERS])
    client.log_batch(created, [Metric(_name(name), value, run.started_ms, 0) for name, value in run.metrics.items()])
    client.set_terminated(created)
    return f"{run.name} is run {created} of the experiment {_EXPERIMENT} at {output}"


def _name(name: str) -> str:
    """Return a name with the characters that MLflow takes."""
    return "".join(letter if letter.isalnum() or letter in "_-. :/" else "_" for letter in name)
