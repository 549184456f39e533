"""The command line as a whole: what it lists, that every key is explained, and that every choice can be built."""

from __future__ import annotations

import re
import subprocess
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

import pytest

from jobs.cli import COMMANDS
from pipeline import config
from pipeline.errors import UserError
from tests.jobs.support import Kgqa
from tests.support import KGQA

CONF = config.conf_dir()
GROUPS = {
    "dataset": "custom cwq grailqa grbench metaqa rog sample webqsp",
    "engine": "local ray",
    "evaluation": "default",
    "experiment": (
        "arg arg_depth_1 arg_depth_2 arg_depth_3 arg_exhaustive arg_hard_scores arg_no_hypo arg_no_naive_retriever "
        "arg_prompted arg_released arg_token_no_rationality arg_token_no_relevance "
        "arg_token_no_relevance_rationality arg_token_no_sequence arg_token_no_utility arg_token_utility arg_top_3 "
        "arg_wide arg_width_1 arg_width_5 cot cot_self_consistency graph_cot none parog parog_always_refined "
        "parog_no_planner parog_no_refinement parog_per_entity parog_prior_only parog_prompted_planner "
        "parog_split_refine parog_topic_starts r3 r3_gold r3_memory r3_memory_reflection r3_reflection readi srp "
        "srp_no_reference srp_no_reflection srp_no_relation_check srp_random_reference srp_references_everywhere "
        "srp_structural tog tog_bm25 tog_compat tog_encoder tog_wide"
    ),
    "kg": "embedded grbench sparql subgraph",
    "llm": "embedded endpoint oracle replay serve similarity",
    "method": "arg cot parog r3 srp tog",
    "retrieval": "dense lexical",
}
CHOICES = [f"{group}={choice}" for group, choices in GROUPS.items() for choice in choices.split()]
NEEDS = {"kg=grbench": ["dataset=grbench"], "kg=subgraph": ["dataset=rog"]}
"""Graphs that only some datasets bring."""

HELP = {
    "doctor": set(GROUPS),
    "estimate": set(GROUPS),
    "evaluate": set(GROUPS),
    "sweep": set(GROUPS),
    "ablations": set(GROUPS),
    "reproduce": set(GROUPS),
    "compare": set(),
    "score": {"dataset", "evaluation", "kg"},
    "simulate": set(),
    "references": set(GROUPS),
    "collect arg": set(GROUPS),
    "collect calls": set(),
    "collect parog": set(GROUPS),
    "graph load": {"dataset", "kg"},
    "graph serve": {"dataset", "kg"},
    "llm make": {"dataset"},
    "llm serve": {"llm"},
    "train arg": set(),
    "train parog": set(),
    "train resident": set(),
}
"""The groups that each command has."""


def test_the_commands() -> None:
    assert list(COMMANDS) == [
        *(
            "doctor",
            "estimate",
            "evaluate",
            "sweep",
            "ablations",
            "reproduce",
            "compare",
            "score",
            "report",
            "graph",
            "llm",
            "references",
            "collect",
            "train",
            "simulate",
            "benchmark",
        ),
    ]


@pytest.mark.parametrize("words", ["", "--help", "-h", "help"])
def test_help_lists_the_commands(words: str, kgqa: Kgqa) -> None:
    shown = kgqa(*words.split())
    assert (shown.code, shown.err) == (0, "")
    for command, (_, purpose) in COMMANDS.items():
        assert re.search(rf"^  {command} +{re.escape(purpose)}$", shown.out, re.MULTILINE)


def test_the_version(kgqa: Kgqa) -> None:
    assert kgqa("--version").out.strip() == version("kgqa-pipeline")


@pytest.mark.parametrize("command", HELP)
@pytest.mark.parametrize("word", ["--help", "-h"])
def test_a_commands_help_lists_its_groups_and_no_other(command: str, word: str, kgqa: Kgqa) -> None:
    shown = kgqa(*command.split(), word)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith(f"usage: kgqa {command}")
    for group, choices in GROUPS.items():
        assert (f"\n  {group}={'|'.join(choices.split())}\n" in shown.out) == (group in HELP[command])


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("graph", ["load", "serve"]),
        ("llm", ["make", "serve"]),
        ("train", ["arg", "parog", "resident"]),
        ("benchmark", ["overhead", "traces"]),
    ],
)
def test_the_help_of_commands_that_take_a_name(command: str, names: list[str], kgqa: Kgqa) -> None:
    shown = kgqa(command, "--help")
    assert shown.code == 0
    assert all(name in shown.out for name in names)


def test_help_follows_the_choices_beside_it(kgqa: Kgqa) -> None:
    assert "breaker_reset_s: 5" in kgqa("evaluate", "llm=endpoint", "--help").out
    assert "breaker_reset_s" not in kgqa("evaluate", "--help").out


def test_whoever_has_seen_enough_may_leave(environment: dict[str, str]) -> None:
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


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_composes_and_builds(choice: str) -> None:
    words = [choice, *NEEDS.get(choice, ())]
    try:
        composed = config.compose(words)
    except UserError as error:
        missing, _, _ = str(error).partition(" must be given")
        composed = config.compose([*words, *(f"{key}=/data" for key in missing.split(", "))])
    config.check(composed)


@pytest.mark.parametrize("file", sorted(CONF.rglob("*.yaml")), ids=lambda file: str(file.relative_to(CONF)))
def test_every_key_is_explained(file: Path) -> None:
    """On the line above or on its own; but `_target_`, headings and the list of defaults explain themselves.

    A preset says above all what it is; its keys are explained where the method has them.
    """
    lines = file.read_text().splitlines()
    assert lines[0].startswith("# ")
    if file.parent.name == "experiment":
        return
    for above, line in pairwise(lines):
        key = re.match(r"\s*(\w+):\s*(?!#)\S", line)
        if key and key[1] != "_target_" and " # " not in line:
            assert above.lstrip().startswith("# "), line
