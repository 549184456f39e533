"""Decides what a file of others can make a command do: a `run.yaml`, or a list of configurations.

The classes of the project and of the searched configuration may be named by anybody. What else runs code, and a server
that gets a key of the environment, must be named by the user: in `conf/`, on the command line, or by `run.trust=true`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, product
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from pipeline.config.composition import compose, conf_dir, required, user_conf_dirs
from pipeline.config.identity import canonical
from pipeline.config.key_docs import search_path
from pipeline.config.keys import SECTIONS
from pipeline.config.models import llm_by_role
from pipeline.datasets.subsample import Subsample
from pipeline.errors import UserError
from pipeline.renames import current_override, current_target

_GUARDED = {
    "_target_": "names a class to import",
    "simulators": "names modules to import",
    "engine_kwargs": "can make vLLM run code",
    "address": "names a cluster to run code with",
    "host": "can open a model server to the network",
}
"""Keys whose values the user must name, and why."""
_ACCOUNT = ("VIRTUOSO_USER", "VIRTUOSO_PASSWORD")

_ADDRESS = re.compile(r"://|[\w\]]:\d")
"""What a text has that can be the address of a server: a scheme, or a port."""

_PLACES = {"material": "dataset", "collect": "method"}
"""Sections of a command, and the sections in which the `run.yaml` of its run has them."""

Leaf = tuple[str, str]
"""The section of a key, and its value as text. A section inside another one counts by its own name alone."""


def refuse_untrusted(configs: Iterable[Mapping[str, Any]], file: object, overrides: Sequence[str] = ()) -> None:
    """Raise UserError if a configuration out of `file` runs code, or sends a key, that the user has not named.

    `overrides` are those of the user's own command line, and choices of groups, which name files of the searched
    configuration.
    """
    own = list(_own_sections(overrides))
    known = {leaf for name, section in own for _, leaf in _code(section, name, name)}
    named = {pair for name, section in own for pair in _keys_sent(section, name)}
    for resolved in configs:
        for path, leaf in _code({name: resolved[name] for name in SECTIONS if name in resolved}, "", ""):
            if leaf not in known:
                name = path.rpartition(".")[2]
                raise _untrusted(file, f"{path}={leaf[1]}", _GUARDED.get(name, "can run code"))
        sent = chain.from_iterable(_keys_sent(resolved[name], name) for name in SECTIONS if name in resolved)
        for url, variable in sent:
            if (url, variable) not in named and os.environ.get(variable):
                raise _untrusted(file, url, f"would get the key in {variable}")


def refuse_untrusted_words(words: Iterable[str], file: object) -> None:
    """Raise UserError if an override out of `file` does more than set keys, before it is composed."""
    for word in words:
        key, _, value = current_override(word)[0].lstrip("+~").partition("=")
        if key.startswith(("hydra", "run.trust")):
            raise _untrusted(file, word, "belongs on the command line")
        if ("." not in key and ".." in value) or ":" in value.partition("${")[2]:
            raise _untrusted(file, word, "can read files and the environment")


def _untrusted(file: object, what: str, why: str) -> UserError:
    return UserError(
        f"{file} has {what}, which {why}, and no configuration of yours names it (./conf or KGQA_CONF): read "
        "the file, and add run.trust=true if you trust all of it"
    )


def _code(section: Mapping[str, Any], kind: str, path: str) -> Iterator[tuple[str, Leaf]]:
    """Yield the path, and the section with the value, of each key that runs code and has a value."""
    for key, value in section.items():
        inner = f"{path}.{key}" if path else key
        is_folder = key == "model" and kind.endswith("encoder") and isinstance(value, str) and Path(value).exists()
        if (key in _GUARDED and value) or is_folder:  # sentence-transformers runs the code in the folder of a model
            text = current_target(value) if key == "_target_" and isinstance(value, str) else canonical(value)
            yield inner, (f"{kind}.{key}", text)
        elif isinstance(value, Mapping):
            yield from _code(value, "llm" if kind == "roles" else key, inner)


def _keys_sent(section: Mapping[str, Any], kind: str) -> Iterator[tuple[str, str]]:
    """Yield each server of a section with each variable of the environment whose key it may get.

    A class of the user may have other keys than those of the project. There, each text that can be an address counts,
    and each variable that a key names whose own name ends with `_env`.
    """
    for keys in llm_by_role(section).values() if kind == "llm" else (section,):
        # A section without the variable gets the default one.
        variables = {"llm": [str(keys.get("api_key_env", _default_variable()))], "kg": _ACCOUNT}.get(kind, ())
        servers = keys.get({"llm": "base_urls", "kg": "endpoints"}.get(kind, ""))
        yield from product(_texts(servers), variables)
        for part in _own_parts(keys):
            named = [text for key, text in _leaves(part) if key.endswith("_env")]
            yield from product((text for _, text in _leaves(part) if _ADDRESS.search(text)), {*variables, *named})


def _own_parts(section: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the parts of a section that belong to a class of the user."""
    if "_target_" in section and not _is_of_project(section):
        yield section
    for value in section.values():
        if isinstance(value, Mapping):
            yield from _own_parts(value)


def _leaves(section: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each text of a section of the user, with its key. Parts of a class of the project are left out."""
    for key, value in section.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Mapping):
                if not _is_of_project(each):
                    yield from _leaves(each)
            elif each is not None:
                yield key, str(each)


def _is_of_project(section: Mapping[str, Any]) -> bool:
    """Whether a section configures a class of the project."""
    return str(section.get("_target_", "")).startswith("pipeline.")


def _texts(value: object) -> list[str]:
    """Return the texts of a key, whose value nobody has validated yet."""
    return list(map(str, value)) if isinstance(value, list) else [str(value)] if value else []


@cache
def _default_variable() -> str:
    return str(_load(conf_dir() / "llm/endpoint.yaml")["api_key_env"])


def _own_sections(overrides: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the sections of a run in the searched configuration, and under the overrides, with their names."""
    composed = compose(overrides, given=dict.fromkeys(required(overrides)))
    yield from ((name, composed[name]) for name in SECTIONS)
    yield "dataset", {"_target_": f"{Subsample.__module__}.{Subsample.__name__}"}
    for folder in search_path([conf_dir(), *user_conf_dirs()], overrides):
        for file in folder.rglob("*.yaml"):
            if file.parent == folder:  # the keys of a command
                yield from _of_command(file) if folder == conf_dir() else ()
                continue
            content = _load(file)
            yield file.parent.name, content
            yield from ((key, value) for key, value in content.items() if key in SECTIONS and _is_section(value))


def _of_command(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield what a command of the project puts into the `run.yaml` of its run, with the sections where it stands."""
    content = _load(file)
    yield from ((place, content[key]) for key, place in _PLACES.items() if _is_section(content.get(key)))
    if "simulators" in content:
        yield "llm", {"simulators": content["simulators"]}


def _is_section(value: object) -> bool:
    return isinstance(value, dict)


def _load(file: Path) -> dict[str, Any]:
    return _load_version(file, file.stat().st_mtime_ns)


@cache
def _load_version(file: Path, _modified: int) -> dict[str, Any]:
    content = OmegaConf.to_container(OmegaConf.load(file))
    return {str(key): value for key, value in content.items()} if isinstance(content, dict) else {}
