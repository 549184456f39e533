"""The arguments of a command, and the configuration that they compose."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import pydantic.dataclasses

from pipeline import config


@pydantic.dataclasses.dataclass(frozen=True)
class OutputKey:
    """The key of a command that writes one file."""

    output: str


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
    def parse(cls, argv: Sequence[str], config_name: str = "config") -> Self:
        """Separate words from overrides. A word with an equals sign is an override unless it is an existing path."""
        overrides = [word for word in argv if "=" in word and not os.path.exists(word)]
        return cls(config_name, [word for word in argv if word not in overrides], list(map(config.readable, overrides)))

    def compose(self) -> dict[str, Any]:
        """Compose the configuration under the overrides. Raises UserError for a wrong one."""
        return config.compose(self.overrides, name=self.config_name)
