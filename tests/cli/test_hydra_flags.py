"""The flags of Hydra that `kgqa` takes: they mean what they mean in any program that uses Hydra."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from pipeline import config
from pipeline.cli.commands import COMMANDS
from pipeline.cli.hydra_flags import take
from tests.cli.conftest import WORLD
from tests.cli.support import Kgqa
from tests.support import KGQA, METHODS, sampled


def test_cfg_prints_the_composed_configuration_and_runs_nothing(kgqa: Kgqa, tmp_path: Path) -> None:
    shown = kgqa("evaluate", "method=cot", "--cfg", "job", "run.limit=3")
    assert (shown.code, shown.err) == (0, "")
    printed = yaml.safe_load(shown.out)
    assert printed["kg"]["dataset"] == "${dataset}"
    assert (printed["run"]["limit"], printed["method"]["name"]) == (3, "cot")
    assert list(tmp_path.iterdir()) == []


def test_resolve_replaces_references_to_other_keys(kgqa: Kgqa) -> None:
    words = ("method=srp", "llm=oracle", "run.limit=3")
    printed = yaml.safe_load(kgqa("evaluate", *words, "--cfg", "job", "--resolve").out)
    composed = config.compose(words)
    del composed["choices"]
    assert printed == composed


def test_hydra_help_lists_the_flags_that_are_taken(kgqa: Kgqa) -> None:
    shown = kgqa("evaluate", "--hydra-help")
    assert (shown.code, shown.err) == (0, "")
    flags = set(re.findall(r"--[a-z-]+", shown.out)) - {"--help", "--shell-completion"}
    assert {"--cfg", "--info", "--multirun", "--config-dir"} <= flags
    values = {
        "--cfg": ["job"],
        "--config-dir": ["."],
        "--package": ["run", "--cfg", "job"],
        "--resolve": ["--cfg", "job"],
    }
    for flag in flags:
        _, rest = take([flag, *values.get(flag, ())], COMMANDS["evaluate"])
        assert [word for word in rest if not word.startswith("hydra.searchpath=")] == []


def test_package_prints_a_part(kgqa: Kgqa) -> None:
    shown = kgqa("evaluate", "--cfg=job", "--package", "engine", "engine.concurrency=7").out
    assert shown.startswith("# @package engine\n")
    assert yaml.safe_load(shown)["concurrency"] == 7
    assert kgqa("evaluate", "-c", "job", "-p", "engine.concurrency", "engine.concurrency=9").out == "9\n"


def test_cfg_also_prints_the_keys_of_hydra(kgqa: Kgqa) -> None:
    assert set(yaml.safe_load(kgqa("evaluate", "--cfg", "hydra").out)) == {"hydra"}
    assert {"hydra", "run", "kg"} < set(yaml.safe_load(kgqa("evaluate", "--cfg", "all").out))


def test_a_missing_value_is_printed_as_such(kgqa: Kgqa) -> None:
    printed = yaml.safe_load(kgqa("evaluate", "--cfg", "job", "dataset=metaqa").out)
    assert printed["dataset"]["path"] == "???"


@pytest.mark.parametrize(
    ("command", "key"), [("report", "output"), ("compare", "correction"), ("graph load", "target"), ("sweep", "method")]
)
def test_every_command_prints_its_own_configuration(command: str, key: str, kgqa: Kgqa) -> None:
    assert key in yaml.safe_load(kgqa(*command.split(), "--cfg", "job").out)


@pytest.mark.parametrize(
    ("what", "found"), sampled([("searchpath", "mine"), ("defaults", "method/srp"), ("", "Hydra 1")])
)
def test_info(what: str, found: str, environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    words = ["--config-dir", "mine", *filter(None, ["--info", what])]
    run = [*KGQA, "evaluate", *words]
    ended = subprocess.run(run, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found in ended.stdout
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a choice of the user's own."""
    (tmp_path / "my conf" / "method").mkdir(parents=True)
    (tmp_path / "my conf" / "method" / "short.yaml").write_text("# A short one.\ndefaults:\n  - cot\n\nretries: 3\n")
    return tmp_path / "my conf"


def test_config_dir_adds_a_folder_of_choices(folder: Path, kgqa: Kgqa) -> None:
    run = kgqa("evaluate", *WORLD, "--config-dir", "my conf", "method=short", "run.dir=run")
    assert run.code == 0, run.err
    saved = yaml.safe_load(Path("run/run.yaml").read_text())
    assert saved["points"][0]["config"]["method"]["retries"] == 3
    assert re.search(r"^      short +A short one.$", kgqa("evaluate", f"--config-dir={folder}", "--help").out, re.M)
    assert kgqa("sweep", *WORLD, "method=short,cot", "-cd", str(folder), "run.dir=sweep", "json=true").code == 0


def test_config_dir_and_the_search_path_are_both_searched(folder: Path, kgqa: Kgqa, tmp_path: Path) -> None:
    (tmp_path / "second" / "method").mkdir(parents=True)
    (tmp_path / "second" / "method" / "long.yaml").write_text("# A long one.\ndefaults:\n  - cot\n")
    both = ("--config-dir", "my conf", f"hydra.searchpath=[file://{tmp_path}/second]", "-c", "job", "-p", "method.name")
    for method in ("short", "long"):
        assert kgqa("evaluate", f"method={method}", *both).out == "cot\n"


