"""The rules of imports between the parts of the project, checked against its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]

CORE = (
    {
        "types",
        "errors",
        "extras",
        "imports",
        "suggestions",
        "text",
        "percentages",
        "normalisation",
        "renames",
        "rdf_terms",
        "console",
        "grouping",
        "branches",
    },
    {"net", "datasets"},
    {"llm", "kg"},
    {"retrieval", "traces"},
    {"methods", "evaluation"},
    {"engine", "config"},
)
"""The core from the bottom up. A part imports parts of lower layers, and those of its own that do not import it."""

AROUND = ({"simulation", "analysis"}, {"papers", "report", "training", "viewer", "export"}, {"cli"}, {"api"})
"""The parts around the core, from the bottom up. The core never imports them: configuration plugs them in."""

LAYERS = CORE + AROUND

APART = ({"methods", "evaluation"}, {"papers", "training"}, {"report", "training"}, {"viewer", "training"})
"""Pairs of parts that must not import each other."""

ONLY_IN = {
    "ray": ("pipeline.engine", "pipeline.llm.serve", "pipeline.training.sft.job", "pipeline.cli.benchmarks.ingress"),
    **dict.fromkeys(
        ("torch", "transformers", "safetensors", "peft"), ("pipeline.training", "pipeline.retrieval.dense")
    ),
    "tokenizers": ("pipeline.training", "pipeline.llm.embedded"),
    "ctranslate2": ("pipeline.llm.embedded",),
    "vllm": ("pipeline.llm.serve",),
    "pyarrow": ("pipeline.traces", "pipeline.datasets"),  # RoG's questions and a user's graph may be in Parquet
}
"""Libraries and the only modules that import them."""

NOT_IN_METHODS = {"ray", "aiohttp", "httptools", "pyarrow", "polars", "pyoxigraph", "socket", "urllib"}
"""Libraries that a method must not import: it asks the graph and the model through its tools."""


class Import(NamedTuple):
    """One name that a module imports."""

    module: str
    name: str
    line: int
    for_types: bool
    """Whether the import stands under `if TYPE_CHECKING`."""


def imports(module: str, source: str) -> Iterator[Import]:
    """Yield all imports of a module, those inside functions included."""
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
    """The text of every module of the package, by its dotted name."""
    paths = {file: file.relative_to(ROOT).with_suffix("") for file in (ROOT / "pipeline").rglob("*.py")}
    return {".".join(path.parts).removesuffix(".__init__"): file.read_text("utf-8") for file, path in paths.items()}


@cache
def all_imports() -> list[Import]:
    return [one for module, source in sources().items() for one in imports(module, source)]


@cache
def methods() -> tuple[str, ...]:
    """The module or package of every method that conf/method names."""
    files = (ROOT / "conf" / "method").glob("*.yaml")
    return tuple(yaml.safe_load(file.read_text("utf-8"))["_target_"].rpartition(".")[0] for file in files)


def breach(one: Import) -> str | None:
    """The rule that an import breaks, with its position; None when it breaks none."""
    importer, imported = part(one.module), part(one.name)
    rule = None
    if imported and importer == "types":
        rule = "types.py imports nothing of the project"
    elif imported and importer in set.union(*CORE) and imported not in set.union(*CORE):
        rule = "the core imports none of the parts around it; configuration plugs them in"
    elif imported and layer(importer) < layer(imported):
        rule = "a part imports its own layer and lower ones"
    elif {importer, imported} in APART:
        rule = f"{importer} and {imported} must not import each other"
    elif importer == "methods" and any(is_in(one.name, name) for name in NOT_IN_METHODS):
        rule = "a method uses its tools, and no cluster, network or file"
    elif owner := next((method for method in methods() if is_in(one.name, method)), None):
        if importer == "methods" and not is_in(one.module, owner):
            rule = "no method imports another; shared code is a module of pipeline/methods"
    elif (places := ONLY_IN.get(one.name.partition(".")[0])) and not any(is_in(one.module, place) for place in places):
        rule = f"only {' and '.join(places)} may import that library"
    return f"{one.module}, line {one.line}, imports {one.name}: {rule}" if rule else None


def part(name: str) -> str | None:
    """The part of `pipeline` that a module, or a name in it, belongs to; None for other packages."""
    root, *rest = name.split(".")
    return rest[0] if root == "pipeline" and rest else None


def layer(part: str | None) -> int:
    """The layer of a part, counted from the bottom; an unknown part is above all layers."""
    return next((height for height, parts in enumerate(LAYERS) if part in parts), len(LAYERS))


def is_in(name: str, place: str) -> bool:
    return f"{name}.".startswith(f"{place}.")


def test_every_part_has_a_layer() -> None:
    known = set.union(*LAYERS)
    strangers = {f"pipeline/{name}" for module in sources() if (name := part(module)) and name not in known}
    assert not strangers, f"{sorted(strangers)} are in no layer: add them to CORE or AROUND"


def test_imports_keep_the_rules() -> None:
    assert {part(one.module) for one in all_imports()} >= {"llm", "kg", "methods", "evaluation", "engine", "cli"}
    breaches = list(filter(None, map(breach, all_imports())))
    assert not breaches, "\n".join(breaches)


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {module: set() for module in sources()}
    for one in all_imports():
        imported = one.name if one.name in graph else one.name.rpartition(".")[0]
        if imported in graph and not one.for_types:
            graph[one.module].add(imported)
    assert not circle(graph), f"these modules import each other: {' ← '.join(circle(graph))}"


def test_no_packages_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for one in all_imports():
        importer, imported = part(one.module), part(one.name)
        if importer and imported and importer != imported:
            graph.setdefault(importer, set()).add(imported)
    assert not circle(graph), f"these packages import each other: {' ← '.join(circle(graph))}"


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """The nodes of one circle of a directed graph; empty when there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_a_circle_is_found() -> None:
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == {"a", "b", "c"}
    assert circle({"a": {"b"}, "b": {"c"}}) == []


