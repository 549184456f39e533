"""`kgqa sweep`: evaluate the configurations of a Hydra multirun together, question by question."""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException
from rich.console import RenderableType
from yaml import YAMLError

from pipeline import config
from pipeline.cli.arguments import Arguments, name_repeated
from pipeline.cli.output import Output
from pipeline.cli.run_output import (
    configuration_names,
    exit_code,
    hits_over_seeds,
    run_figures,
    run_notes,
    sweep_notes,
)
from pipeline.console import Console
from pipeline.engine.configuration import Configuration, compose_configurations
from pipeline.engine.sweep import Sweep
from pipeline.errors import UserError
from pipeline.evaluation.score_tables import sweep_table
from pipeline.text import kgqa
from pipeline.traces.folder import RunFolder

_CHOICE = re.compile(r"\w+=[\w-]+")
"""The choice of a configuration group, such as `llm=oracle`."""
_LIST = re.compile(r"(?P<key>[\w.]+)=\[(?P<values>.+)\]")
_COUNT = re.compile(r"\d (×|%|other|question|call|repl|row|error|configuration)")
"""A number of what a note counts."""
_OF_ONE_CHOICE = re.compile(
    r"unknown key '(?P<group>\w+)\.[^']*'\. It is a key of |(?P<set>\w+)\.\w+=\S+ sets \S+ of \w+,"
)
"""A key that another choice of its group has, or takes with this value."""


def run(arguments: Arguments) -> Output:
    """Run every configuration described by lists of values, ranges, the keys of a sweeper, or a file."""
    sweep = Sweep(Console(stderr=True))
    run_configurations(arguments, sweep)
    folders, batches = [folder for folder, _ in sweep.batches], [batch for _, batch in sweep.batches]
    names = configuration_names(folders, batches)
    runs = [run_figures(folder, batch) for folder, batch in sweep.batches]
    calls = {name: sum(each[name] for each in runs) for name in ("logical_llm_calls", "physical_llm_calls")}
    notes = _notes_of_batches([run_notes(folder, batch) for folder, batch in sweep.batches], folders)
    seeds = hits_over_seeds(folders, batches)
    notes += sweep_notes(folders, batches, calls, seeds)
    figures = {"runs": runs, **calls, "seeds": seeds.to_list()}
    table = sweep_table([summary for batch in batches for summary in batch], names)
    full: list[RenderableType] = [table, *seeds.tables()]
    return Output(figures, [table], notes, exit_code=exit_code(*folders), full_tables=full)


def _notes_of_batches(notes: Sequence[Sequence[str]], folders: Sequence[RunFolder]) -> list[str]:
    """Return notes of all batches once, and then those of each batch with its name: each has a configuration 0.

    A note with a count is of its batch, even if another batch has the same one.
    """
    said = dict.fromkeys(chain.from_iterable(notes))
    shared = [note for note in said if len(folders) == 1 or _is_of_all(note, notes)]
    own = [
        f"{folder.path.name}: {note}"
        for folder, each in zip(folders, notes, strict=True)
        for note in each
        if note not in shared
    ]
    return [*shared, *own]


def _is_of_all(note: str, notes: Sequence[Sequence[str]]) -> bool:
    return not _COUNT.search(note) and all(note in each for each in notes)


def run_configurations(arguments: Arguments, sweep: Sweep) -> None:
    """Pass the configurations that the arguments describe to `sweep`, in one batch or several. Raises UserError."""
    if len(arguments.words) > 1:
        raise UserError(f"{' and '.join(arguments.words)}: name one file of configurations, one per line")
    if arguments.words:
        sweep.run_composed(_configurations_of(Path(arguments.words[0]), arguments.overrides))
        return
    _refuse_empty(arguments.overrides)
    try:
        _multirun(arguments.overrides, sweep)
    except UserError as error:
        raise _of_several_values(error, arguments.overrides) from None


def _refuse_empty(overrides: Sequence[str]) -> None:
    """Raise UserError for a range without a number, such as `range(3,3)`: Hydra would make no configuration of it."""
    for word in (word for word in overrides if "range(" in word):
        with suppress(HydraException):  # what Hydra cannot read is explained later
            parsed = OverridesParser.create().parse_override(word)
            if parsed.is_range_sweep() and not list(parsed.sweep_iterator()):
                raise UserError(f"{parsed.key_or_group} has no values: {parsed.get_value_string()} is empty")


