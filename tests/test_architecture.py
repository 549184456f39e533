"""What may import what: the arrows between the parts of the project, read off its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]

LAYERS = (
    {"types", "errors", "text", "traffic", "address", "local_server"},
    {"llm", "kg", "retrieval", "traces", "datasets"},
    {"methods", "evaluation"},
    {"engine", "config"},
    {"analysis", "training"},
    {"jobs"},
)
"""The parts of `pipeline`, and `jobs`, from the bottom up. A part imports its own layer and those below."""

APART = {"methods", "evaluation"}
"""Parts of one layer that know nothing of each other: how a question is answered, and how an answer is measured."""

ONLY_IN = {
    "ray": ("pipeline.engine", "pipeline.llm.serve", "pipeline.training.sft.job"),
    **dict.fromkeys(
        ("torch", "transformers", "safetensors", "peft"), ("pipeline.training", "pipeline.retrieval.dense")
    ),
    "tokenizers": ("pipeline.training", "pipeline.llm.embedded"),
    "ctranslate2": ("pipeline.llm.embedded",),
    "vllm": ("pipeline.llm.serve",),
    "pyarrow": ("pipeline.traces", "pipeline.datasets.rog"),  # RoG's questions are distributed as Parquet
}
"""Libraries that belong to one place."""

NOT_IN_METHODS = {"ray", "aiohttp", "pyarrow", "polars", "pyoxigraph", "socket", "urllib"}
"""What a method, a pure program over ports, has no use for."""


class Import(NamedTuple):
    """One name that a module imports."""

    module: str
    name: str
    line: int
    for_types: bool
    """Whether type checkers alone follow it."""


def imports(module: str, source: str) -> Iterator[Import]:
    """All imports of a module, wherever in it they stand."""
    tree = ast.parse(source)
    guards = (node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    guarded = {id(node) for guard in guards for statement in guard.body for node in ast.walk(statement)}
    for node in ast.walk(tree):
        for_types = id(node) in guarded
        if isinstance(node, ast.Import):
            yield from (Import(module, alias.name, node.lineno, for_types) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}, line {node.lineno}: write imports from the root on"
            yield from (Import(module, f"{node.module}.{alias.name}", node.lineno, for_types) for alias in node.names)


@cache
def sources() -> dict[str, str]:
    """The text of every module of `pipeline` and `jobs`, by its dotted name."""
    files = (file for root in ("pipeline", "jobs") for file in (ROOT / root).rglob("*.py"))
    paths = {file: file.relative_to(ROOT).with_suffix("") for file in files}
    return {".".join(path.parts).removesuffix(".__init__"): file.read_text("utf-8") for file, path in paths.items()}


@cache
def all_imports() -> list[Import]:
    return [one for module, source in sources().items() for one in imports(module, source)]


@cache
def methods() -> tuple[str, ...]:
    """The module or package of every method."""
    files = (ROOT / "conf" / "method").glob("*.yaml")
    return tuple(yaml.safe_load(file.read_text("utf-8"))["_target_"].rpartition(".")[0] for file in files)


def breach(one: Import) -> str | None:
    """The rule that an import breaks, and where; None when it breaks none."""
    importer, imported = part(one.module), part(one.name)
    rule = None
    if imported and importer == "types":
        rule = "the nouns of types.py stand on nothing of ours"
    elif imported and layer(importer) < layer(imported):
        rule = "imports point downwards, types ← ports ← methods, evaluation ← engine ← jobs"
    elif {importer, imported} == APART:
        rule = "methods and evaluation know nothing of each other"
    elif importer == "methods" and any(is_in(one.name, name) for name in NOT_IN_METHODS):
        rule = "a method knows its ports, and nothing of clusters, networks or files"
    elif owner := next((method for method in methods() if is_in(one.name, method)), None):
        if importer == "methods" and not is_in(one.module, owner):
            rule = "no method imports another; what several need is a shared module of pipeline/methods"
    elif (places := ONLY_IN.get(one.name.partition(".")[0])) and not any(is_in(one.module, place) for place in places):
        rule = f"that library is imported in {' and '.join(places)} alone"
    return f"{one.module}, line {one.line}, imports {one.name}: {rule}" if rule else None


def part(name: str) -> str | None:
    """The part that a module, or a name in it, belongs to; None for what is not ours."""
    root, *rest = name.split(".")
    if root == "pipeline" and rest:
        return rest[0]
    return "jobs" if root == "jobs" else None


def layer(part: str | None) -> int:
    """Its height; what has no layer yet stands above all others."""
    return next((height for height, parts in enumerate(LAYERS) if part in parts), len(LAYERS))


def is_in(name: str, place: str) -> bool:
    return f"{name}.".startswith(f"{place}.")


def test_every_part_has_a_layer() -> None:
    known = set.union(*LAYERS)
    strangers = {f"pipeline/{name}" for module in sources() if (name := part(module)) and name not in known}
    assert not strangers, f"{sorted(strangers)} stand in no layer: add them to LAYERS where their imports allow it"


def test_imports_keep_the_rules() -> None:
    assert {part(one.module) for one in all_imports()} >= {"llm", "kg", "methods", "evaluation", "engine", "jobs"}
    breaches = list(filter(None, map(breach, all_imports())))
    assert not breaches, "\n".join(breaches)


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {module: set() for module in sources()}
    for one in all_imports():
        imported = one.name if one.name in graph else one.name.rpartition(".")[0]
        if imported in graph and not one.for_types:
            graph[one.module].add(imported)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"these modules import each other in a circle: {' ← '.join(error.args[1])}")


@pytest.mark.parametrize(
    ("module", "line", "rule"),
    [
        ("pipeline.types", "from pipeline.errors import UserError", "stand on nothing of ours"),
        ("pipeline.traces.schema", "from pipeline.evaluation.metrics import Scores", "downwards"),
        ("pipeline.kg.pool", "def f():\n    import pipeline.engine.run", "downwards"),
        ("pipeline.engine.run", "from jobs import common", "downwards"),
        ("pipeline.llm.port", "if TYPE_CHECKING:\n    from pipeline.methods.port import Tools", "downwards"),
        ("pipeline.methods.cot", "from pipeline.evaluation import matching", "know nothing of each other"),
        ("pipeline.evaluation.compat", "from pipeline.methods import parsing", "know nothing of each other"),
        ("pipeline.methods.tog.method", "from pipeline.methods.srp.evidence import Evidence", "no method imports"),
        ("pipeline.methods.r3.method", "from pipeline.methods.cot import majority", "no method imports"),
        ("pipeline.methods.answering", "from pipeline.methods import srp", "no method imports"),
        ("pipeline.methods.arg.method", "import urllib.request", "a method knows its ports"),
        (
            "pipeline.kg.load",
            "import ray",
            "pipeline.llm.serve and pipeline.training.sft.job alone",
        ),
        ("pipeline.engine.worker", "import torch", "pipeline.training and pipeline.retrieval.dense alone"),
        ("jobs.llm", "from vllm import LLM", "pipeline.llm.serve alone"),
        ("jobs.score", "import pyarrow.parquet as pq", "pipeline.traces and pipeline.datasets.rog alone"),
    ],
)
def test_a_breach_is_told(module: str, line: str, rule: str) -> None:
    (one,) = imports(module, line)
    assert rule in (breach(one) or "")
    assert f"{module}, line {one.line}, imports {one.name}: " in (breach(one) or "")


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("pipeline.methods.srp.method", "from pipeline.methods.srp.evidence import Evidence"),
        ("pipeline.engine.ray", "from ray.exceptions import RayActorError"),
        ("pipeline.llm.serve", "from ray import serve"),
        ("pipeline.llm.oracle", "from pipeline.kg.paths import Leg"),
        ("jobs.evaluate", "from pipeline.methods.cot import CoT"),
        ("pipeline.methods.concurrency", "import asyncio"),
    ],
)
def test_what_is_allowed(module: str, line: str) -> None:
    assert [breach(one) for one in imports(module, line)] == [None]
