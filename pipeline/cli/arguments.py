"""The arguments of a command, and the configuration that they compose."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import pydantic.dataclasses
from pydantic import ConfigDict

from pipeline import config
from pipeline.text import printable
from pipeline.traces.folder import RunFolder
from pipeline.traces.storage import StoragePath, storage_path


@pydantic.dataclasses.dataclass(frozen=True)
class OutputKey:
    """The key of a command that writes one file."""

    output: str


@pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Trust:
    """The `run` section of a command that builds the components of finished runs (`pipeline/config/trust.py`)."""

    trust: bool

    @property
    def word(self) -> str:
        """The word that passes it on to another command."""
        return f"run.trust={str(self.trust).lower()}"


@dataclass(frozen=True)
class Arguments:
    """The arguments of one command."""

    config_name: str = "config"
    """The file of `conf/` with the keys of the command."""
    words: Sequence[str] = ()
    """Run folders, files and names."""
    overrides: Sequence[str] = ()
    """Hydra overrides: `key=value`."""

    @classmethod
    def parse(cls, argv: Sequence[str], config_name: str = "config", literal: Sequence[str] = ()) -> Self:
        """Separate words from overrides. A word with an equals sign is an override unless it is an existing path.

        The `literal` words are no overrides.
        """
        overrides = [word for word in argv if "=" in word and not os.path.exists(word)]
        words = [word for word in argv if word not in overrides]
        return cls(config_name, [*words, *literal], list(map(config.readable, overrides)))

    def run_folders(self) -> list[StoragePath]:
        """Return the run folders that the words name, each once. Name on stderr each word that is left out.

        For `runs/*`, a shell writes the names of all that is in the folder.
        """
        paths = list(map(storage_path, self.words))
        distinct = list({path.resolve(): path for path in reversed(paths)}.values())[::-1]
        repeated = [path for path, count in Counter(each.resolve() for each in paths).items() if count > 1]
        said = [f"{path} is given more than once: it counts once" for path in distinct if path.resolve() in repeated]
        others = [path for path in distinct if RunFolder(path).is_no_run]
        if len(others) == len(distinct):  # who reads the first says what is wrong with it
            others = []
        said += [f"{path} is skipped: it is not a run folder" for path in others]
        for line in said:
            print(printable(line), file=sys.stderr)
        return [path for path in distinct if path not in others]

    def compose(self) -> dict[str, Any]:
        """Compose the configuration under the overrides. Raises UserError for a wrong one."""
        return config.compose(self.overrides, name=self.config_name)


def name_repeated(words: Sequence[str], place: str = "") -> None:
    """Name on stderr each key that has two values: a script may add its own words to those of a user.

    `place` begins the sentence, as the file and a colon for the words of its lines.
    """
    last: dict[str, str] = {}
    for word in words:
        key = word.partition("=")[0].lstrip("+")
        if key == word or word.startswith(("~", "-")) or os.path.exists(word):  # no value, a flag or a run folder
            continue
        if last.get(key, word) != word:
            print(printable(f"{place}{key} is given more than once: {last[key]} is ignored"), file=sys.stderr)
        last[key] = word