def _multirun(overrides: Sequence[str], sweep: Sweep) -> None:
    """Let Hydra's sweeper choose the configurations, and our launcher run them."""
    quiet = ["hydra/job_logging=none", "hydra/hydra_logging=none"]
    with (
        tempfile.TemporaryDirectory() as scratch,  # for the files of the basic sweeper; run.yaml has all they say
        config.running_hydra() as running,
    ):
        fused = [f"hydra/{plugin}=fused" for plugin in ("launcher", "sweeper")]  # what is given later takes precedence
        words = [*fused, *quiet, f"hydra.sweep.dir={scratch}", *_of_search(overrides), *_for_choices(overrides)]
        try:
            running.multirun("config", sweep, words, with_log_configuration=False)
        except OverrideParseException as error:
            raise UserError(config.not_an_override(error.override, "key=value or key=value,value")) from None
        except (HydraException, OmegaConfBaseException) as error:
            raise _wrong_override(overrides) or UserError(str(error).splitlines()[0]) from None
        except (YAMLError, ValueError, OSError) as error:  # of a configuration file, a choice, or the run
            raise _wrong_override(overrides) or error from None


def _for_choices(overrides: Sequence[str]) -> list[str]:
    """Return overrides of which Hydra does not compose the single values of keys with the default choice of a group.

    It does so first, and refuses a key that only the choices of a sweep have. A list of one value it leaves to them.
    """
    with suppress(HydraException):  # what Hydra cannot read is explained later
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        groups = {each.key_or_group for each in parsed if each.is_sweep_override() and "." not in each.key_or_group}
        return [
            _as_list(each, word) if _is_single(each, groups) else word
            for each, word in zip(parsed, overrides, strict=True)
        ]
    return list(overrides)


def _as_list(override: Override, word: str) -> str:
    """Return an override as a list of its one value; as it is if Hydra would make another value of it, as of null."""
    listed = f"{override.key_or_group}=choice({override.get_value_element_as_str()})"
    parser = OverridesParser.create()
    with suppress(HydraException, ValueError):
        (text,) = parser.parse_override(listed).sweep_string_iterator()
        value = parser.parse_override(f"{override.key_or_group}={text}").value()
        if value == override.value() and type(value) is type(override.value()):
            return listed
    return word


def _is_single(override: Override, groups: Collection[str]) -> bool:
    """Whether an override gives one value to a key that may be of a choice of these groups. A preset chooses any."""
    section, dot, _ = override.key_or_group.partition(".")
    is_of_choice = bool(dot) and section != "hydra" and (section in groups or "experiment" in groups)
    return is_of_choice and override.type is OverrideType.CHANGE and not override.is_sweep_override()


def _of_search(overrides: Sequence[str]) -> list[str]:
    """Return the overrides of an Optuna search that the user may leave out.

    A score is better if it is higher, and Optuna minimises by default. A resumed search has to ask for the same
    configurations, so the sampler has a seed.
    """
    if "hydra/sweeper=optuna" not in overrides:
        return []
    has_sampler = any("hydra.sweeper.sampler" in word or "hydra/sweeper/sampler=" in word for word in overrides)
    return ["hydra.sweeper.direction=maximize", *([] if has_sampler else ["hydra.sweeper.sampler.seed=0"])]


def _wrong_override(overrides: Sequence[str]) -> UserError | None:
    """Return the error of the first override that is wrong by itself: `config` explains it better than Hydra."""
    words = [word for word in overrides if not word.startswith("hydra.")]
    search = [word for word in overrides if word.startswith("hydra.searchpath")]
    lists = {word: word.partition("=")[2].split(",") for word in words if not set("([{'") & set(word)}
    firsts = {word: f"{word.partition('=')[0]}={values[0]}" for word, values in lists.items()}
    for word, values in lists.items():
        others = [firsts.get(other, other) for other in words if other != word and "(" not in other]
        for value in values:
            try:
                config.compose([*search, *others, f"{word.partition('=')[0]}={value}"])
            except UserError as error:
                return error
    return None


