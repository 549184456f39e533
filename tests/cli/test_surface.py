"""The command line as a whole: its overview, its help, and that every choice can be built."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from pipeline import config
from pipeline.cli.commands import COMMANDS, SECTIONS
from pipeline.errors import UserError
from tests.cli.support import Kgqa
from tests.support import KGQA, sampled

CONF = config.conf_dir()
JOBS = Path(__file__).resolve().parents[2] / "jobs"
GROUPS = {
    "dataset": "custom cwq grailqa grbench metaqa rog synthetic webqsp",
    "engine": "local ray",
    "evaluation": "default",
    "experiment": (
        "arg arg_depth_1 arg_depth_2 arg_depth_3 arg_depth_4 arg_exhaustive arg_hard_scores arg_no_hypo "
        "arg_no_naive_retriever arg_prompted arg_released arg_token_no_rationality arg_token_no_relevance "
        "arg_token_no_relevance_rationality arg_token_no_sequence arg_token_no_utility arg_token_sequence "
        "arg_token_utility arg_top_3 arg_wide arg_width_1 arg_width_5 cot cot_self_consistency "
        "dog dog_gold dog_no_debate dog_wide graph_cot none parog "
        "parog_always_refined parog_error_correction "
        "parog_no_planner parog_no_refinement parog_per_entity parog_prior_only parog_prompted_planner "
        "parog_split_refine parog_topic_starts "
        "pog pog_batched pog_compat pog_depth_3 pog_evidence pog_fixed_width pog_no_guidance pog_no_memory "
        "pog_no_reflection pog_wide "
        "r3 r3_gold r3_memory r3_memory_reflection r3_reflection "
        "rag_1_hop rag_2_hop rag_2_hop_compat rag_no_graph rag_text readi "
        "rog rog_gold rog_listed rog_no_planning rog_no_reasoning rog_random_plans rog_sampled rog_vote srp "
        "srp_no_reference srp_no_reflection srp_no_relation_check srp_random_reference srp_references_everywhere "
        "srp_structural tog tog_bm25 tog_compat tog_encoder tog_wide"
    ),
    "kg": "embedded grbench sparql subgraph",
    "llm": "embedded endpoint oracle replay serve similarity teacher",
    "method": "arg cot dog parog pog r3 rag rog srp tog",
    "retrieval": "dense lexical published",
}
CHOICES = [f"{group}={choice}" for group, choices in GROUPS.items() for choice in choices.split()]
NEEDS = {"kg=grbench": ["dataset=grbench"], "kg=subgraph": ["dataset=rog"]}
"""Graphs that need a certain dataset."""

GROUPS_OF_COMMANDS = {
    **{name: set(GROUPS) for name in ("doctor", "estimate", "evaluate", "sweep", "ablations", "reproduce")},
    **{name: set(GROUPS) for name in ("build-references", "collect arg", "collect parog", "collect rog")},
    "score": {"dataset", "evaluation", "kg"},
    "graph load": {"dataset", "kg"},
    "graph serve": {"dataset", "kg"},
    "llm serve": {"llm"},
    "collect corrections": {"llm"},
    "init-model": {"dataset"},
}
"""The groups of each command; other commands have none."""


def test_the_sections_of_the_overview() -> None:
    assert {section: list(commands) for section, commands in SECTIONS.items()} == {
        "Run": ["doctor", "estimate", "evaluate", "sweep", "ablations", "reproduce"],
        "Look at results": ["ls", "compare", "show", "view", "losses", "score", "report", "export"],
        "Data and graphs": ["graph load", "graph serve", "build-references"],
        "Models": ["llm serve", "init-model"],
        "Training": [
            "collect arg",
            "collect parog",
            "collect rog",
            "collect calls",
            "collect corrections",
            "train arg",
            "train parog",
            "train rog",
            "train improve",
            "train bundled-model",
        ],
        "Tools": ["capacity", "benchmark"],
    }


def test_help_with_a_command_is_the_help_of_that_command(kgqa: Kgqa) -> None:
    assert kgqa("help", "evaluate").out == kgqa("evaluate", "--help").out


@pytest.mark.parametrize("words", ["", "--help", "-h", "help"])
def test_help_lists_the_commands(words: str, kgqa: Kgqa) -> None:
    shown = kgqa(*words.split())
    assert (shown.code, shown.err) == (0, "")
    for name, command in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(command.purpose)}$", shown.out, re.MULTILINE)
    assert max(map(len, shown.out.splitlines())) <= 110


def test_the_version(kgqa: Kgqa) -> None:
    assert kgqa("--version").out.strip() == version("kgqa-pipeline")


@pytest.mark.parametrize("command", sampled(COMMANDS, every=8))
@pytest.mark.parametrize("word", ["--help", "-h"])
def test_a_commands_help_lists_its_groups_and_no_other(command: str, word: str, kgqa: Kgqa) -> None:
    shown = kgqa(*command.split(), word)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith(f"usage: kgqa {command} ")
    groups = GROUPS_OF_COMMANDS.get(command, set())
    for group, choices in GROUPS.items():
        _, found, rest = shown.out.partition(f"\n  {group}=  ")
        assert bool(found) == (group in groups)
        if found:
            block = rest.partition("\n\n")[0]
            names = " ".join(re.findall(r"^ {6}(\S.*)$", block, re.MULTILINE))  # many choices have no explanation
            listed = re.findall(r"^    [* ] (\w+) ", block, re.MULTILINE) or re.findall(r"\w+", names)
            assert listed == choices.split()
    assert ("json=true" in shown.out) == COMMANDS[command].prints_figures


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.words == "required"])
def test_a_command_without_the_words_that_it_needs_fails(name: str, kgqa: Kgqa) -> None:
    """Such as `kgqa losses $RUN` in a script in which RUN is empty."""
    shown = kgqa(*name.split())
    assert (shown.code, shown.out) == (2, "")
    assert re.fullmatch(f"name what to (read|measure): kgqa {name} .+", shown.sentence)


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("graph", ["load", "serve"]),
        ("llm", ["serve"]),
        ("collect", ["arg", "parog", "rog", "calls"]),
        ("train", ["arg", "parog", "bundled-model"]),
        ("benchmark", ["overhead", "traces"]),
    ],
)
def test_the_first_word_alone_lists_its_commands(command: str, names: list[str], kgqa: Kgqa) -> None:
    shown = kgqa(command, "--help")
    assert shown.code == 0
    assert all(name in shown.out for name in names)


@pytest.mark.exhaustive
@pytest.mark.parametrize("command", ["evaluate", "sweep"])
def test_the_help_of_a_run_has_the_keys_of_the_groups_that_are_named(command: str, kgqa: Kgqa) -> None:
    short = kgqa(command, "--help").out
    assert "run.limit=null" in short
    assert "budget.max_llm_calls=auto" in short
    assert "method.depth" not in short
    assert "The keys of kg, dataset, retrieval, method, llm, engine, evaluation are listed when" in " ".join(
        short.split()
    )
    for word in ("method=srp", "method.depth=2", "++method.depth=2"):
        assert re.search(r"^  method.depth=\d$", kgqa(command, word, "--help").out, re.MULTILINE)
    assert re.search(r"^ +arg_wide +ArG without cut-offs", kgqa(command, "experiment=cot", "--help").out, re.MULTILINE)
    every = [f"{group}={choice}" for group, choice in config.compose([])["choices"].items()]
    whole = kgqa(command, *every, "--help").out
    assert "are listed when" not in whole
    assert len(short) < len(whole) / 2


def test_the_help_of_a_command_with_few_groups_has_all_keys(kgqa: Kgqa) -> None:
    assert "llm.replicas=" in kgqa("llm", "serve", "--help").out


def test_help_follows_the_overrides(kgqa: Kgqa) -> None:
    assert "llm.breaker_reset_s=5" in kgqa("evaluate", "llm=endpoint", "--help").out
    assert "breaker_reset_s" not in kgqa("evaluate", "--help").out


def test_a_closed_pipe_ends_the_command_silently(environment: dict[str, str]) -> None:
    help = [*KGQA, "evaluate", "--help"]
    with subprocess.Popen(help, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait() == 141


def test_the_groups_are_those_of_the_folder() -> None:
    folders = {path.name: path for path in CONF.iterdir() if path.is_dir()}
    found = {name: " ".join(sorted(file.stem for file in path.glob("*.yaml"))) for name, path in folders.items()}
    assert found == GROUPS


@pytest.mark.parametrize("choice", sampled(CHOICES, every=8))
def test_every_choice_composes_and_builds(choice: str) -> None:
    words = [choice, *NEEDS.get(choice, ())]
    try:
        composed = config.compose(words)
    except UserError as error:
        missing, _, _ = str(error).partition(" must be given")
        composed = config.compose([*words, *(f"{key}=/data" for key in missing.split(", "))])
    config.check(composed)


def test_every_command_has_a_script() -> None:
    scripts = {path.stem.replace("_", "-"): path.read_text() for path in JOBS.glob("*.py")}
    assert set(scripts) == {name.split()[0] for name in COMMANDS}
    for name, text in scripts.items():
        assert f'main(["{name}", *sys.argv[1:]])' in text


def test_a_script_runs_from_a_checkout_that_is_not_installed(environment: dict[str, str], tmp_path: Path) -> None:
    """As `ray job submit -- python jobs/evaluate.py` does; the siblings of the script hide no installed package."""
    bare = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    words = ["dataset.triples=2000", "run.limit=4", "run.dir=run", "evaluation.bootstrap_resamples=100", "json=true"]
    command = [sys.executable, str(JOBS / "evaluate.py"), *words]
    ended = subprocess.run(command, env=bare, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["points"][0]["questions"] == 4
