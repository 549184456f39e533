"""Refuses keys of the user's files that nothing reads: Hydra would store them, and they would have no effect."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from pipeline.errors import UserError
from pipeline.suggestions import did_you_mean

_PRESETS = "experiment"
_GLOBAL = "# @package _global_"
_NAMED = re.compile(r"\$\{(?:oc\.select:)?([\w-]+)")
"""The first part of a key that another key refers to, as in `${width}` and `${oc.select:widths.tog}`."""


def refuse_unread(
    resolved: Mapping[str, Any], known: Collection[str], choices: Mapping[str, str], composed: DictConfig
) -> None:
    """Raise UserError for the first key outside of the `known` sections that nothing reads.

    A section of a group of the user's own, and a key to which others refer in what was `composed`, may be there.
    """
    own = {group.partition("/")[0] for group in choices} - {_PRESETS}
    unknown = [key for key in resolved if key not in known and key not in own]
    named = set(_NAMED.findall(OmegaConf.to_yaml(composed))) if unknown else set()
    for key in unknown:
        if key not in named:
            raise UserError(_sentence(key, resolved[key], choices.get(_PRESETS, "none"), known))


def _sentence(key: str, values: object, preset: str, known: Collection[str]) -> str:
    if key == _PRESETS and preset != "none":
        return (
            f"the keys of experiment={preset} are below `{_PRESETS}`, where nothing reads them: write "
            f"`{_GLOBAL}` into the first line of its file, {_PRESETS}/{preset}.yaml"
        )
    if key == _PRESETS:
        inner = next(iter(values), "") if isinstance(values, Mapping) else values
        return f"nothing reads the key '{_PRESETS}.{inner}': experiment=NAME chooses a preset"
    sections = [section for section in known if section != "choices"]
    section, _, rest = key.partition(".")
    if rest and section in sections:
        return f"a file has no key '{key}' with a dot: write '{section}:', and below it, indented, '{rest}: …'"
    return f"nothing reads the key '{key}' of a file.{did_you_mean(key, sections)} Sections: {', '.join(sections)}"
