"""Identifies the code of a configuration's components: a digest of the user's own files.

The project's own components are identified by its version.
"""

from __future__ import annotations

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pipeline import config


def user_sources(resolved: Mapping[str, Any]) -> dict[str, str]:
    """Return a digest of the source of each class that is not the project's own, and of the user's simulators.

    The keys are the names of the classes and modules.
    """
    targets = [str(value) for key, value in config.flatten(resolved) if key.endswith("._target_")]
    modules = {target: config.import_target(target).__module__ for target in targets}
    modules |= {module: module for module in resolved["llm"].get("simulators") or ()}
    return {name: source_digest(module) for name, module in modules.items() if not _is_own(module)}


def source_digest(module: str) -> str:
    """Return a digest of a module's file and of the files of the same author that it imports, directly or not."""
    contents = hashlib.blake2b(digest_size=8)
    for name, file in sorted(_files(module, {}).items()):
        contents.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return contents.hexdigest()


def _is_own(module: str) -> bool:
    return module.partition(".")[0] == __name__.partition(".")[0]


def _files(module: str, found: dict[str, Path]) -> dict[str, Path]:
    """Add the file of a module, and those that it imports from the same package or folder, to `found`."""
    file = _file_of(module)
    if file is None or module in found:
        return found
    found[module] = file
    for imported in _imports(file, module):
        other = _file_of(imported)
        if other is not None and _belongs(other, file, same_package=_top(imported) == _top(module)):
            _files(imported, found)
    return found


def _belongs(other: Path, file: Path, *, same_package: bool) -> bool:
    """Whether two files have one author: they are of one package, or next to each other and not installed."""
    installed = Path(sysconfig.get_path("purelib")) in other.parents
    return same_package or (not installed and file.parent in other.parents)


def _imports(file: Path, module: str) -> Iterator[str]:
    """Yield the names of modules that a file imports. Some may be names inside a module."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            name = ".".join(filter(None, [*above, node.module]))
            yield name
            yield from (f"{name}.{alias.name}" for alias in node.names)


def _file_of(module: str) -> Path | None:
    """Return the Python file of a module; None for one without, and for a name that is no module."""
    loaded = sys.modules.get(module)
    try:
        origin = getattr(loaded, "__file__", None) if loaded else getattr(find_spec(module), "origin", None)
    except (ImportError, AttributeError, ValueError):
        return None
    return Path(origin) if origin and origin.endswith(".py") else None


def _top(module: str) -> str:
    return module.partition(".")[0]
