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
from pathlib import Path
from typing import Any, NamedTuple

from pipeline import config
from pipeline.errors import UserError
from pipeline.imports import is_own

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


def user_sources(resolved: Mapping[str, Any]) -> dict[str, str]:
    """Return a digest of the source of each class that is not the project's own, and of the user's simulators.

    The keys are the names of the classes and modules. A digest covers the file of the module and the user's files that
    it imports, directly or not.
    """
    return {name: _digest(_user_files([module])) for name, module in _user_modules(resolved).items()}


def refuse_edited(configs: Iterable[Mapping[str, Any]]) -> None:
    """Raise UserError if a file of the user's has changed since this process imported it: the old code would run.

    In a notebook or a script, one process makes several runs. A module that is reloaded has another spec.
    """
    modules = {module for resolved in configs for module in _user_modules(resolved).values()}
    for module, file in _user_files(modules).items():
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
    files = _user_files(_model_modules(resolved))
    own = {target: digest for target, digest in project_sources(resolved).items() if target in targets}
    return {module: _digest({module: file}) for module, file in files.items()} | own


def edited_with_method(resolved: Mapping[str, Any]) -> set[str]:
    """Return the modules that belong to the user's method, without those that answer its prompts.

    A simulator imports its method for the classes of the prompts, whose text is a part of the key of every call.
    """
    module = config.import_target(str(resolved["method"]["_target_"])).__module__
    return set() if is_own(module) else {*_user_files([module])} - _model_modules(resolved)


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
    files = _files([module], _is_of_one_part, _imports)
    texts = {str(text.relative_to(folder)): text for file in files.values() for text in file.parent.glob("*.yaml")}
    return _digest(files | texts)


def _digest(files: Mapping[str, Path]) -> str:
    contents = hashlib.blake2b(digest_size=8)
    for name, file in sorted(files.items()):
        contents.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return contents.hexdigest()


def _part(module: str) -> str:
    return ".".join(module.split(".")[:2])


def _user_files(modules: Iterable[str]) -> dict[str, Path]:
    """Return the user's files among those of modules, of what these import, directly or not, and of their packages."""
    return _files(modules, _is_of_user, lambda file, module: (*_packages(module), *_imports(file, module)))


def _files(
    modules: Iterable[str],
    belongs: Callable[[Path, str, str], bool],
    needed: Callable[[Path, str], Iterable[str]],
) -> dict[str, Path]:
    """Return the files of modules, and of those that they need, directly or not, and that belong to them.

    Args:
        modules: Names of modules.
        belongs: Whether a file belongs to the module that needs it: the file, its module, and the other module.
        needed: The names of what a module needs, of which some may be no modules, by its file and its name.
    """
    found: dict[str, Path] = {}
    open_modules = [(module, file) for module in modules if (file := _file_of(module))]
    while open_modules:
        module, file = open_modules.pop()
        if module in found:
            continue
        found[module] = file
        others = ((other, _file_of(other)) for other in needed(file, module) if other not in found)
        open_modules += [(other, its) for other, its in others if its and belongs(its, other, module)]
    return found


def _is_of_user(file: Path, imported: str, module: str) -> bool:
    """Whether a file is the user's: it is not installed, or it is of the same package as the user's module."""
    return not is_own(imported) and (not _is_installed(file) or _top(imported) == _top(module))


def _is_installed(file: Path) -> bool:
    """Whether a file belongs to Python or to an installed package."""
    return not _standard_library().isdisjoint(file.parents) or not {"site-packages", "dist-packages"}.isdisjoint(
        file.parts
    )


@cache
def _standard_library() -> frozenset[Path]:
    return frozenset(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))


def _is_of_one_part(_file: Path, imported: str, module: str) -> bool:
    return _part(imported) == _part(module)


def _packages(module: str) -> Iterator[str]:
    """Yield the packages of a module, whose `__init__.py` Python runs before it."""
    while module := module.rpartition(".")[0]:
        yield module


def _imports(file: Path, module: str) -> tuple[str, ...]:
    """Return the names of modules that a file imports. Some may be names inside a module."""
    state = file.stat()
    return _read_imports(file, module, (state.st_mtime_ns, state.st_size))


@cache
def _read_imports(file: Path, module: str, _state: tuple[int, int]) -> tuple[str, ...]:
    """Return what `_imports` does, for a state of the file; nothing for one that Python cannot read."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    names: dict[str, None] = {}
    try:
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
    except (SyntaxError, ValueError):
        return ()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= dict.fromkeys(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            name = ".".join(filter(None, [*above, node.module]))
            names |= dict.fromkeys([name, *(f"{name}.{alias.name}" for alias in node.names)])
    return tuple(names)


def _file_of(module: str) -> Path | None:
    """Return the Python file of a module; None for one without, and for a name that is no module.

    Nothing is imported: the code of a package might take long, or fail.
    """
    loaded = getattr(sys.modules.get(module), "__file__", None)
    if loaded is not None:
        return Path(loaded) if loaded.endswith(".py") else None
    top, *parts = module.split(".")
    try:
        spec = find_spec(top)
    except (ImportError, AttributeError, ValueError):
        return None
    if spec is None:
        return None
    if not parts:
        return Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None
    places = [Path(folder, *parts) for folder in spec.submodule_search_locations or ()]
    files = (file for place in places for file in (place / "__init__.py", place.with_name(f"{place.name}.py")))
    return next(filter(Path.is_file, files), None)


def _top(module: str) -> str:
    return module.partition(".")[0]
