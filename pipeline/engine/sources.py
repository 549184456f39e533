"""Identifies the code of a configuration's components: digests of the files that decide its results.

They are the user's own files, and of the project those of the method, with its prompts, of the retrieval, and of a
simulated model. The version of the project identifies all else.
"""

from __future__ import annotations

import ast
import hashlib
import marshal
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from pipeline import config
from pipeline.errors import UserError

_SIMULATION = f"{__name__.partition('.')[0]}.simulation"
_CLIENTS = f"{__name__.partition('.')[0]}.llm"
"""Clients of language models: their source decides no reply."""


class _Imported(NamedTuple):
    """A module of the user's as this process has imported it."""

    spec: ModuleSpec
    digest: str


_imported: dict[str, _Imported] = {}
"""The modules that runs of this process have used."""
_HEADER = 16
"""Bytes before the code in a compiled file."""
_Belongs = Callable[[Path, str, str], bool]
"""Whether the file of a module belongs to the module that imports it: the file, its module, and the other module."""


def user_sources(resolved: Mapping[str, Any]) -> dict[str, str]:
    """Return a digest of the source of each class that is not the project's own, and of the user's simulators.

    The keys are the names of the classes and modules. A digest covers the file of the module and the user's files that
    it imports, directly or not.
    """
    return {name: _digest(_files(module, {}, _are_of_user)) for name, module in _user_modules(resolved).items()}


def refuse_edited(configs: Iterable[Mapping[str, Any]]) -> None:
    """Raise UserError if a file of the user's has changed since this process imported it: the old code would run.

    In a notebook or a script, one process makes several runs. A module that is reloaded has another spec.
    """
    files: dict[str, Path] = {}
    for module in {module for resolved in configs for module in _user_modules(resolved).values()}:
        _files(module, files, _are_of_user)
    for module, file in files.items():
        spec = getattr(sys.modules.get(module), "__spec__", None)
        if spec is None:  # not imported yet
            continue
        now = _Imported(spec, _digest({module: file}))
        before = _imported.get(module)
        if before is None or before.spec is not spec:
            is_edited = not _is_as_compiled(spec, file)
        else:
            is_edited = before.digest != now.digest
        if not is_edited:
            _imported[module] = now
        else:
            raise UserError(
                f"{file} has changed since Python imported it, and the old code would run: start Python again (in a "
                f"notebook, restart the kernel), or call importlib.reload({module})"
            )


def _is_as_compiled(spec: ModuleSpec, file: Path) -> bool:
    """Whether a file still has the code that Python compiled when it imported the module.

    Python keeps compiled code in `__pycache__`. Where it does not, an edit before the first run is not noticed.
    """
    compiled = Path(spec.cached or "")
    writes = isinstance(spec.loader, SourceFileLoader) and not sys.dont_write_bytecode
    if not writes or not compiled.is_file() or not os.access(compiled.parent, os.W_OK):
        return True
    source = compile(file.read_bytes(), file, "exec", dont_inherit=True)
    return bool(marshal.loads(compiled.read_bytes()[_HEADER:]) == source)  # noqa: S302 - Python runs this file as well


def _user_modules(resolved: Mapping[str, Any]) -> dict[str, str]:
    """Return the module of each class that is not the project's own, and the user's simulators, by their names."""
    targets = [str(value) for key, value in config.flatten(resolved) if key.endswith("._target_")]
    modules = {target: config.import_target(target).__module__ for target in targets}
    modules |= {module: module for module in resolved["llm"].get("simulators") or ()}
    return {name: module for name, module in modules.items() if not is_own(module)}


def project_sources(resolved: Mapping[str, Any]) -> dict[str, str]:
    """Return a digest of the source of the project's own method, retrieval and simulated models, by class.

    A file counts if the class imports it, directly or not, within its part of the project (`pipeline/methods`). YAML
    files next to it, such as `prompts.yaml`, count as well.
    """
    sections = [resolved["method"], resolved["retrieval"], *config.models(resolved["llm"]).values()]
    targets = {str(section["_target_"]): config.import_target(str(section["_target_"])) for section in sections}
    own = {target: found.__module__ for target, found in targets.items() if is_own(found.__module__)}
    return {target: _own_digest(module) for target, module in own.items() if _part(module) != _CLIENTS}


