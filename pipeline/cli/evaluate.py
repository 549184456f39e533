"""`kgqa evaluate`: run one configuration, score it and print the table."""

from __future__ import annotations

import yaml
from rich.console import Console

from pipeline import config
from pipeline.cli.common import Arguments, Output, run_output
from pipeline.engine.run import Configuration, execute, run_dir
from pipeline.errors import UserError
from pipeline.renames import current_run
from pipeline.traces.folder import RunFolder
from pipeline.traces.storage import StoragePath, read_whole, storage_path


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
    if len(words) > 1:
        raise UserError(f"{files[0]} holds the whole configuration: remove the other arguments")
    return _saved_configurations(storage_path(files[0]))


def _saved_configurations(path: StoragePath) -> list[Configuration]:
    try:
        first, *others = current_run(yaml.safe_load(read_whole(path)))["points"]
        configurations = [Configuration(tuple(saved["overrides"]), saved["config"]) for saved in (first, *others)]
        for each in configurations:
            each.config["run"]["dir"] = str(path.parent)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, KeyError, TypeError, ValueError):
        raise UserError(f"{path} is not the run.yaml of a run") from None
    return configurations
