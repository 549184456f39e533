"""Configurations: their identity, how they are composed, and how they are built into components."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import hydra
import pytest
from omegaconf import OmegaConf
from pydantic import model_validator
from pydantic.dataclasses import dataclass

from pipeline import config
from pipeline.cli.main import main
from pipeline.config import composition
from pipeline.errors import UserError
from pipeline.types import RUNTIME_ONLY


@dataclass(frozen=True, kw_only=True)
class Unions:
    """A component whose key takes one of two types, and must not be empty."""

    either: dict[str, list[int]] | list[int]

    @model_validator(mode="after")
    def _filled(self) -> Unions:
        if not self.either:
            raise ValueError("it is empty")
        return self


def reordered(value: Any) -> Any:
    """Return the same configuration with its keys in reverse order."""
    if not isinstance(value, dict):
        return value
    return {key: reordered(value[key]) for key in reversed(value)}


def changed(composed: dict[str, Any], key: str, value: object) -> dict[str, Any]:
    """Return a copy that differs in one dotted key."""
    section, _, rest = key.partition(".")
    if section == "parog":  # a role is one key, with a dot in it
        section, _, rest = "parog.plan", *key.removeprefix("parog.plan").partition(".")[1:]
    inner = composed.get(section, {})
    return {**composed, section: changed(inner, rest, value) if rest else value}


SERVE = "llm=serve llm.model=llama"

RUNTIME = [
    ("", "run.dir", "elsewhere"),
    ("", "run.reuse", ["runs/x"]),
    ("", "engine.concurrency", 3),
    ("engine=ray", "engine.workers", 7),
    ("", "dataset.strict", True),
    ("", "kg.cache_size", 5),
    ("", "retrieval.cache_dir", "vectors"),
    ("retrieval=dense", "retrieval.cache_dir", None),
    ("retrieval=dense", "retrieval.relation_encoder.device", "cuda:1"),
    ("dataset=rog dataset.path=x", "kg.open_graphs", 5),
    *(
        ("kg=sparql", f"kg.{key}", value)
        for key, value in {
            "endpoints": ["http://elsewhere/sparql"],
            "values_style": "union",
            "values_chunk": 7,
            "max_inflight": 7,
            "max_neighbours": 7,
            "batch_window_ms": 7,
            "cache_size": 7,
            "timeout_s": 7,
            "retries": 7,
            "hedge": None,
            "max_reply_mb": 7,
        }.items()
    ),
    *(
        ("llm=endpoint", f"llm.{key}", value)
        for key, value in {
            "base_urls": ["http://elsewhere/v1"],
            "api_key_env": "OTHER",
            "dialect": "reasoning",
            "max_inflight": 7,
            "max_reply_mb": 7,
            "connect_timeout_s": 7,
            "timeout_s": 7,
            "max_retries": 7,
            "backoff_s": 7,
            "max_backoff_s": 7,
            "breaker_failures": 7,
            "breaker_reset_s": 7,
            "question_affinity": False,
        }.items()
    ),
    *(
        (SERVE, f"llm.{key}", value)
        for key, value in {
            "replicas": 7,
            "autoscale": [1, 7],
            "tensor_parallel": 7,
            "question_affinity": False,
            "hang_timeout_s": 7,
            "resources": {"CPU": 7},
            "placement": "SPREAD",
            "accelerator": "H100",
            "host": "0.0.0.0",
            "port": 7,
            "start_timeout_s": 7,
            "connect_timeout_s": 7,
            "timeout_s": 7,
            "max_retries": 7,
            "backoff_s": 7,
            "max_backoff_s": 7,
            "breaker_failures": 7,
            "breaker_reset_s": 7,
        }.items()
    ),
    ("llm=oracle", "llm.latency_s", 7),
    ("llm=oracle llm.roles={parog.plan:{latency_s:1}}", "llm.roles.parog.plan.latency_s", 7),
]

VOCABULARY = {
    "namespace": "http://x/",
    "opaque_ids": "Q",
    "percent_encoded": False,
    "relations": "http://x/",
    "statements": {"value": "http://x/"},
    "relation_labels": True,
    "hidden": ["x."],
    "names": ["a.name"],
    "aliases": ["an.alias"],
    "languages": ["de", "en"],
    "types": "a.type",
    "mediator_flag": None,
    "mediator_ids": "statement/",
    "unnamed_mediators": False,
    "inverses": None,
    "redirects": "http://x/y",
}

COMPUTED = [
    ("", "run.limit", 7),
    ("", "run.seed", 7),
    ("", "engine.shard_size", 7),
    ("", "method.depth", 7),
    ("", "dataset.seed", 8),
    ("", "budget.max_llm_calls", 7),
    ("", "evaluation.empty_gold", "strict_empty"),
    ("", "retrieval.fusion", "rrf"),
    ("", "retrieval.reference_base", "references/x.jsonl"),
    *(
        ("kg=sparql", f"kg.{key}", value)
        for key, value in {
            **{f"vocabulary.{key}": value for key, value in VOCABULARY.items()},
            "default_graph": "http://x",
            "snapshot": "x",
            "keep_literals": False,
            "keep_user": True,
            "keep_notable_types": True,
            "keep_inverses": True,
        }.items()
    ),
    ("llm=endpoint", "llm.model", "other"),
    ("llm=endpoint", "llm.extra_body", {"top_k": 3}),
    ("llm=endpoint", "llm.max_new_tokens", 7),
    ("llm=endpoint llm.extra_body={top_k:1}", "llm.extra_body.top_k", 3),
    ("llm=endpoint", "llm.roles", {"parog.plan": {"model": "planner"}}),
    ("llm=endpoint", "llm.approximate_choices", True),
    ("llm=endpoint", "llm.prompt_style", "inputs_only"),
    *(
        (SERVE, f"llm.{key}", value)
        for key, value in {
            "model": "other",
            "adapter": "planner",
            "dtype": "float16",
            "max_model_len": 7,
            "engine_kwargs": {"quantization": "fp8"},
            "extra_body": {"top_k": 3},
            "max_new_tokens": 7,
            "approximate_choices": True,
            "roles": {"parog.plan": {"adapter": "planner"}},
            "prompt_style": "inputs_only",
        }.items()
    ),
    ("llm=oracle", "llm.error_rate", 0.5),
    ("llm=oracle llm.roles={parog.plan:{error_rate:1}}", "llm.roles.parog.plan.error_rate", 0.5),
    ("llm=oracle llm.roles={srp.judge:{prompt_style:full}}", "llm.roles.srp.judge.prompt_style", "inputs_only"),
]


def test_the_digest_does_not_depend_on_the_order_of_keys() -> None:
    composed = config.compose([])
    assert list(reordered(composed)) != list(composed)
    assert config.identity_hash(reordered(composed)) == config.identity_hash(composed)
    assert config.drift(composed, reordered(composed)) == []
    assert config.identity_hash(config.compose([])) == config.identity_hash(composed)


@pytest.mark.parametrize(("words", "key", "value"), RUNTIME)
def test_a_runtime_only_key_is_no_drift(words: str, key: str, value: object) -> None:
    composed = config.compose(words.split())
    assert key in dict(config.flatten(composed))
    other = changed(composed, key, value)
    assert other != composed
    assert config.drift(composed, other) == []
    assert config.identity_hash(other) == config.identity_hash(composed)


@pytest.mark.parametrize(("words", "key", "value"), COMPUTED)
def test_any_other_key_is_drift(words: str, key: str, value: object) -> None:
    composed = config.compose(words.split())
    assert key in dict(config.flatten(composed))
    other = changed(composed, key, value)
    lines = config.drift(composed, other)
    assert lines
    assert all(line.startswith(key) and " → " in line for line in lines)
    assert config.identity_hash(other) != config.identity_hash(composed)


def test_every_key_of_a_server_is_in_one_of_the_two_lists() -> None:
    """A new key has to be added to one of the two lists above."""
    for words in ("kg=sparql", "llm=endpoint", SERVE):
        section = words.partition("=")[0]
        composed = config.compose(words.split())[section]
        parts = composed.pop("vocabulary", {})
        keys = {f"{section}.{key}" for key in (*composed, *(f"vocabulary.{part}" for part in parts))}
        keys -= {f"{section}._target_", f"{section}.vocabulary._target_"}
        assert keys == {key for used, key, _ in (*RUNTIME, *COMPUTED) if used == words}


@dataclass(frozen=True, kw_only=True)
class OwnGraph:
    """A user's component, which marks one key."""

    dialect: str = "plain"
    workers: Annotated[int, RUNTIME_ONLY] = 1


