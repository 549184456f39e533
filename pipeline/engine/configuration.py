"""The configurations of a run: composed, checked and compared with each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import config
from pipeline.console import Console, with_progress
from pipeline.datasets.interface import Dataset
from pipeline.engine import resume
from pipeline.errors import UserError
from pipeline.llm.roles import check_roles, remarks
from pipeline.methods.interface import Method
from pipeline.suggestions import did_you_mean
from pipeline.traces.folder import RunFolder
from pipeline.traces.storage import StoragePath, storage_path

_INTERFACES = {"method": Method, "dataset": Dataset}
"""What a class must have that a section names."""


@dataclass(frozen=True)
class Configuration:
    """One configuration of a run."""

    overrides: tuple[str, ...]
    """The overrides as the user gave them."""
    config: Mapping[str, Any]
    """The resolved configuration."""
    file: StoragePath | None = None
    """The file that it was read from, for messages; None if it was composed."""
    is_chosen_by_scores: bool = False
    """Whether a search has chosen it by the scores of earlier batches."""

    def check(self) -> None:
        """Raise UserError if a value is wrong, naming the file that holds it."""
        try:
            built = config.check(self.config)
            for section, interface in _INTERFACES.items():
                _check_members(f"{section}._target_={self.config[section]['_target_']}", built[section], interface)
        except UserError as error:
            if self.file is None:
                raise
            points = (RunFolder(self.file.parent).read_run() or {"points": []})["points"]
            saved = [point for point in points if tuple(point["overrides"]) == self.overrides]
            edited = [name for point in saved for name in resume.edited_sources(point, self.config)]
            remedy = "give the command of the run in place of this file"
            edit = f". The source of {edited[0]} has changed since the run was begun: {remedy}" if edited else ""
            raise UserError(f"{self.file}: {error}{edit}") from None

    def refuse_early_stopping(self) -> None:
        """Raise UserError if `run.early_stopping` is set, for a run of this configuration alone."""
        if self.config["run"]["early_stopping"]:
            raise UserError("run.early_stopping drops configurations that fall behind: a run of one has none to drop")


def _check_members(named: str, component: object, interface: type) -> None:
    """Raise UserError if a component lacks what its interface has."""
    names = {*interface.__annotations__, *vars(interface)}
    for missing in sorted(name for name in names if not name.startswith("_") and not hasattr(component, name)):
        raise UserError(f"{named} has no `{missing}`.{did_you_mean(missing, dir(component))}")


def compose_configurations(overrides: Sequence[Sequence[str]], console: Console) -> list[Configuration]:
    """Compose one configuration for each list of overrides. Raises UserError naming a wrong override."""
    # Each takes about a hundredth of a second, or a tenth if it chooses other groups, which is long in a large sweep.
    shown = with_progress(overrides, "composing the configurations", console)
    return [Configuration(tuple(each), config.compose(each)) for each in shown]


def run_dir(configurations: Sequence[Configuration]) -> StoragePath:
    """Return `run.dir`, or a name made of the keys that decide results: the same command finds the same folder."""
    configs = [each.config for each in configurations]
    if configs[0]["run"]["dir"]:
        return storage_path(configs[0]["run"]["dir"]).absolute()
    choices = [dict.fromkeys(each["choices"][group] for each in configs) for group in ("dataset", "method", "llm")]
    return Path.cwd() / "runs" / "-".join([*map("+".join, choices), config.identity_hash(*configs)])


def first_equal(configurations: Sequence[Configuration]) -> list[int]:
    """Return for each configuration the number of the first one that is equal to it, which may be its own."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(config.canonical(each.config), number) for number, each in enumerate(configurations)]


def check_common(configurations: Sequence[Configuration]) -> None:
    """Raise UserError if the configurations differ in a key that has one value for the whole run."""
    for key, values in _differing(configurations).items():
        if config.has_one_value(key):
            listed = ", ".join(map(config.written, values))
            raise UserError(
                f"{key} has one value for the whole run, and the configurations have {listed}: give it once"
            )
    run = configurations[0].config["run"]
    if run["early_stopping"] and run["retry_failed"]:
        raise UserError(
            "run.retry_failed=true cannot be combined with run.early_stopping, whose decisions are made: "
            "start a new run"
        )


def _differing(configurations: Sequence[Configuration]) -> dict[str, list[Any]]:
    """Return the keys in which configurations differ, with their distinct values."""
    flat = [dict(config.flatten(each.config)) for each in configurations]
    values = {key: list({config.canonical(each.get(key)): each.get(key) for each in flat}.values()) for key in flat[0]}
    return {key: found for key, found in values.items() if len(found) > 1}


def check_role_names(configs: Sequence[Mapping[str, Any]]) -> None:
    """Raise UserError if `llm.roles` names a role that no method of the run has."""
    named = {role: None for each in configs for role in each["llm"].get("roles") or ()}
    if named:
        check_roles(named, [config.build("method", each) for each in configs])


def model_remarks(each: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the models of a configuration say about its method and its dataset."""
    method, dataset = config.build("method", each), config.build("dataset", each)
    for keys in config.models(each["llm"]).values():
        yield from remarks(config.build("llm", {"llm": keys}), method, dataset.name, each)
