"""Imports modules that a configuration names, and says which of them are the user's own."""

from __future__ import annotations

import traceback
from importlib import import_module
from types import ModuleType


def import_named(name: str) -> ModuleType:
    """Import a module. Raises SyntaxError, or ImportError: for any other exception of its code, with file and line."""
    try:
        return import_module(name)
    except (ImportError, SyntaxError):
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        file = next((frame.filename for frame in reversed(frames) if frame.name == "<module>"), __file__)
        line = next(frame.lineno for frame in reversed(frames) if frame.filename == file)
        raise ImportError(f"{type(error).__name__}: {error} ({file}, line {line})") from error


def is_own(module: str) -> bool:
    """Whether a module, or a class by its full name, is the project's own."""
    return module.partition(".")[0] == __name__.partition(".")[0]
