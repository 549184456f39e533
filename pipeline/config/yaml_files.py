"""Says what is wrong with a configuration file of the user: in which line it is not YAML, or that it holds no keys."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import yaml
from omegaconf import DictConfig, OmegaConf
from yaml.reader import ReaderError

from pipeline.errors import UserError


def check_yaml(files: Iterable[Path]) -> None:
    """Raise UserError for the first file that cannot be read or does not hold keys; for wrong YAML, with the line."""
    for file in files:
        try:
            loaded = OmegaConf.load(file)
        except yaml.MarkedYAMLError as error:
            raise UserError(f"{file}{_line(error.problem_mark)}: {error.problem}{_begun(error)}") from None
        except ReaderError as error:
            before = file.read_text(encoding="utf-8")[: error.position]
            raise UserError(f"{file}, line {before.count(chr(10)) + 1}: {error.reason}") from None
        except UnicodeDecodeError as error:
            raise UserError(f"{file} is not UTF-8: {error.reason} {error.object[error.start : error.end]!r}") from None
        except OSError as error:  # OmegaConf raises it for a single number, too
            raise UserError(f"{file}: {error.strerror or 'it holds a number instead of keys'}") from None
        if not isinstance(loaded, DictConfig):
            raise UserError(f"{file} holds a list instead of keys")


def _line(mark: yaml.Mark | None) -> str:
    return f", line {mark.line + 1}" if mark else ""


def _begun(error: yaml.MarkedYAMLError) -> str:
    """Say what began in an earlier line, such as a list that is not closed."""
    begun, found = error.context_mark, error.problem_mark
    return f" ({error.context}{_line(begun)})" if begun and found and begun.line < found.line else ""