def test_a_users_component_marks_its_runtime_only_keys_itself() -> None:
    graph = {"_target_": f"{__name__}.OwnGraph", "dialect": "plain", "workers": 1}
    composed = {**config.compose([]), "kg": graph}
    assert config.drift(composed, changed(composed, "kg.workers", 2)) == []
    assert config.drift(composed, changed(composed, "kg.dialect", "other")) == ["kg.dialect: plain → other"]


def test_every_key_of_a_class_that_cannot_be_imported_decides_the_results() -> None:
    composed = config.compose([])
    composed["kg"]["_target_"] = "nowhere.Graph"
    assert config.drift(composed, changed(composed, "kg.cache_size", 5)) == ["kg.cache_size: 200000 → 5"]


def test_another_engine_with_the_same_shard_size_is_no_drift() -> None:
    assert config.drift(config.compose([]), config.compose(["engine=ray"])) == []


def test_drift_names_old_and_new_values_and_keys_of_only_one() -> None:
    old, new = config.compose(["llm=similarity"]), config.compose(["llm=oracle", "method.retries=1"])
    assert config.drift(old, new) == [
        "llm._target_: pipeline.simulation.similarity.Similarity → pipeline.simulation.oracle.Oracle",
        "method.max_edits: 3 → 1",
        "method.retries: 3 → 1",
    ]


