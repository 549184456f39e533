"""The defaults of components: `conf/` holds them and no class repeats them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic.dataclasses import dataclass

from pipeline import config
from pipeline.config import default
from pipeline.config.construction import import_target
from pipeline.datasets.metaqa import MetaQA
from pipeline.errors import UserError
from pipeline.kg.embedded import EmbeddedGraph
from pipeline.methods.srp import SRP
from pipeline.methods.tog import ToG
from pipeline.retrieval.lexical import LexicalEncoder
from pipeline.retrieval.search import Search
from pipeline.training.llama import LlamaShape

FILES = sorted(config.conf_dir().rglob("*.yaml"))


@dataclass(frozen=True, kw_only=True)
class Wide(ToG):
    """A user's variant with a key of its own, and another default."""

    width: int = 9
    extra: str = "x"


@dataclass(frozen=True, kw_only=True)
class Own:
    """A user's component, which no file in `conf/` configures."""

    needed: int
    optional: int = 1


def sections(content: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each section of a file that configures a class, with the name of the class."""
    if "_target_" in content:
        yield content["_target_"], content
    for value in content.values():
        if isinstance(value, Mapping):
            yield from sections(value)


def test_every_class_names_a_file_that_describes_its_keys() -> None:
    named: dict[str, list[str]] = {}
    for file in FILES:
        for target, _ in sections(yaml.safe_load(file.read_text("utf-8")) or {}):
            named.setdefault(target, []).append(f"conf/{file.relative_to(config.conf_dir())}")
    for target, files in named.items():
        component = import_target(target)
        said = f"{inspect.getdoc(component)} {inspect.getdoc(inspect.getmodule(component))}"
        assert any(file in said for file in files), f"{target}: its docstring names none of {files}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_no_class_has_a_default_for_a_key_that_its_file_gives(file: Path) -> None:
    for target, section in sections(yaml.safe_load(file.read_text("utf-8")) or {}):
        references = {key for key, value in section.items() if str(value).startswith("${dataset")}  # to another section
        given = section.keys() - references
        parameters = inspect.signature(import_target(target)).parameters.values()
        twice = {each.name for each in parameters if each.default is not each.empty and each.name in given}
        assert not twice, f"{target} repeats the defaults of {sorted(twice)}"


def test_a_component_has_the_values_of_its_file_apart_from_the_changes() -> None:
    assert default(SRP) == config.build("method", config.compose(["method=srp"]))
    assert default(SRP, max_edits=1) == config.build("method", config.compose(["method=srp", "method.max_edits=1"]))


def test_a_value_that_refers_to_another_key_follows_its_change(tmp_path: Path) -> None:
    assert default(MetaQA, path=tmp_path, hops=2).name == "metaqa-2hop"
    assert default(ToG, beam_width=7).width == 7


def test_a_nested_component_is_built() -> None:
    assert isinstance(default(Search).encoder, LexicalEncoder), "the choice of config.yaml counts"


def test_a_class_of_two_files_has_the_values_of_the_first() -> None:
    assert default(LlamaShape) == config.build("shape", config.compose([], name="init_model"))


def test_a_key_of_another_section_is_not_filled(tmp_path: Path) -> None:
    assert default(EmbeddedGraph, store=tmp_path).dataset is None


@pytest.mark.parametrize(
    ("component", "changes", "sentence"),
    [
        (MetaQA, {}, "dataset.path must be given, as in dataset.path=…"),
        (ToG, {"width": 0}, "method.width=0 is wrong: input should be greater than 0"),
        (ToG, {"breadth": 1}, "unknown key 'method.breadth'. Did you mean 'method.beam_width'?"),
        (Own, {}, "needed must be given, as in needed=…"),
    ],
)
def test_a_wrong_or_missing_value_is_named(component: type, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        default(component, **changes)
    assert str(caught.value) == sentence


def test_a_subclass_has_the_defaults_of_its_base_unless_it_has_its_own() -> None:
    wide = default(Wide, compat=True)
    assert (wide.width, wide.extra, wide.compat) == (9, "x", True)
    assert {field.name: getattr(wide, field.name) for field in fields(ToG)} == {
        field.name: getattr(default(ToG, width=9, compat=True), field.name) for field in fields(ToG)
    }


def test_a_class_without_a_file_is_built_from_the_changes() -> None:
    assert default(Own, needed=3) == Own(needed=3)


def test_a_section_of_few_keys_is_built_with_the_defaults_of_the_others() -> None:
    composed = config.compose([])
    composed["method"] = {"_target_": "pipeline.methods.tog.ToG", "max_depth": 2}
    composed["dataset"] = {"_target_": "pipeline.simulation.world.SyntheticWorld", "triples": 2000}
    composed["llm"] = {"_target_": "pipeline.simulation.oracle.Oracle", "roles": {"tog.reason": {"error_rate": 0.5}}}
    config.check(composed)
    assert config.build("method", composed) == default(ToG, max_depth=2)
    assert config.prompt_styles(composed["llm"]) == {None: "full", "tog.reason": "full"}


def test_a_role_with_a_class_of_its_own_needs_no_other_key() -> None:
    composed = config.compose(["llm=oracle"])
    composed["llm"]["roles"] = {"srp.judge": {"_target_": "pipeline.llm.embedded.model.EmbeddedModel"}}
    config.check(composed)
    assert config.prompt_styles(composed["llm"])["srp.judge"] == "full"