@pytest.mark.parametrize(
    ("module", "line", "rule"),
    [
        ("pipeline.types", "from pipeline.errors import UserError", "types.py imports nothing"),
        ("pipeline.traces.schema", "from pipeline.evaluation.metrics import Scores", "lower ones"),
        ("pipeline.kg.client", "def f():\n    import pipeline.engine.run", "lower ones"),
        ("pipeline.engine.run", "from pipeline.cli import common", "the core imports none"),
        ("pipeline.engine.run", "from pipeline.simulation.oracle import Oracle", "the core imports none"),
        ("pipeline.evaluation.score_tables", "from pipeline.papers import paper_rules", "the core imports none"),
        ("pipeline.llm.interface", "if TYPE_CHECKING:\n    from pipeline.methods.interface import Tools", "lower ones"),
        ("pipeline.traces.reader", "from pipeline.viewer.index import RunIndex", "the core imports none"),
        ("pipeline.analysis.runs", "from pipeline.viewer import drawing", "lower ones"),
        ("pipeline.methods.cot", "from pipeline.evaluation import matching", "must not import each other"),
        ("pipeline.evaluation.compat", "from pipeline.methods import parsing", "must not import each other"),
        ("pipeline.methods.tog.method", "from pipeline.methods.srp.evidence import Evidence", "no method imports"),
        ("pipeline.methods.r3.method", "from pipeline.methods.cot import majority", "no method imports"),
        ("pipeline.methods.answering", "from pipeline.methods import srp", "no method imports"),
        ("pipeline.methods.arg.method", "import urllib.request", "a method uses its tools"),
        ("pipeline.kg.load", "import ray", "only pipeline.engine and pipeline.llm.serve and"),
        ("pipeline.engine.worker", "import torch", "only pipeline.training and pipeline.retrieval.dense"),
        ("pipeline.cli.llm", "from vllm import LLM", "only pipeline.llm.serve"),
        ("pipeline.cli.score", "import pyarrow.parquet as pq", "only pipeline.traces and pipeline.datasets"),
    ],
)
def test_a_breach_is_reported(module: str, line: str, rule: str) -> None:
    (one,) = imports(module, line)
    assert rule in (breach(one) or "")
    assert f"{module}, line {one.line}, imports {one.name}: " in (breach(one) or "")


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("pipeline.methods.srp.method", "from pipeline.methods.srp.evidence import Evidence"),
        ("pipeline.engine.ray", "from ray.exceptions import RayActorError"),
        ("pipeline.llm.serve", "from ray.util import placement_group"),
        ("pipeline.simulation.oracle", "from pipeline.kg.paths import Leg"),
        ("pipeline.cli.evaluate", "from pipeline.methods.cot import CoT"),
        ("pipeline.methods.concurrency", "import asyncio"),
    ],
)
def test_an_allowed_import_is_accepted(module: str, line: str) -> None:
    assert [breach(one) for one in imports(module, line)] == [None]