def test_interpolation_does_not_depend_on_the_order_of_overrides() -> None:
    for words in (["dataset=metaqa", "dataset.path=/a", "dataset.hops=2"], ["dataset.hops=2", "dataset.path=/a"]):
        composed = config.compose(["dataset=metaqa", *words])
        assert composed["dataset"]["name"] == "metaqa-2hop"
        assert composed["kg"]["dataset"] == composed["dataset"]
    assert config.compose(["method.beam_width=5"])["method"]["relation_top_k"] == 5
    assert config.compose(["run.dir=${dataset.name}"])["run"]["dir"] == "synthetic"


def test_the_chosen_files_are_recorded() -> None:
    choices = config.compose(["llm=oracle", "experiment=readi"])["choices"]
    assert {"method": "srp", "llm": "oracle", "experiment": "readi", "kg": "embedded"}.items() <= choices.items()


def test_flatten_keeps_empty_sections_as_leaves() -> None:
    assert dict(config.flatten({"a": {"b": 1, "c": {}}, "d": [2]})) == {"a.b": 1, "a.c": {}, "d": [2]}


def test_a_section_is_built_from_the_inside_out() -> None:
    graph = config.build("kg", config.compose(["dataset.triples=3000"]))
    assert graph.dataset.size == 3000


def test_a_component_never_sees_the_runners_own_keys() -> None:
    composed = config.compose(["method=cot", "dataset.strict=true"])
    config.check(composed)
    assert not hasattr(config.build("method", composed), "beam_width")
    assert not hasattr(config.build("dataset", composed), "strict")


def test_a_component_may_be_any_class_that_accepts_the_keys() -> None:
    plain = {"kg": {"_target_": "builtins.dict", "a": 1, "b": {"_target_": "builtins.list"}}}
    assert config.build("kg", plain) == {"a": 1, "b": []}
    with pytest.raises(UserError, match=r"unknown key 'kg\.a': builtins\.list has no parameter 'a'\.$"):
        config.build("kg", {"kg": {"_target_": "builtins.list", "a": 1}})
    with pytest.raises(UserError, match=r"keys of kg are not those of its _target_ datetime\.timedelta"):
        config.build("kg", {"kg": {"_target_": "datetime.timedelta", "days": "one"}})
    with pytest.raises(UserError, match=r"kg\._target_ must be given"):
        config.build("kg", {"kg": {"a": 1}})


def test_a_missing_key_of_a_component_is_named() -> None:
    composed = config.compose(["dataset=metaqa", "dataset.path=/data"])
    del composed["dataset"]["path"]
    with pytest.raises(UserError, match=r"^dataset\.path must be given, as in dataset\.path=…$"):
        config.build("dataset", composed)


