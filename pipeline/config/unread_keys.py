"""Refuses keys of the user's files that nothing reads: Hydra would store them, and they would have no effect."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from pipeline.errors import UserError
from pipeline.suggestions import did_you_mean

_PRESETS = "experiment"
_GLOBAL = "# @package _global_"
_REFERENCE = re.compile(r"\$\{[^${}]*")
"""What may name other keys: `${width}`, `${..width}`, `${oc.select:widths.tog,3}`."""


def refuse_unread(
    resolved: Mapping[str, Any],
    sections: Collection[str],
    choices: Mapping[str, str],
    composed: DictConfig,
    files: Callable[[], Iterable[Path]],
) -> None:
    """Raise UserError for the first key outside of the `sections` that nothing reads.

    A section of a group of the user's own may be there, a key to which others refer in what was `composed`, and one
    that holds a YAML anchor in one of the user's `files`.
    """
    own = {group.partition("/")[0] for group in choices} - {_PRESETS}
    unknown = [key for key in resolved if key not in sections and key not in own]
    if not unknown:
        return
    references = " ".join(_REFERENCE.findall(OmegaConf.to_yaml(composed)))
    texts = [file.read_text("utf-8", "replace") for file in files()]
    for key in unknown:
        word = re.escape(key)
        is_anchor = any(re.search(rf"^['\"]?{word}['\"]?:\s*&", text, re.MULTILINE) for text in texts)
        if not is_anchor and not re.search(rf"(?<![\w-]){word}(?![\w-])", references):
            raise UserError(_sentence(key, resolved[key], choices.get(_PRESETS, "none"), sections))


def _sentence(key: str, values: object, preset: str, sections: Collection[str]) -> str:
    if key == _PRESETS and preset != "none":
        return (
            f"the keys of experiment={preset} are below `{_PRESETS}`, where nothing reads them: write "
            f"`{_GLOBAL}` into the first line of its file, {_PRESETS}/{preset}.yaml"
        )
    if key == _PRESETS:
        inner = next(iter(values), "") if isinstance(values, Mapping) else values
        return f"nothing reads the key '{_PRESETS}.{inner}': experiment=NAME chooses a preset"
    section, _, rest = key.partition(".")
    if rest and section in sections:
        return f"a file has no key '{key}' with a dot: write '{section}:', and below it, indented, '{rest}: …'"
    return f"nothing reads the key '{key}' of a file.{did_you_mean(key, sections)} Sections: {', '.join(sections)}"
