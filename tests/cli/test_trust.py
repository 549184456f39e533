"""A run folder or a list of configurations that somebody sends makes no command run code, or give a key away."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline import config
from pipeline.errors import UserError
from tests.cli.conftest import FixedReply
from tests.cli.support import Kgqa
from tests.support import sampled

SENT: Mapping[str, Any] = {
    "evaluation.bootstrap_seed": {"_target_": "os.mkdir", "path": "made"},
    "method.x": {"_target_": "os.mkdir", "path": "made"},
    "method._target_": "sent_module.Made",
    "llm._target_": "sent_module.Made",
    "llm.roles": {"srp.judge": {"_target_": "sent_module.Made"}},
    "llm.simulators": ["sent_module"],
    "kg.dataset._target_": "sent_module.Made",
    "retrieval.encoder": {"_target_": "pipeline.retrieval.dense.DenseEncoder", "model": ".", "device": None},
    "engine.address": "ray://127.0.0.1:1",
}
"""Keys with a value that runs code: `sent_module` makes the folder `made` when it is imported."""


@pytest.fixture
def sent(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """`sent(key=value)` is the folder of a run with other keys in its `run.yaml`."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sent_module.py").write_text("import os\nos.mkdir('made')\nclass Made: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path / "path"))
    monkeypatch.delitem(__import__("sys").modules, "sent_module", raising=False)
    monkeypatch.chdir(tmp_path)

    def write(**keys: Any) -> Path:
        folder = Path("sent")
        shutil.copytree(finished, folder)
        saved = yaml.safe_load((folder / "run.yaml").read_text("utf-8"))
        for key, value in keys.items():
            *sections, name = key.split(".")
            section = saved["points"][0]["config"]
            for each in sections:
                section = section[each]
            section[name] = value
        (folder / "run.yaml").write_text(yaml.safe_dump(saved))
        return folder

    return write


READERS = ["report sent", "compare sent good", "score sent", "show sent synthetic-000000", "capacity sent"]


@pytest.mark.parametrize("key", sampled(SENT))
@pytest.mark.parametrize("command", [*READERS, "evaluate sent/run.yaml", "compare sent good noise.questions=2"])
def test_a_run_folder_runs_no_code(
    command: str, key: str, sent: Callable[..., Path], finished: Path, kgqa: Kgqa
) -> None:
    sent(**{key: SENT[key]})
    shutil.copytree(finished, "good")
    done = kgqa(*command.split())
    assert not Path("made").exists()
    assert done.code in (0, 2)
    if command.startswith("evaluate") or "noise" in command:
        assert "run.trust=true" in done.sentence or "is not the run.yaml of a run" in done.sentence


def test_a_trusted_run_folder_runs_its_code(sent: Callable[..., Path], kgqa: Kgqa) -> None:
    sent(**{"llm.simulators": ["sent_module"]})
    assert kgqa("evaluate", "sent/run.yaml", "run.trust=true", "run.restart=true").code == 0
    assert Path("made").is_dir()


def test_a_file_cannot_say_that_it_is_trusted(sent: Callable[..., Path], kgqa: Kgqa) -> None:
    sent(**{"run.trust": True, "llm.simulators": ["sent_module"]})
    assert "run.trust=true" in kgqa("evaluate", "sent/run.yaml").sentence
    Path("list.txt").write_text("llm.simulators=[sent_module] run.trust=true\n")
    assert "run.trust=true, which belongs on the command line" in kgqa("sweep", "list.txt").sentence
    assert not Path("made").exists()


def test_a_class_in_the_searched_configuration_needs_no_trust(sent: Callable[..., Path], kgqa: Kgqa) -> None:
    sent(**{"llm.simulators": ["sent_module"]})
    Path("mine/llm").mkdir(parents=True)
    Path("mine/llm/mine.yaml").write_text("simulators: [sent_module]\n")
    assert "run.trust=true" in kgqa("evaluate", "sent/run.yaml").sentence
    searched = f"hydra.searchpath=[file://{Path.cwd()}/mine]"
    assert kgqa("evaluate", "sent/run.yaml", searched, "run.restart=true").code == 0


@pytest.mark.parametrize("command", ["score sent", "report sent", "compare sent good"])
def test_no_variable_is_looked_up_for_a_run_folder(
    command: str, sent: Callable[..., Path], finished: Path, kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOKED_UP", "0.5")
    sent(**{"evaluation.confidence": "${oc.env:LOOKED_UP}"})
    shutil.copytree(finished, "good")
    assert "evaluation.confidence='${oc.env:LOOKED_UP}' is wrong" in kgqa(*command.split()).sentence


def test_score_reads_no_run_that_a_run_folder_names(sent: Callable[..., Path], kgqa: Kgqa) -> None:
    sent(**{"run.reuse": ["s3://somewhere/run"]})
    assert kgqa("score", "sent").code == 0


@pytest.mark.parametrize(
    "words",
    [
        "'+method.x={_target_: os.mkdir, path: made}'",
        "method._target_=sent_module.Made",
        "llm.simulators=[sent_module]",
        "hydra.searchpath=[file:///tmp]",
        "method=../../conf/method/srp",
        "dataset.name=${oc.env:HOME}",
        "'dataset.name=${oc.${dataset.split}:HOME}'",
    ],
)
@pytest.mark.parametrize("command", ["sweep", "estimate"])
def test_a_list_of_configurations_runs_no_code(command: str, words: str, sent: Callable[..., Path], kgqa: Kgqa) -> None:
    Path("list.txt").write_text(f"dataset.triples=2000 run.limit=2 {words}\n")
    assert "run.trust=true" in kgqa(command, "list.txt").sentence
    assert not Path("made").exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("run.limit", 10**30),
        ("engine.shard_size", 10**30),
        ("llm.roles", {"srp.judge": {"base_urls": 5}}),
        ("kg.endpoints", 5),
    ],
)
def test_a_value_of_another_form_is_one_sentence(key: str, value: Any, sent: Callable[..., Path], kgqa: Kgqa) -> None:
    sent(**{key: value})
    assert key in kgqa("evaluate", "sent/run.yaml").sentence