def model_sources(resolved: Mapping[str, Any]) -> dict[str, str]:
    """Return digests of what answers the prompts: each file of the user by its module, and the project's by class."""
    targets = _model_targets(resolved)
    files: dict[str, Path] = {}
    for module in _model_modules(resolved):
        _files(module, files, _are_of_user)
    own = {target: digest for target, digest in project_sources(resolved).items() if target in targets}
    return {module: _digest({module: file}) for module, file in files.items()} | own


def edited_with_method(resolved: Mapping[str, Any]) -> set[str]:
    """Return the modules that belong to the user's method, without those that answer its prompts.

    A simulator imports its method for the classes of the prompts, whose text is a part of the key of every call.
    """
    module = config.import_target(str(resolved["method"]["_target_"])).__module__
    return set() if is_own(module) else {*_files(module, {}, _are_of_user)} - _model_modules(resolved)


def _model_targets(resolved: Mapping[str, Any]) -> set[str]:
    return {str(section["_target_"]) for section in config.models(resolved["llm"]).values()}


def _model_modules(resolved: Mapping[str, Any]) -> set[str]:
    """Return the modules of the user's own models and simulators."""
    models = {config.import_target(target).__module__ for target in _model_targets(resolved)}
    return {name for name in (*models, *(resolved["llm"].get("simulators") or ())) if not is_own(name)}


@cache
def _own_digest(module: str) -> str:
    """Return the digest of a part of the project that a module needs. A process sees one state of the project."""
    part = _part(module)
    folder = Path(__file__).parents[1] / part.rpartition(".")[2]
    if part == _SIMULATION:  # it finds the simulators of each method by name
        return _digest({str(file.relative_to(folder)): file for file in folder.rglob("*.py")})
    files = _files(module, {}, _are_of_one_part)
    texts = {str(text.relative_to(folder)): text for file in files.values() for text in file.parent.glob("*.yaml")}
    return _digest(files | texts)


def _digest(files: Mapping[str, Path]) -> str:
    contents = hashlib.blake2b(digest_size=8)
    for name, file in sorted(files.items()):
        contents.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return contents.hexdigest()


def _part(module: str) -> str:
    return ".".join(module.split(".")[:2])


def is_own(module: str) -> bool:
    """Whether a module, or a class by its full name, is the project's own."""
    return module.partition(".")[0] == __name__.partition(".")[0]


def _files(module: str, found: dict[str, Path], belongs: _Belongs) -> dict[str, Path]:
    """Add the file of a module, and those of its packages and imports that belong to it, to `found`."""
    file = _file_of(module)
    if file is None or module in found:
        return found
    found[module] = file
    for imported in chain(_packages(module), _imports(file, module)):
        other = _file_of(imported)
        if other is not None and belongs(other, imported, module):
            _files(imported, found, belongs)
    return found


def _are_of_user(file: Path, imported: str, module: str) -> bool:
    """Whether a file is the user's: it is not installed, or it is of the same package as the user's module."""
    return not is_own(imported) and (not _is_installed(file) or _top(imported) == _top(module))


def _is_installed(file: Path) -> bool:
    """Whether a file belongs to Python or to an installed package."""
    python = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    return bool(python & set(file.parents)) or not {"site-packages", "dist-packages"}.isdisjoint(file.parts)


def _are_of_one_part(_file: Path, imported: str, module: str) -> bool:
    return _part(imported) == _part(module)


def _packages(module: str) -> Iterator[str]:
    """Yield the packages of a module, whose `__init__.py` Python runs before it."""
    while module := module.rpartition(".")[0]:
        yield module


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