def test_a_wrong_key_of_hydra_is_explained_by_hydra() -> None:
    with pytest.raises(UserError, match=r"Could not override 'hydra\.nothing'"):
        config.compose(["hydra.nothing=1"])


@pytest.mark.parametrize("word", ["hydra.searchpath=3", "method=null"])
def test_an_override_that_hydra_cannot_compose_is_a_user_error(word: str) -> None:
    with pytest.raises(UserError, match=r"must be a|there is no method=null"):
        config.compose([word])


def test_a_wrong_value_inside_a_union_is_named_by_its_keys() -> None:
    section = {"_target_": f"{__name__}.Unions", "either": {"values": [1, "x"]}}
    with pytest.raises(UserError, match=r"^kg\.either\.values\.1='x' is wrong: input should be a valid integer"):
        config.build("kg", {"kg": section})
    with pytest.raises(UserError, match=r"^kg\.either=1 is wrong: input should be a valid dictionary or "):
        config.build("kg", {"kg": {**section, "either": 1}})
    with pytest.raises(UserError, match=r"^kg: it is empty$"):
        config.build("kg", {"kg": {**section, "either": {}}})


def test_a_user_can_add_groups(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "short.yaml").write_text("# @package _global_\nmethod: {depth: 2}\n")
    search = f"hydra.searchpath=[file://{tmp_path}]"
    assert config.compose([search, "experiment=short"])["method"]["max_path_len"] == 2
    with pytest.raises(UserError, match="Did you mean 'short'"):
        config.compose([search, "experiment=shrt"])


WRONG_FILES = [
    ("a: 1\nb: [50\nc: 1\n", ", line 3: expected ',' or ']', but got ':' (while parsing a flow sequence, line 2)"),
    ("a: 1\n\tb: 1\n", ", line 2: found character '\\t' that cannot start any token"),
    ("a: 1\na: 2\n", ", line 2: found duplicate key a (while constructing a mapping, line 1)"),
    ("a: 1\nb: x\x07\n", ", line 2: special characters are not allowed"),
    (b"a: caf\xe9\n", " is not UTF-8: invalid continuation byte b'\\xe9'"),
    ("- a\n- b\n", " holds a list instead of keys"),
    ("5", ": it holds a number instead of keys"),
]
"""Contents of a configuration file, and what is said about them after the name of the file."""


