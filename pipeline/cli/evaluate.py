"""`kgqa evaluate`: run one configuration, score it and print the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml
from rich.console import Console

from pipeline import config
from pipeline.cli.common import Arguments, Output, run_output
from pipeline.engine.run import Configuration, execute, run_dir
from pipeline.errors import UserError
from pipeline.renames import current_run
from pipeline.traces.folder import RunFolder
from pipeline.traces.storage import StoragePath, read_whole, storage_path

_RESUMING = ("run.retry_failed", "run.extend", "run.restart", "run.tags", "run.note")
"""Keys that may be given with a `run.yaml`: they say how it is resumed, or describe it."""


def run(arguments: Arguments) -> Output:
    """Run the configuration that the overrides describe, or start or resume the run of a `run.yaml`."""
    configurations = configurations_of(arguments)
    summaries = execute(configurations, Console(stderr=True))
    return run_output(RunFolder(run_dir(configurations)), summaries)


def configurations_of(arguments: Arguments) -> list[Configuration]:
    """Return the configurations that the arguments describe. Raises UserError."""
    for saved in (storage_path(word) / "run.yaml" for word in arguments.words):
        if saved.is_file():
            raise UserError(f"{saved.parent} is a run folder: name its file, as in kgqa evaluate {saved}")
    words = [*arguments.words, *arguments.overrides]
    files = [word for word in arguments.words if word.endswith(".yaml")]
    if not files:
        return [Configuration(tuple(words), config.compose(words))]
    changes = dict(word.split("=", 1) for word in words if word != files[0] and "=" in word)
    if len(changes) + 1 < len(words) or not changes.keys() <= set(_RESUMING):
        raise UserError(
            f"{files[0]} holds the whole configuration: remove the other arguments, except {', '.join(_RESUMING)}"
        )
    run = {key.removeprefix("run."): yaml.safe_load(value) for key, value in changes.items()}
    return _saved_configurations(storage_path(files[0]), run)


def _saved_configurations(path: StoragePath, run: Mapping[str, Any]) -> list[Configuration]:
    """Read the configurations of a `run.yaml`, changed by keys of the section `run`. Raises UserError."""
    run = {**run, "dir": str(path.parent)}
    try:
        first, *others = current_run(yaml.safe_load(read_whole(path)))["points"]
        configurations = [
            Configuration(tuple(saved["overrides"]), config.complete(_with_run(saved["config"], run)))
            for saved in (first, *others)
        ]
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, KeyError, TypeError, ValueError):
        raise UserError(f"{path} is not the run.yaml of a run") from None
    return configurations


def _with_run(resolved: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    return {**resolved, "run": {**resolved["run"], **run}}