def _of_several_values(error: UserError, overrides: Sequence[str]) -> UserError:
    """Say how to sweep a key whose list is no value of it, and one that only one of the choices of a sweep has."""
    for listed in filter(None, map(_LIST.fullmatch, overrides)):
        if str(error).startswith(f"{listed['key']}=["):
            return UserError(f"{error}. For several values, write {listed['key']}={listed['values']}")
    key = _OF_ONE_CHOICE.match(str(error))
    group = key and (key["group"] or key["set"])
    if not any(word.startswith(f"{group}=") and "," in word for word in overrides):
        return error
    end = "" if str(error).endswith((".", "?")) else "."
    return UserError(
        f"{error}{end} To give each choice its own values, write one configuration a line: kgqa sweep FILE"
    )


def _configurations_of(file: Path, overrides: Sequence[str]) -> list[Configuration]:
    """Compose the configurations of a file. Unless the user trusts it, raises UserError as `refuse_untrusted` does."""
    lines = list(read_configurations(file))
    _name_overridden(file, lines, overrides)
    trusted = "run.trust=true" in overrides
    if not trusted:
        config.refuse_untrusted_words((word for words in lines for word in words), file)
    try:
        configurations = compose_configurations([[*overrides, *words] for words in lines], Console(stderr=True))
    except UserError:
        _refuse_wrong_line(file, lines, overrides)
        raise
    if not trusted:
        for choices, chosen in _by_choices(lines, configurations).items():
            config.refuse_untrusted(chosen, file, [*overrides, *choices])
    return configurations


def _name_overridden(file: Path, lines: Iterable[Sequence[str]], overrides: Sequence[str]) -> None:
    """Name on stderr the keys of the command line that lines of the file set, too."""
    for words in lines:
        name_repeated(words, f"{file}: ")
    set_by_lines = {config.key_of(word) for words in lines for word in words}
    if overridden := [key for key in map(config.key_of, overrides) if key in set_by_lines]:
        said = f"the lines of {file} that set {', '.join(overridden)} take precedence over the command line"
        Console(stderr=True).print(said, markup=False, soft_wrap=True)


def _refuse_wrong_line(file: Path, lines: Iterable[Sequence[str]], overrides: Sequence[str]) -> None:
    """Raise UserError with the first configuration of a file that cannot be composed."""
    _refuse_several(overrides, f"beside {file}")
    for words in lines:
        _refuse_several(words, f"{file}, in '{shlex.join(words)}'")
        try:
            config.compose([*overrides, *words])
        except UserError as error:
            raise UserError(f"{file}, in '{shlex.join(words)}': {error}") from None


def _refuse_several(words: Iterable[str], where: str) -> None:
    """Raise UserError if one of the words gives a key several values: a line of a file is one configuration."""
    for word in filter(_holds_several, words):
        key = word.partition("=")[0]
        raise UserError(
            f"{where}: {word} gives several values, but each line of the file is one configuration: write a line for "
            f"each value; a list is written {key}=[…]"
        )


def _holds_several(word: str) -> bool:
    """Whether an override gives a key several values, as for a sweep on the command line."""
    try:
        return bool(OverridesParser.create().parse_override(word).is_sweep_override())
    except HydraException:  # it is no override, which its composition explains
        return False


def _by_choices(
    lines: Iterable[Sequence[str]], configurations: Iterable[Configuration]
) -> dict[tuple[str, ...], list[Mapping[str, Any]]]:
    """Group configurations by the choices in their lines: the keys of a choice may stand on the command line."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for words, configuration in zip(lines, configurations, strict=True):
        choices = tuple(filter(_CHOICE.fullmatch, words))
        groups.setdefault(choices, []).append(configuration.config)
    return groups


def read_configurations(path: Path) -> Iterator[list[str]]:
    """Yield the configurations of a file: one per line, written as on the command line, with `#` for comments."""
    if path.name == "run.yaml":
        raise UserError(
            f"{path} describes a run or a sweep that has begun: {kgqa('evaluate', path)} continues it. To start a "
            "sweep, name a file of configurations"
        )
    if path.is_dir():
        raise UserError(f"{path} is a folder: name a file of configurations. {kgqa('ls', path)} lists the runs in it")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise UserError(f"{path} cannot be read as a file of configurations: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} cannot be read as a file of configurations: {error}") from None
    try:
        configurations = [words for line in lines if (words := shlex.split(line, comments=True))]
    except ValueError as error:
        raise UserError(f"{path} is not a file of configurations, one command line each: {error}") from None
    if not configurations:
        raise UserError(f"{path} holds no configuration: write one per line, as on the command line")
    return iter(configurations)