@pytest.mark.parametrize(("content", "said"), WRONG_FILES)
@pytest.mark.parametrize(
    "words",
    [
        "evaluate",
        "evaluate --help",
        "doctor",
        "sweep llm=oracle,similarity",
        "evaluate method.depth=2",
    ],
)
def test_a_file_of_the_user_that_is_wrong_is_named_with_its_line(
    content: str | bytes, said: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "method" / "mine.yaml"
    file.parent.mkdir()
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "method" / "another.yaml").write_text("[\n")
    assert main([*words.split(), "method=mine", "--config-dir", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"kgqa: {file}{said}\n"


@pytest.mark.parametrize("section", ["method", "llm", "dataset", "kg", "retrieval"])
@pytest.mark.parametrize("content", ["", "beam_width: 3\n", "name: ???\n"])
def test_a_section_without_a_class_is_refused_for_that(section: str, content: str, tmp_path: Path) -> None:
    (tmp_path / section).mkdir()
    (tmp_path / section / "mine.yaml").write_text(content)
    with pytest.raises(UserError, match=f"^{section}._target_ must be given: the class that the section configures$"):
        config.check(config.compose([f"hydra.searchpath=[file://{tmp_path}]", f"{section}=mine"]))


def test_help_names_a_file_that_is_wrong_though_it_is_not_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "conf" / "method" / "mine.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("a: [")
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", "--help"]) == 2
    assert capsys.readouterr().err.startswith(f"kgqa: {file}, line 1: ")


def test_completion_prints_nothing_about_a_file_that_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "conf" / "method").mkdir(parents=True)
    (tmp_path / "conf" / "method" / "mine.yaml").write_text("a: [")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMP_LINE", "kgqa evaluate method=mine method.a")
    assert main(["--shell-completion", "query=bash"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "words",
    [
        "method=arg llm=oracle method.depth=2 run.dir='a folder'",
        "method.depth=2 method=srp +llm.new=3 ~method.retries",
        "experiment=arg_wide run.limit=3 run={limit: 5}",
        "kg=sparql kg/vocabulary=wikidata kg.endpoints=[http://a:1/x] llm.roles={srp.plan: {a: 1.0}}",
        "method.depth=1,2",
        "method.dpth=1",
        "method=none method.depth=1",
        "run.limit",
    ],
)
def test_choices_that_are_composed_once_give_what_hydra_gives(words: str) -> None:
    overrides = re.split(r" (?=[\w+~/.]+=)", words)

    def outcome(compose: Callable[..., Any]) -> Any:
        try:
            composed, choices = compose(overrides, "config")
        except composition.HYDRA_ERRORS as error:
            return type(error), str(error)
        return OmegaConf.to_yaml(composed), OmegaConf.is_struct(composed), choices

    with hydra.initialize_config_dir(str(config.conf_dir()), version_base="1.3"):
        expected = outcome(composition._compose_anew)
    assert outcome(composition._compose_by_hydra) == expected
    assert outcome(composition._compose_by_hydra) == expected, "the first one changed nothing that is kept"


def test_a_file_of_the_project_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    composition._composed_choices.cache_clear()
    config.compose(["method=tog"])
    read: list[str] = []

    def load(file: Any) -> Any:
        read.append(Path(file.name).name)
        return loaded(file)

    loaded = OmegaConf.load
    monkeypatch.setattr(OmegaConf, "load", load)
    config.compose(["method=tog", "engine=ray"])
    assert set(read) <= {"ray.yaml"}


def test_a_group_of_the_user_may_be_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sizes").mkdir()
    (tmp_path / "sizes/small.yaml").write_text("questions: 7\n")
    monkeypatch.setenv("KGQA_CONF", str(tmp_path))
    composed = config.compose(["+sizes=small", "+sizes.more=1", "run.limit=${sizes.questions}"])
    assert composed["run"]["limit"] == 7
    with pytest.raises(UserError, match=r"unknown key 'other'"):
        config.compose(["+sizes=small", "+other=1"])


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("method/tog.yaml", ["method=tog", "method.mine=3"]),
        ("method/tog.yaml", ["method=mine"]),
        ("kg/vocabulary/rdfs.yaml", ["kg=sparql", "kg.endpoints=[http://x]", "kg/vocabulary=rdfs"]),
        ("llm/oracle.yaml", []),
    ],
)
@pytest.mark.parametrize("by_search_path", [False, True])
def test_a_choice_that_one_of_the_project_hides_is_refused(
    file: str, words: list[str], *, by_search_path: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_search_path:
        words = [*words, f"hydra.searchpath=[file://{tmp_path}]"]
    else:
        monkeypatch.setenv("KGQA_CONF", str(tmp_path))
    own = tmp_path / file
    own.parent.mkdir(parents=True)
    (tmp_path / "method").mkdir(exist_ok=True)
    (tmp_path / "method" / "mine.yaml").write_text("defaults: [tog]\n")
    own.write_text("mine: 1\n")
    group, choice = own.relative_to(tmp_path).parent, own.stem
    with pytest.raises(UserError, match=f"^{own} cannot be chosen, .* and choose {group}=my_{choice}"):
        config.compose(words)
    config.compose([word for word in words if word.startswith("hydra.")], name="ls")  # which makes no such choice
    own.write_bytes((config.conf_dir() / file).read_bytes())
    config.compose([word for word in words if word != "method.mine=3"])  # an equal copy does no harm


def test_choices_of_the_user_are_read_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "conf" / "method" / "mine.yaml"
    file.parent.mkdir(parents=True)
    for folder, words in ((tmp_path, []), (Path.cwd(), [f"hydra.searchpath=[file://{tmp_path}/conf]"])):
        monkeypatch.chdir(folder)
        for depth in (1, 2):
            file.write_text(f"_target_: pipeline.methods.cot.CoT\nname: mine\ndepth: {depth}\n")
            assert config.compose([*words, "method=mine"])["method"]["depth"] == depth


def test_equal_numbers_are_the_same_value_of_a_key() -> None:
    keys = {"temperature": 0.0, "widths": [1.0, 2.5], "name": "0.0", "exact": True}
    assert config.canonical(keys) == '{"exact": true, "name": "0.0", "temperature": 0, "widths": [1, 2.5]}'
