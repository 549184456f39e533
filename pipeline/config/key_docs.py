"""Reads what each configuration key means from the comments in `conf/`, for `--help` and the reference pages.

The comment lines directly above a key explain it; a short explanation may also follow its value on the same line. The
first comment of a file says what the file configures.
"""

from __future__ import annotations

import json
import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from pipeline.config.yaml_files import check_yaml
from pipeline.errors import UserError

REQUIRED = "???"
"""The default of a key that must be given."""
TARGET_MEANING = "The Python class that the other keys of this section configure."

_INDENT = " " * 6
_COLUMN = 16
"""Width of the column of choices; longer names push their sentence to the right."""
_MANY = 20
"""More choices than these are listed by their names alone, unless the group is named."""
_FEW = 3
"""The keys of no more groups than these are always listed."""


@dataclass(frozen=True, slots=True)
class KeyDoc:
    """One configuration key with its default and its meaning."""

    group: str | None
    """The configuration group, as in `kg` or `kg/vocabulary`; None for the keys of a command's own file."""
    choice: str
    """The name of the file that defines the key, as in `kg=sparql`."""
    key: str
    """Dotted, as on the command line: `kg.endpoints`."""
    default: str | None
    """As the file writes it; `???` when it must be given; None for a section, which has keys of its own."""
    meaning: str


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """One configuration file with the meaning of each key."""

    summary: str
    """The first comment of the file."""
    keys: Sequence[KeyDoc]
    groups: Mapping[str, str]
    """The meaning of each group that its defaults list names."""
    parents: Sequence[str]
    """Files of the same folder that it extends."""

    @property
    def first_sentence(self) -> str:
        """The first sentence of the summary."""
        return first_sentence(self.summary)


def first_sentence(text: str) -> str:
    """Return the first sentence of an explanation."""
    return re.split(r"(?<=\.)\s+(?=[A-Z`])", text, maxsplit=1)[0]


def read_file(path: Path, group: str | None = None) -> ConfigFile:
    """Read the keys of a file. `group` is the configuration group of its folder. Raises UserError for wrong YAML."""
    check_yaml([path])
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    root = yaml.compose(text)
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    prefix = f"{group.replace('/', '.')}." if group and "# @package _global_" not in lines else ""
    entries = [entry for key, value in pairs if key.value == "defaults" for entry in value.value]
    named = [(entry, entry.value[0][0].value) for entry in entries if isinstance(entry, yaml.MappingNode)]
    return ConfigFile(
        summary=_summary(lines),
        keys=[
            KeyDoc(group, path.stem, prefix + key, default, meaning)
            for key, default, meaning in _explained(pairs, text, lines)
            if key.partition(".")[0] != "defaults"
        ],
        groups={name: _comment_above(lines, entry.start_mark.line) for entry, name in named},
        parents=[entry.value for entry in entries if isinstance(entry, yaml.ScalarNode) and entry.value != "_self_"],
    )


def read_group(folders: Sequence[Path], group: str) -> dict[str, ConfigFile]:
    """Read all choices of a group, by name. For a choice of several folders the first one counts."""
    paths = {path.stem: path for folder in reversed(folders) for path in (folder / group).glob("*.yaml")}
    return {choice: read_file(path, group) for choice, path in sorted(paths.items())}


def read_command(folders: Sequence[Path], name: str) -> list[ConfigFile]:
    """Read the file of a command and the files that it extends, itself first."""
    own = read_file(_find(folders, f"{name}.yaml"))
    return [own, *(file for parent in own.parents for file in read_command(folders, parent))]


def _read_choice(folders: Sequence[Path], group: str, choice: str) -> list[ConfigFile]:
    """Read the file of a choice and the files that it extends, itself first.

    Args:
        folders: where configuration files are.
        group: as Hydra names it: `retrieval/published@retrieval` holds choices of one folder for another section.
        choice: the choice, as in a defaults list: `/retrieval/dense@_here_` is a file of another folder.
    """
    folder, _, section = group.partition("@")
    name = choice.partition("@")[0]
    path = name.removeprefix("/") if name.startswith("/") else f"{folder}/{name}"
    own = read_file(_find(folders, f"{path}.yaml"), section or folder)
    here = f"{path.rpartition('/')[0]}@{section or folder}"
    return [own, *(file for parent in own.parents for file in _read_choice(folders, here, parent))]


