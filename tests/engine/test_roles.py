"""`llm.roles`: a model for a single role (specification §2.3)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, ClassVar

import polars as pl
import pytest
import yaml
from rich.console import Console

from pipeline import config
from pipeline.engine.configuration import Configuration
from pipeline.engine.run import execute
from pipeline.errors import UserError
from pipeline.llm.prompt import Prompt
from pipeline.llm.roles import check_roles, remarks
from pipeline.methods.cot import AnswerAlone

WORDS = ("method=parog", "dataset.triples=2000", "run.limit=40")
WEAK_PLANNER = "llm.roles={parog.plan: {error_rate: 1.0}}"


class Check(AnswerAlone):
    """The prompt of a user's method, in the file of the method."""

    role: ClassVar[str] = "own.check"


class UntrainedModel:
    """A model that was trained for nothing."""

    def remark(self, method: str, dataset: str, keys: Mapping[str, Any]) -> str:
        return f"{method} on {dataset}"


def run(folder: Path, *words: str) -> dict[str, pl.DataFrame]:
    """Run, and return the calls' completions and keys by role."""
    overrides = (*WORDS, *words, f"run.dir={folder}")
    composed = config.compose(overrides)
    config.check(composed)
    execute([Configuration(overrides, composed)], Console(quiet=True))
    frame = pl.read_parquet(folder / "traces/*.parquet", columns=["question_id", "steps", "texts"])
    steps = frame.explode("steps", "texts").unnest("steps", "texts").filter(kind="llm")
    return {str(role): part.drop("start_s", "duration_s", "own_s") for (role,), part in steps.group_by("role")}


def served(folder: Path) -> dict[str, Any]:
    saved: dict[str, Any] = yaml.safe_load((folder / "run.yaml").read_text())["served"][0]
    return saved


def test_only_a_named_role_is_answered_by_its_model(tmp_path: Path) -> None:
    plain, weak = run(tmp_path / "plain", "llm=oracle"), run(tmp_path / "weak", "llm=oracle", WEAK_PLANNER)
    plans, weak_plans = (calls["parog.plan"].sort("question_id") for calls in (plain, weak))
    assert plans["inputs"].to_list() == weak_plans["inputs"].to_list()
    assert all(a != b for a, b in zip(plans["completion"], weak_plans["completion"], strict=True))
    assert not set(plans["key"]) & set(weak_plans["key"]), "the model is part of the call key"
    assert set(plain["parog.tentative"]["key"]) & set(weak["parog.tentative"]["key"]), "other roles share their calls"
    assert served(tmp_path / "weak")["model"] == served(tmp_path / "plain")["model"]
    assert served(tmp_path / "weak")["roles"] == {"parog.plan": "oracle(error_rate=1,malformed_rate=0)"}


def test_a_replay_uses_the_recorded_identities(tmp_path: Path) -> None:
    first = run(tmp_path / "first", "llm=oracle", WEAK_PLANNER)
    again = run(tmp_path / "again", "llm=replay", f"llm.run={tmp_path / 'first'}")
    assert first.keys() == again.keys()
    for role, calls in first.items():
        assert calls.sort("key")["completion"].to_list() == again[role].sort("key")["completion"].to_list()


def test_the_model_of_a_role_may_be_of_another_kind(tmp_path: Path) -> None:
    run(tmp_path, "llm=oracle", "llm.roles={parog.plan: {_target_: pipeline.simulation.similarity.Similarity}}")
    assert served(tmp_path)["roles"] == {"parog.plan": "similarity"}
    assert served(tmp_path)["label"] == "oracle, similarity", "every table names both"


@pytest.mark.parametrize(
    ("roles", "sentence"),
    [
        ("{parog.plam: {error_rate: 0.5}}", "there is no role 'parog.plam'. Did you mean 'parog.plan'?"),
        ("{parog.plan: {error_rat: 0.5}}", "unknown key 'llm.roles.parog.plan.error_rat'"),
        ("{parog.plan: {error_rate: 2}}", "llm.roles.parog.plan.error_rate=2 is wrong"),
        ("{parog.plan: 3}", "llm.roles.parog.plan=3 is wrong"),
    ],
)
def test_a_wrong_role_is_named(roles: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as mistake:
        run(tmp_path, "llm=oracle", f"llm.roles={roles}")
    assert sentence in str(mistake.value)


def test_a_role_of_another_method_of_the_run_is_known(tmp_path: Path) -> None:
    words = (*WORDS[1:], "run.limit=2", "llm=oracle", WEAK_PLANNER, f"run.dir={tmp_path}")
    overrides = [(f"method={method}", *words) for method in ("cot", "parog")]
    execute([Configuration(each, config.compose(each)) for each in overrides], Console(quiet=True))
    with pytest.raises(UserError, match=r"there is no role 'parog\.plan'\. Known: cot\.answer$"):
        run(tmp_path / "cot", "method=cot", "llm=oracle", WEAK_PLANNER)


def test_a_users_method_declares_the_prompts_that_are_in_no_file_of_its_own() -> None:
    class Undeclared: ...

    class Declared:
        prompts = (AnswerAlone,)

    class Inheriting(Declared): ...

    check_roles(["cot.answer"], [Declared()])
    check_roles([], [Undeclared()])
    check_roles(["cot.answer", "own.check"], [Inheriting()])
    declare = r"List the prompts of {name} that are in other files: prompts: ClassVar = \({first}MyPrompt,\)$"
    with pytest.raises(UserError, match=declare.format(name="Undeclared", first="")):
        check_roles(["cot.answer"], [Undeclared()])
    with pytest.raises(UserError, match=declare.format(name="Inheriting", first=r"\*super_class\.prompts, ")):
        check_roles(["srp.judge"], [Inheriting()])


def test_a_model_warns_of_the_prompts_of_a_method_that_inherits_others() -> None:
    class Declared:
        prompts = (AnswerAlone,)

    class Inheriting(Declared): ...

    composed = {"method": {}, "choices": {"method": "inheriting"}}
    assert list(remarks(UntrainedModel(), Inheriting(), "webqsp", composed)) == ["cot on webqsp", "own on webqsp"]


@pytest.mark.parametrize("file", sorted((config.conf_dir() / "method").glob("*.yaml")), ids=lambda file: file.stem)
def test_every_method_declares_the_prompts_of_its_package(file: Path) -> None:
    target = yaml.safe_load(file.read_text())["_target_"]
    package, _, name = target.rpartition(".")
    module = import_module(package)
    modules = [
        module,
        *(import_module(each.name) for each in iter_modules(getattr(module, "__path__", ()), f"{package}.")),
    ]
    kinds = {kind for each in modules for kind in vars(each).values() if isinstance(kind, type)}
    own = {"role", "template"}
    prompts = {each for each in kinds if issubclass(each, Prompt) and hasattr(each, "role") and own & vars(each).keys()}
    assert set(getattr(module, name).prompts) == prompts