@pytest.mark.parametrize("flag", ["-m", "--multirun"])
def test_multirun_of_evaluate_is_a_sweep(flag: str, kgqa: Kgqa) -> None:
    shown = kgqa("evaluate", flag, *WORLD, "method=cot", "method.retries=0,1", "run.dir=run", "json=true")
    assert shown.code == 0, shown.err
    (run,) = json.loads(shown.out)["runs"]
    assert [point["overrides"][-2] for point in run["points"]] == ["method.retries=0", "method.retries=1"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("evaluate --cfg jobs", "argument --cfg/-c: invalid choice: 'jobs' (choose from"),
        ("evaluate --cfg", "argument --cfg/-c: expected one argument"),
        ("evaluate --cfg job --info", "argument --info/-i: not allowed with argument --cfg/-c"),
        ("evaluate --cfg job metod=srp", "unknown key 'metod'. Did you mean 'method'?"),
        ("evaluate --cfg job --resolve kg=grbench", "Interpolation key 'dataset.domain' not found"),
        ("evaluate --resolve", "--resolve and --package say how --cfg prints the configuration: add --cfg job"),
        ("evaluate --config-dir nowhere", "--config-dir=nowhere is not a folder"),
        (
            "evaluate --config-name mine.yaml",
            "--config-name=mine.yaml: a command has one configuration file. ",
        ),
        ("report -m runs/x", "kgqa report does not run several configurations: --multirun is for kgqa evaluate"),
        ("benchmark all --cfg job", "this command has no configuration: --cfg and --info have nothing to print"),
        ("report runs/x --verbose", "'--verbose' is not of the form key=value, and kgqa has no such flag."),
        (
            "sweep --limit 3",
            "'--limit' is not of the form key=value, and kgqa has no such flag. Did you mean run.limit=3?",
        ),
        *(
            (words, f"'{flag}' is not of the form key=value, and kgqa has no such flag. Did you mean {meant}?")
            for words, flag, meant in (
                ("ls --json", "--json", "json=true"),
                ("losses --json runs/x", "--json", "json=true"),
                ("losses runs/x --table t.csv", "--table", "table=t.csv"),
                ("show runs/x q1 --calls", "--calls", "calls=true"),
                ("benchmark graph --json", "--json", "json=true"),
            )
        ),
        ("view --json", "'--json' is not of the form key=value, and kgqa has no such flag."),
        ("--shell-completion install=tcsh", "--shell-completion: No completion plugin for 'tcsh' found"),
    ],
)
def test_mistakes(words: str, sentence: str, kgqa: Kgqa) -> None:
    assert kgqa(*words.split()).sentence.startswith(sentence)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell(shell: str, kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/bin/kgqa"])
    assert " kgqa " in kgqa("--shell-completion", f"install={shell}").out.replace("\n", " ") + " "


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("kgqa graph ", ["load", "serve"]),
        ("kgqa evaluate meth", ["method.", "method="]),
        (
            "kgqa evaluate method=",
            [f"method={name}" for name in METHODS],
        ),
        ("kgqa evaluate json=true method=cot method.de", ["method.depth="]),
        ("kgqa compare runs/a runs/b corr", ["correction="]),
        ("kgqa evaluate js", ["json=true"]),
        ("kgqa evaluate table=scores.csv llm=orac", ["llm=oracle"]),
        ("kgqa compare runs/a ta", ["table="]),
        ("kgqa estimate ta", []),
        ("kgqa evaluate --c", []),
        ("kgqa evaluate nonsense=[ ru", []),
        ("kgqa benchmark ", []),
    ],
)
def test_the_words_that_may_come_next(line: str, words: list[str], kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMP_LINE", line)
    shown = kgqa("-sc", "query=bash")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.split() == words


@pytest.mark.parametrize("line", ["kgqa ", "kgqa ev"])
def test_the_commands_come_first(line: str, kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMP_LINE", line)
    shown = kgqa("-sc", "query=fish").out.split()
    assert {"evaluate", "ls", "graph", "llm"} <= set(shown)
    assert "load" not in shown


def test_bash_completes_a_choice(environment: dict[str, str], tmp_path: Path) -> None:
    """The script that is installed, in a real shell."""
    kgqa = tmp_path / "kgqa"
    kgqa.write_text(f'#!/bin/sh\nexec {" ".join(KGQA)} "$@"\n')
    kgqa.chmod(0o755)
    script = subprocess.run([*KGQA, "-sc", "install=bash"], env=environment, capture_output=True, text=True, check=True)
    session = (
        f"{script.stdout}\nCOMP_LINE='kgqa evaluate llm=or' COMP_CWORD=2\n"
        'hydra_bash_completion; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    path = {**environment, "PATH": f"{tmp_path}:{environment['PATH']}"}
    ended = subprocess.run(["bash", "-c", session], env=path, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["llm=oracle"]


def test_only_what_the_command_takes_is_offered(kgqa: Kgqa, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMP_LINE", "kgqa ls ")
    offered = kgqa("--shell-completion", "query=bash").out.split()
    monkeypatch.setenv("COMP_LINE", "kgqa ls ")
    assert kgqa("--shell-completion", "query=fish").out.splitlines() == offered, "one on a line"
    assert "tag=" in offered
    assert not [each for each in offered if each.startswith(("method", "llm", "dataset"))]