def _find(folders: Sequence[Path], name: str) -> Path:
    return next(path for folder in folders if (path := folder / name).is_file())


def search_path(folders: Sequence[Path], overrides: Sequence[str]) -> list[Path]:
    """Return the folders of configuration files: `folders`, and those that `hydra.searchpath` adds.

    Raises UserError for one that is no folder, which Hydra would leave out with a warning.
    """
    added = [folder for word in overrides if word.startswith("hydra.searchpath=") for folder in _named_folders(word)]
    for folder in added:
        if not folder.is_dir():
            raise UserError(f"hydra.searchpath names {folder}, which is not a folder")
    return [*folders, *added]


def _named_folders(word: str) -> list[Path]:
    """Return the folders of this machine that an override of `hydra.searchpath` names; none if Hydra cannot read it."""
    try:
        value = OverridesParser.create().parse_override(word).value()
    except HydraException:  # it is explained where it is composed
        return []
    parts = [str(part).removeprefix("file://") for part in value] if isinstance(value, list) else []
    return [Path(part) for part in parts if "://" not in part and "${" not in part]


def help_text(
    composed: Mapping[str, Any],
    chosen: Mapping[str, str],
    command: str,
    folders: Sequence[Path],
    overrides: Sequence[str],
) -> str:
    """List the groups with their choices, and keys with their values and meanings.

    Of many groups, only those that an override names have their keys listed. Of many choices, only the names are,
    unless an override names their group.

    Args:
        composed: the configuration of the command under the overrides, with its interpolations unresolved.
        chosen: the choice made in each group.
        command: the name of the command's file.
        folders: where configuration files are, as `search_path` returns them.
        overrides: those of the user.
    """
    named = {re.split(r"[.=/]", word.lstrip("+~"), maxsplit=1)[0] for word in overrides}
    width = min(shutil.get_terminal_size().columns, 120)
    groups = {group: read_group(folders, group) for group in sorted(chosen) if "@" not in group}
    files = _files(chosen, command, folders)
    docs = _docs(files)
    purposes = {group: meaning for file in files for group, meaning in file.groups.items() if meaning}
    for section, choices in groups.items():  # a group inside a section, such as kg/vocabulary
        purposes |= {
            f"{section}/{name}": text for file in choices.values() for name, text in file.groups.items() if text
        }
    lines = ["Groups and their choices (* is in use):\n"] if groups else []
    for group, choices in groups.items():
        heading = f"  {group}=  {purposes.get(group, '')}".rstrip()
        lines += [
            *textwrap.wrap(heading, width, subsequent_indent=_INDENT + "  "),
            *(
                _names(choices, chosen[group], width)
                if len(choices) > _MANY and group not in named
                else _choices(choices, chosen[group], width)
            ),
            "",
        ]
    hidden = [section for section in composed if section in chosen and section not in named]
    hidden = hidden if len(hidden) > _FEW else []
    lines.append("Keys with their defaults:\n")
    for key, value in _values({key: value for key, value in composed.items() if key not in hidden}, docs):
        required = " Required." if value == REQUIRED else ""
        meaning = docs[key].meaning if key in docs else ""
        lines += [f"  {key}" if value is None else f"  {key}={value}", *_wrap(meaning + required, width)]
    if hidden:
        example = f"{hidden[0]}={chosen[hidden[0]]} --help"
        more = (
            f"The keys of {', '.join(hidden)} are listed when the group is named, as in {example}. The page "
            "Configuration of the documentation has all keys."
        )
        lines += ["", *textwrap.wrap(more, width)]
    return "\n".join(lines)


