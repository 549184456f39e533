"""`kgqa evaluate`: run one configuration, score it and print the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline import config
from pipeline.cli.arguments import Arguments
from pipeline.cli.output import Output
from pipeline.cli.run_output import run_output
from pipeline.console import Console
from pipeline.engine.begun_in import refuse_other_folder
from pipeline.engine.configuration import Configuration, run_dir
from pipeline.engine.run import execute
from pipeline.errors import UserError
from pipeline.suggestions import suggestion
from pipeline.text import kgqa, load_yaml
from pipeline.traces.folder import RunFolder
from pipeline.traces.run_file import read_run_file
from pipeline.traces.storage import StoragePath, storage_path

_RESUMING = ("run.retry_failed", "run.extend", "run.restart", "run.trust", "run.tags", "run.note")
"""Keys that may be given with a `run.yaml`: they say how it is resumed, or describe it."""
_SEARCH = "hydra.searchpath"


def run(arguments: Arguments) -> Output:
    """Run the configuration that the overrides describe, or start or resume the run of a `run.yaml`."""
    configurations = configurations_of(arguments)
    if not arguments.words:  # a batch of a search may have one configuration, and is resumed by its run.yaml
        configurations[0].refuse_early_stopping()
    summaries = execute(configurations, Console(stderr=True))
    return run_output(RunFolder(run_dir(configurations)), summaries)


def configurations_of(arguments: Arguments) -> list[Configuration]:
    """Return the configurations that the arguments describe. Raises UserError."""
    for saved in (storage_path(word) / "run.yaml" for word in arguments.words):
        if saved.is_file():
            raise UserError(f"{saved.parent} is a run folder: name its file, as in {kgqa('evaluate', saved)}")
    for part in (storage_path(word) for word in arguments.words if not word.endswith(".yaml")):
        if part.exists() and (saved := part.parent / "run.yaml").is_file():
            raise UserError(f"{part} is in a run folder: name the run.yaml beside it, as in {kgqa('evaluate', saved)}")
    words = [*arguments.words, *arguments.overrides]
    files = [word for word in arguments.words if word.endswith(".yaml")]
    if missing := [word for word in files if not storage_path(word).is_file()]:
        raise UserError(f"{missing[0]} cannot be read: No such file or directory")
    if not files:
        if stray := [word for word in arguments.words if not word.startswith(("~", "-"))]:
            values = [word for word in stray[1:] if word != "="]
            meant = suggestion(f"{stray[0]}={values[0]}") if values else ""
            raise UserError(f"'{stray[0]}' is not of the form key=value, and not the run.yaml of a run.{meant}")
        return [Configuration(tuple(words), config.compose(words))]
    search = [word for word in words if word.startswith(f"{_SEARCH}=")]
    changes = dict(word.split("=", 1) for word in words if word not in (files[0], *search) and "=" in word)
    if len(changes) + len(search) + 1 < len(words) or not changes.keys() <= set(_RESUMING):
        allowed = ", ".join((*_RESUMING, _SEARCH))
        raise UserError(f"{files[0]} holds the whole configuration: remove the other arguments, except {allowed}")
    run = {key.removeprefix("run."): load_yaml(value) for key, value in changes.items()}
    return _saved_configurations(storage_path(files[0]), run, search)


def _saved_configurations(path: StoragePath, run: Mapping[str, Any], search: Sequence[str]) -> list[Configuration]:
    """Read the configurations of a `run.yaml`, changed by keys of the section `run`.

    Raises UserError, also for what the searched configuration does not have, unless the user trusts the file.
    """
    run = {"trust": False, **run, "dir": str(path.parent)}
    try:
        contents = read_run_file(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    points = contents["points"]
    try:
        if not run["trust"]:
            config.refuse_untrusted([saved["config"] for saved in points], path, search)
        resolved = [saved["config"] for saved in points]
        configs = [config.complete({**each, "run": {**each["run"], **run}}) for each in resolved]
        refuse_other_folder(path, contents, configs)
    except UserError as error:
        named = str(error) if str(path) in str(error) else f"{path}: {error}"
        raise UserError(named) from None
    return [Configuration(tuple(saved["overrides"]), each, path) for saved, each in zip(points, configs, strict=True)]
