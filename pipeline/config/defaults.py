"""The defaults of components. The files in `conf/` are the only place that holds them; a class has types alone."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipeline.config.composition import conf_dir, plain
from pipeline.config.keys import RUNNER_KEYS, flatten

_REFERENCE = re.compile(r"\$\{\.(\w+)\}")
"""The value of a key that follows another one of its section."""


class DefaultSection(NamedTuple):
    """A section of a file in `conf/`."""

    root: dict[str, Any]
    """The whole file. That of a group stands under the name of the group, as in a composed configuration."""
    path: str
    """The dotted key of the section, as in `retrieval.encoder`; empty for a file that is one section."""

    def has_group(self, key: str) -> bool:
        """Return whether a key of the section is a group of its own, with files to choose from (`kg/vocabulary`)."""
        return (conf_dir() / self.path.replace(".", "/") / key).is_dir()

    def followed(self, key: str) -> str | None:
        """Return the key of the section whose value another key takes, as in `hops: ${.depth}`; None for others."""
        path = ".".join(filter(None, [self.path, key]))
        reference = _REFERENCE.fullmatch(str(dict(flatten(self.root)).get(path)))
        return reference and reference[1]

    def values(self, names: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the value of each key that has one. Numbers in `given` count where a value refers to their key."""
        root = OmegaConf.create(self.root)
        section = OmegaConf.select(root, self.path) if self.path else root
        section.update({key: value for key, value in given.items() if isinstance(value, int | float)})
        found: dict[str, Any] = {}
        for name in names:
            with suppress(OmegaConfBaseException):  # no such key, or `???`, or of another section, as in `${dataset}`
                value = section[name]
                found[name] = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        return found


def with_defaults(arguments: Mapping[str, Any], component: Callable[..., Any]) -> dict[str, Any]:
    """Return the arguments of a component, together with the default of each parameter that needs one."""
    lacking = _lacking(arguments, component)
    parts = [key for key, value in arguments.items() if isinstance(value, Mapping) and "_target_" not in value]
    section = section_of(component) if lacking or parts else None
    if section is None:
        return dict(arguments)
    groups = list(filter(section.has_group, parts))
    whole = section.values([*lacking, *groups], arguments)
    return {**whole, **arguments, **{key: {**whole[key], **arguments[key]} for key in groups}}


def runner_keys(section: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Check the runner's own keys of a section, and return them. One that a component's section lacks has its default.

    It is the value in the file that the group uses when nothing is chosen. Raises ValidationError.
    """
    owner = RUNNER_KEYS[section]
    lacking = _lacking(keys, owner) if "_target_" in keys else []
    defaults = _default_choices()[section].values(lacking, keys) if lacking else {}
    return owner.model_validate({**defaults, **keys}).model_dump()


def section_of(component: Callable[..., Any]) -> DefaultSection | None:
    """Return the section that configures a class, or else its nearest base class; None without such a section."""
    for base in inspect.getmro(component) if inspect.isclass(component) else ():
        for target, section in _sections().items():
            module, _, name = target.rpartition(".")
            if getattr(sys.modules.get(module), name, None) is base:
                return section
    return None


def _lacking(arguments: Mapping[str, Any], component: Callable[..., Any]) -> list[str]:
    """Return the parameters of a component that have no value yet."""
    try:
        parameters = inspect.signature(component).parameters.values()
    except ValueError:  # a built-in
        return []
    return [each.name for each in parameters if each.default is each.empty and each.name not in arguments]


@cache
def _sections() -> dict[str, DefaultSection]:
    """Return the section of each `_target_`: that of a default choice, or else of the first file by name."""
    roots = [section.root for section in _default_choices().values()]
    found: dict[str, DefaultSection] = {}
    files = sorted(file for file in conf_dir().rglob("*.yaml") if "_target_" in file.read_text(encoding="utf-8"))
    for root in (*roots, *map(_load, files)):
        for key, value in flatten(root):
            path, _, last = key.rpartition(".")
            if last == "_target_":
                found.setdefault(value, DefaultSection(root, path))
    return found


@cache
def _default_choices() -> dict[str, DefaultSection]:
    """Return the section that each group has when nothing is chosen."""
    entries = [entry for entry in _load(conf_dir() / "config.yaml")["defaults"] if isinstance(entry, dict)]
    choices = {group: choice for entry in entries for group, choice in entry.items()}
    return {group: DefaultSection(_load(conf_dir() / group / f"{name}.yaml"), group) for group, name in choices.items()}


def _load(file: Path) -> dict[str, Any]:
    """Read a file, and put the keys of a group under its name, together with those of the groups inside it."""
    content = plain(OmegaConf.load(file))
    if file.parent == conf_dir():
        return content
    for entry in content.get("defaults", ()):
        for group, choice in entry.items() if isinstance(entry, dict) else ():
            if (file.parent / str(group)).is_dir():
                content |= _load(file.parent / str(group) / f"{choice}.yaml")
    return {file.parent.name: content}