def meanings(chosen: Mapping[str, str], command: str, folders: Sequence[Path]) -> dict[str, str]:
    """Return the meaning of each key that has one, under these choices. The arguments are those of `help_text`."""
    return {key: doc.meaning for key, doc in _docs(_files(chosen, command, folders)).items()}


def _files(chosen: Mapping[str, str], command: str, folders: Sequence[Path]) -> list[ConfigFile]:
    """Read the files that define the keys of a command under these choices. Of a key in several, the first counts."""
    # A choice for another section, as retrieval=published makes one, comes before that section's own choice.
    ordered = sorted(chosen.items(), key=lambda item: "@" not in item[0])
    of_choices = (file for group, choice in ordered for file in _read_choice(folders, group, choice))
    return [*read_command(folders, command), *of_choices]


def _docs(files: Sequence[ConfigFile]) -> dict[str, KeyDoc]:
    return {doc.key: doc for file in reversed(files) for doc in file.keys if doc.meaning}


def _names(choices: Mapping[str, ConfigFile], chosen: str, width: int) -> list[str]:
    names = ", ".join(f"*{choice}" if choice == chosen else choice for choice in choices)
    return textwrap.wrap(names, width, initial_indent=_INDENT, subsequent_indent=_INDENT)


def _choices(choices: Mapping[str, ConfigFile], chosen: str, width: int) -> Iterator[str]:
    column = min(max(map(len, choices)), _COLUMN)
    for choice, file in choices.items():
        start = f"    {'*' if choice == chosen else ' '} {choice:<{column}}  "
        indent = _INDENT + " " * (column + 2)
        yield textwrap.fill(file.first_sentence, width, initial_indent=start, subsequent_indent=indent)


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False)


def _values(
    composed: Mapping[str, Any], docs: Mapping[str, KeyDoc], prefix: str = ""
) -> Iterator[tuple[str, str | None]]:
    """Yield every key with its value in one line; None for a section."""
    for name, value in composed.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and (key not in docs or docs[key].default is None):
            yield key, None
            yield from _values(value, docs, f"{key}.")
        else:
            yield key, _as_typed(value)


def _as_typed(value: object) -> str:
    """Return a value as it can be given on the command line."""
    if isinstance(value, list) and any("=" in str(each) for each in value):
        return json.dumps(value, ensure_ascii=False)  # Hydra wants quotes around an equals sign
    dumped = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True, sort_keys=False)
    return dumped.removesuffix("\n").removesuffix("\n...")


def _explained(
    pairs: Sequence[tuple[yaml.Node, yaml.Node]], text: str, lines: Sequence[str], prefix: str = ""
) -> Iterator[tuple[str, str | None, str]]:
    """Yield the dotted key, the default and the meaning of each key of a mapping, nested ones included."""
    for key_node, value in pairs:
        key = f"{prefix}{key_node.value}"
        is_section = isinstance(value, yaml.MappingNode) and not value.flow_style
        default = " ".join(text[value.start_mark.index : value.end_mark.index].split()) or "null"
        if key_node.value == "_target_":
            meaning = TARGET_MEANING
        else:
            one_line = value.start_mark.line == value.end_mark.line
            after = lines[value.end_mark.line][value.end_mark.column :].strip() if one_line else ""
            comments = [_comment_above(lines, key_node.start_mark.line), after.removeprefix("#").strip()]
            meaning = " ".join(filter(None, comments))
        yield key, None if is_section else default, meaning
        if is_section:
            yield from _explained(value.value, text, lines, f"{key}.")


def _comment_above(lines: Sequence[str], line: int) -> str:
    """Return the text of the comment lines directly above a line."""
    first = line
    while first and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return " ".join(part.strip().removeprefix("#").strip() for part in lines[first:line])


def _summary(lines: Sequence[str]) -> str:
    comments: list[str] = []
    for line in lines:
        if not line.startswith("#"):
            break
        comments.append(line.removeprefix("#").strip())
    return " ".join(comment for comment in comments if not comment.startswith("@package"))
