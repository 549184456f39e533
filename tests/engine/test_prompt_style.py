"""`llm.prompt_style`: prompts without instructions and worked examples, for models that are fine-tuned on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from pipeline import config
from pipeline.engine.configuration import Configuration
from pipeline.engine.model_servers import resolve
from pipeline.engine.run import execute
from pipeline.errors import UserError
from pipeline.llm.prompt import Call, Completion, Message, Template, inputs_only
from pipeline.simulation.oracle import QuestionOracle
from pipeline.traces.reader import RecordedCalls
from tests.support import METHODS, sampled

WORDS = ("dataset.triples=2000", "run.limit=8", "engine.shard_size=4")
INPUTS_ONLY = "llm.prompt_style=inputs_only"
ANSWERS = ("question_id", "answers", "hits_at_1", "llm_calls")


def run(folder: Path, *words: str) -> pl.DataFrame:
    """Run, and return the traces."""
    overrides = (*WORDS, *words, f"run.dir={folder}")
    execute([Configuration(overrides, config.compose(overrides))], Console(quiet=True))
    return pl.read_parquet(folder / "traces/*.parquet").sort("question_id")


def calls(frame: pl.DataFrame) -> pl.DataFrame:
    steps = frame.select("question_id", "steps", "texts").explode("steps", "texts").unnest("steps", "texts")
    return steps.filter(kind="llm")


class TestTemplates:
    def test_the_system_text_is_replaced_by_the_name_of_the_role(self) -> None:
        template = Template(system="Be brief.", user="Q: {{q}}", assistant="A {{q}}")
        assert inputs_only("a.role", template).render({"q": "?"}) == (
            Message("system", "a.role"),
            Message("user", "Q: ?"),
            Message("assistant", "A ?"),
        )
        assert inputs_only("a.role", template).digest != template.digest
        assert inputs_only("other.role", template).digest != inputs_only("a.role", template).digest

    def test_a_template_is_built_once(self) -> None:
        template = Template(system="Be brief.", user="{{q}}")
        assert inputs_only("a.role", template) is inputs_only("a.role", template)

    def test_a_template_without_a_system_text_is_unchanged(self) -> None:
        template = Template(system="", user="{{q}}", assistant="{{text}}")
        assert inputs_only("arg.token", template) is template

    def test_a_slot_in_the_system_text_is_named(self, caplog: pytest.LogCaptureFixture) -> None:
        inputs_only("a.role", Template(system="Name {{width}} relations.", user="{{q}}"))
        assert "the model is not told width of the prompt a.role" in caplog.text

    def test_a_complaint_follows_the_text_of_the_user(self) -> None:
        template = inputs_only("a.role", Template(system="Be brief.", user="{{q}}"))
        _, user = template.render({"q": "?", "complaint": "no braces"})
        assert user.content.startswith("?\n\nYour previous reply could not be used: no braces.")


@pytest.mark.parametrize("method", sampled(METHODS))
def test_the_calls_of_a_method_are_the_same_and_their_prompts_are_not(method: str, tmp_path: Path) -> None:
    words = f"method={method}", "llm=oracle"
    full, short = run(tmp_path / "full", *words), run(tmp_path / "inputs_only", *words, INPUTS_ONLY)
    assert full.select(ANSWERS).equals(short.select(ANSWERS)), "the oracle does not depend on the prompt style"
    key = ("question_id", "role", "inputs", "sampling")
    assert calls(full).select(key).sort(key).equals(calls(short).select(key).sort(key)), "all inputs are there"
    shared = set(calls(full)["key"]) & set(calls(short)["key"])
    no_system_text = {
        "parog.plan",
        "arg.token",
        "arg.retrieval",
        "arg.relations",
        "arg.entities",
        "arg.hypo",
        "arg.answer",
        *("rog.plan", "rog.read"),
    }
    assert set(calls(short).filter(pl.col("key").is_in(shared))["role"]) <= no_system_text, (
        "no system text, the same call"
    )
    # ArG's and RoG's prompts have no instructions in a system text, and those of RAG are short.
    assert sum(prompt_tokens(short)) < 0.6 * sum(prompt_tokens(full)) or method in {"arg", "rag", "rog"}


def prompt_tokens(frame: pl.DataFrame) -> list[int]:
    return calls(frame)["prompt_tokens"].to_list()


def test_the_exact_prompt_is_rebuilt_from_the_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: dict[str, tuple[Message, ...]] = {}
    answer = QuestionOracle.complete

    async def complete(self: QuestionOracle, call: Call) -> Completion:
        sent[call.key] = call.messages
        return await answer(self, call)

    monkeypatch.setattr(QuestionOracle, "complete", complete)
    frame = run(tmp_path, "method=parog", "llm=oracle", "llm.malformed_rate=0.3", INPUTS_ONLY)
    assert any("complaint" in json.loads(inputs) for inputs in calls(frame)["inputs"]), "re-asks are among them"
    recorded = RecordedCalls(tmp_path)
    found = {call.key: call for id in frame["question_id"] for call in recorded.calls(id).values()}
    assert {key: recorded.messages(call) for key, call in found.items()} == sent
    systems = {(call.role, sent[key][0].content) for key, call in found.items() if sent[key][0].role == "system"}
    assert systems
    assert all(role == system for role, system in systems)


def test_a_role_may_have_a_wording_of_its_own(tmp_path: Path) -> None:
    words = "method=srp", "llm=oracle"
    full, short = run(tmp_path / "full", *words), run(tmp_path / "inputs_only", *words, INPUTS_ONLY)
    mixed = calls(run(tmp_path / "mixed", *words, INPUTS_ONLY, "llm.roles={srp.judge: {prompt_style: full}}"))
    for role in mixed["role"].unique():
        like = calls(full if role == "srp.judge" else short)
        assert set(mixed.filter(role=role)["key"]) == set(like.filter(role=role)["key"]), role


def test_another_wording_is_another_run_and_reuses_none_of_its_calls(tmp_path: Path) -> None:
    words = "method=cot", "llm=oracle"
    run(tmp_path / "full", *words)
    with pytest.raises(UserError, match=r"llm\.prompt_style: full → inputs_only"):
        run(tmp_path / "full", *words, INPUTS_ONLY)
    other = run(tmp_path / "other", *words, INPUTS_ONLY, f"run.reuse=[{tmp_path / 'full'}]")
    assert not any(calls(other)["shared"])
    again = run(tmp_path / "again", *words, INPUTS_ONLY, f"run.reuse=[{tmp_path / 'other'}]")
    assert all(calls(again)["shared"])


def test_a_replay_needs_the_prompt_style_of_the_run(tmp_path: Path) -> None:
    first = run(tmp_path / "first", "method=srp", "llm=oracle", INPUTS_ONLY)
    replay = "method=srp", "llm=replay", f"llm.run={tmp_path / 'first'}"
    assert run(tmp_path / "again", *replay, INPUTS_ONLY).select(ANSWERS).equals(first.select(ANSWERS))
    other = run(tmp_path / "other", *replay)
    assert other["error"].str.contains("differs in the prompt's fixed text").all()


def test_configurations_with_different_prompt_styles_share_no_call(tmp_path: Path) -> None:
    words = (*WORDS, "method=cot", "llm=oracle", f"run.dir={tmp_path}")
    points = [(*words, f"llm.prompt_style={prompts}") for prompts in ("full", "inputs_only")]
    execute([Configuration(overrides, config.compose(overrides)) for overrides in points], Console(quiet=True))
    assert json.loads((tmp_path / "summary.json").read_text())["physical_llm_calls"] == 16


def test_a_served_model_keeps_its_prompt_style_and_is_served_once() -> None:
    llm: dict[str, Any] = config.compose(
        ["llm=serve", "llm.model=llama", INPUTS_ONLY, "llm.roles={srp.judge: {prompt_style: full}}"]
    )["llm"]
    sections = config.models(llm)
    assert sections["srp.judge"] == sections[None], "one model, deployed once"
    at = {"_target_": "pipeline.llm.endpoint.EndpointModel", "base_urls": ["http://127.0.0.1:1/v1"], "model": "llama"}
    moved = resolve(llm, {config.canonical(sections[None]): at})
    assert config.prompt_styles(moved) == config.prompt_styles(llm) == {None: "inputs_only", "srp.judge": "full"}
    assert config.models(moved) == {None: at, "srp.judge": at}


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("llm.prompt_style=short", "llm.prompt_style='short' is wrong: input should be 'full' or 'inputs_only'"),
        ("llm.roles={srp.judge: {prompt_style: short}}", "llm.roles.srp.judge.prompt_style='short' is wrong"),
    ],
)
def test_a_wrong_style_is_named(word: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as mistake:
        run(tmp_path, word)
    assert sentence in str(mistake.value)