@pytest.mark.parametrize("words", ["~run", "run=5", "~engine"])
@pytest.mark.parametrize("command", ["sweep", "estimate"])
def test_a_list_without_a_section_is_one_sentence(command: str, words: str, kgqa: Kgqa) -> None:
    Path("list.txt").write_text(f"{words}\n")
    assert "it should be a section with keys of its own" in kgqa(command, "list.txt").sentence


class TestKeys:
    """A key goes to a server that the user has named."""

    @pytest.fixture(autouse=True)
    def _secret(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SECRET_KEY", "the-secret")

    @pytest.fixture
    def server(self, model_server: Callable[..., tuple[FixedReply, list[str]]]) -> tuple[FixedReply, list[str]]:
        model, words = model_server()
        return model, [*words, "llm.api_key_env=SECRET_KEY"]

    def test_a_run_yaml_sends_none(self, server: tuple[FixedReply, list[str]], evaluate: Kgqa, kgqa: Kgqa) -> None:
        model, words = server
        assert evaluate(*words).code == 0
        assert model.keys == {"Bearer the-secret"}
        model.keys.clear()
        shutil.rmtree("run/traces")
        shutil.copytree("run", "other")
        said = kgqa("evaluate", "run/run.yaml").sentence
        assert "would get the key in SECRET_KEY" in said
        assert model.keys == set()
        assert kgqa("evaluate", "run/run.yaml", "run.trust=true").code == 0
        assert model.keys == {"Bearer the-secret"}

    def test_comparing_sends_none(self, server: tuple[FixedReply, list[str]], evaluate: Kgqa, kgqa: Kgqa) -> None:
        model, words = server
        evaluate(*words)
        shutil.copytree("run", "other")
        model.keys.clear()
        assert "would get the key" in kgqa("compare", "run", "other", "noise.questions=2").sentence
        assert model.keys == set()
        assert kgqa("compare", "run", "other", "noise.questions=2", "run.trust=true").code == 0

    def test_collecting_corrections_sends_none(
        self, server: tuple[FixedReply, list[str]], evaluate: Kgqa, kgqa: Kgqa
    ) -> None:
        """It builds the components of the run, and follows the advice of its message."""
        model, words = server
        evaluate(*words)
        model.keys.clear()
        collect = ("collect", "corrections", "run", "output=corrections.jsonl", "material.allow_test_split=true")
        said = kgqa(*collect).sentence
        assert "would get the key" in said
        assert "add run.trust=true" in said
        assert model.keys == set()
        assert not Path("corrections.jsonl").exists()
        assert kgqa(*collect, "run.trust=true").code == 0

    def test_a_list_of_configurations_sends_none(self, server: tuple[FixedReply, list[str]], kgqa: Kgqa) -> None:
        model, words = server
        Path("list.txt").write_text(" ".join(words))
        assert "would get the key in SECRET_KEY" in kgqa("sweep", "list.txt", "run.limit=2").sentence
        assert model.keys == set()

    def test_the_command_line_names_the_server_of_a_list(
        self, server: tuple[FixedReply, list[str]], kgqa: Kgqa
    ) -> None:
        model, words = server
        Path("list.txt").write_text("method=cot\n")
        assert kgqa("sweep", "list.txt", "run.limit=2", "dataset.triples=2000", *words).code == 0
        assert model.keys == {"Bearer the-secret"}
        Path("list.txt").write_text("method=cot llm=endpoint\n")
        given = [word for word in words if word != "llm=endpoint"]
        assert kgqa("sweep", "list.txt", "run.limit=2", "dataset.triples=2000", "run.dir=other", *given).code == 0

    @pytest.mark.parametrize("engine", ["local", "ray"])
    @pytest.mark.parametrize("where", ["llm", "role"])
    def test_a_section_without_the_variable_sends_none(
        self, engine: str, where: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The variable then has its default, which the user did not name together with the server."""
        monkeypatch.setenv("OPENAI_API_KEY", "the-secret")
        sent = config.compose(["llm=endpoint", "llm.base_urls=[http://elsewhere/v1]", f"engine={engine}"])
        del sent["llm"]["api_key_env"]
        if where == "role":
            role = {name: sent["llm"][name] for name in ("_target_", "base_urls")}
            sent["llm"] = config.compose(["llm=oracle"])["llm"] | {"roles": {"srp.judge": role}}
        with pytest.raises(UserError, match=r"http://elsewhere/v1, which would get the key in OPENAI_API_KEY"):
            config.refuse_untrusted([sent], "run.yaml")
        config.refuse_untrusted([sent], "run.yaml", ["llm=endpoint", "llm.base_urls=[http://elsewhere/v1]"])

    @pytest.mark.parametrize(
        "word", ["llm.host=0.0.0.0", "llm.engine_kwargs={trust_remote_code: true}", "engine.address=ray://elsewhere:1"]
    )
    def test_a_served_model_opens_no_port_and_runs_no_code(self, word: str) -> None:
        serve = ["llm=serve", "llm.model=a-model", "engine=ray"]
        sent = config.compose([*serve, word])
        with pytest.raises(UserError, match=r"run\.trust=true"):
            config.refuse_untrusted([sent], "run.yaml", serve)
        config.refuse_untrusted([sent], "run.yaml", [*serve, word])
        config.refuse_untrusted([config.compose(serve)], "run.yaml")

    @pytest.mark.parametrize("section", ["llm", "kg"])
    def test_a_url_in_capitals(self, section: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "the-secret")
        monkeypatch.setenv("VIRTUOSO_USER", "me")
        words = ["kg=sparql", "kg.endpoints=[http://a]", "llm=endpoint", "llm.base_urls=[http://a]"]
        sent = config.compose(words)
        key = {"llm": "base_urls", "kg": "endpoints"}[section]
        sent[section] = sent[section] | {key: [" HTTPS://elsewhere/v1"]}
        with pytest.raises(UserError, match=r"would get the key in"):
            config.refuse_untrusted([sent], "run.yaml", words)

    def test_no_address_of_the_vocabulary_is_a_server(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("VIRTUOSO_USER", "me")
        words = ["kg=sparql", "kg.endpoints=[http://a]"]
        sent = config.compose([*words, "kg/vocabulary=wikidata", "kg.default_graph=http://dbpedia.org"])
        config.refuse_untrusted([sent], "run.yaml", words)
        sent["kg"] |= {"_target_": "mine.Client", "endpoints": [], "token_env": "VIRTUOSO_USER"}
        own = [*words, "kg._target_=mine.Client", "+kg.token_env=VIRTUOSO_USER", "kg.default_graph=http://dbpedia.org"]
        config.refuse_untrusted([sent], "run.yaml", own)

    @pytest.mark.parametrize(
        "servers",
        ["http://elsewhere/rest", {"reads": ["https://elsewhere/rest"]}, "bolt://elsewhere", " me@elsewhere:80?x"],
    )
    @pytest.mark.parametrize("section", ["kg", "llm", "dataset"])
    @pytest.mark.parametrize("nested", [False, True])
    def test_a_server_of_a_class_of_the_user(self, section: str, servers: Any, *, nested: bool, tmp_path: Path) -> None:
        """A foreign run.yaml names another server for a class that the user has made known."""
        own = tmp_path / section / "mine.yaml"
        own.parent.mkdir()
        secret = {"token_env": "SECRET_KEY"}
        known = {"_target_": "mine.Client", "hosts": "http://mine/rest", **({"account": secret} if nested else secret)}
        own.write_text(yaml.safe_dump(known))
        words = [f"hydra.searchpath=[file://{tmp_path}]"]
        resolved = config.compose([]) | {section: known}
        config.refuse_untrusted([resolved], "run.yaml", words)
        sent = resolved | {section: {**known, "hosts": servers}}
        with pytest.raises(UserError, match=r"elsewhere\S*, which would get the key in SECRET_KEY"):
            config.refuse_untrusted([sent], "run.yaml", words)

    def test_an_account_of_a_graph_server(self, monkeypatch: pytest.MonkeyPatch) -> None:
        resolved = config.compose(["kg=sparql", "kg.endpoints=[http://elsewhere/sparql]"])
        config.refuse_untrusted([resolved], "run.yaml")
        monkeypatch.setenv("VIRTUOSO_PASSWORD", "the-secret")
        with pytest.raises(Exception, match=r"http://elsewhere/sparql, which would get the key in VIRTUOSO_PASSWORD"):
            config.refuse_untrusted([resolved], "run.yaml")
        config.refuse_untrusted([resolved], "list.txt", ["kg=sparql", "kg.endpoints=[http://elsewhere/sparql]"])


@pytest.mark.parametrize(
    ("command", "run"),
    [
        (("estimate", "method=srp", "estimate.tokens_per_s_per_gpu=100", "estimate.questions=4"), "runs/r-sample"),
        (("collect", "rog", "output=rows.jsonl", "dataset.split=train", "run.limit=4"), "runs/r"),
        (("collect", "arg", "output=texts.jsonl", "dataset.split=train", "run.limit=8"), "runs/r"),
        (("collect", "parog", "output=pairs.jsonl", "dataset.split=train", "run.limit=8"), "runs/r"),
    ],
    ids=["estimate", "collect rog", "collect arg", "collect parog"],
)
def test_the_runs_of_other_commands_of_the_project_need_no_trust(
    command: tuple[str, ...], run: str, kgqa: Kgqa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kgqa ls` names their `run.yaml`, as that of any other run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "other.yaml").write_text("a: 1\n---\nb: 2\n")  # not read: it is no choice of a group
    assert kgqa(*command, "llm=oracle", "dataset.triples=2000", "run.dir=runs/r").code == 0
    again = kgqa("evaluate", f"{run}/run.yaml")
    assert (again.code, "nothing to run" in again.err) == (0, True), again.err
