"""The commands of `kgqa`: what each one is for, how it is called, and which function runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

_RUN_OR_FILE = "[group=choice] [key=value] … | RUN/run.yaml"


@dataclass(frozen=True, slots=True)
class Command:
    """One command. Its function takes `Arguments` and returns an `Output`, or None when it has printed already."""

    function: str
    """`module:function`, in `pipeline.cli`; imported when the command is run."""
    purpose: str
    usage: str = "[group=choice] [key=value] …"
    """What follows the name of the command."""
    config_name: str | None = "config"
    """The file of `conf/` with its keys; None when it has none."""
    words: Literal["none", "optional", "required"] = "none"
    """Whether it takes words that are not `key=value`: run folders, files, names."""
    verb: str = "read"
    """What it does with the words that it requires."""
    prints_figures: bool = True
    """Whether it takes `json=true`; False for a command that runs until it is stopped."""
    writes_tables: bool = False
    """Whether it takes `table=FILE`."""
    extra: str | None = None
    """The extra that it always needs (`pipeline.extras`)."""
    resumes: bool = False
    """Whether the same command continues after it was stopped."""

    @property
    def output_keys(self) -> dict[str, bool | None]:
        """The keys that say how its output is written, with their values if they are not given."""
        return {
            **({"json": False} if self.prints_figures else {}),
            **({"table": None} if self.writes_tables else {}),
        }


SECTIONS: Mapping[str, Mapping[str, Command]] = {
    "Run": {
        "doctor": Command(
            "doctor:run",
            "check everything that a run needs, and say how to fix what is wrong",
            usage=_RUN_OR_FILE,
            words="optional",
        ),
        "estimate": Command(
            "estimate:run",
            "run a sample of the questions, and project calls, tokens and hours of the whole run",
            usage="[group=choice,choice] [key=value,value] [estimate.questions=N] … | CONFIGURATIONS.txt [key=value] …",
            config_name="estimate",
            words="optional",
            resumes=True,
        ),
        "evaluate": Command(
            "evaluate:run",
            "run a method on a dataset, score it, print the table",
            usage=_RUN_OR_FILE,
            words="optional",
            resumes=True,
            writes_tables=True,
        ),
        "sweep": Command(
            "sweep:run",
            "run many configurations as one run that makes each distinct call once",
            usage=("[group=choice,choice] [key=value,value] [hydra/sweeper=NAME] … | CONFIGURATIONS.txt [key=value] …"),
            words="optional",
            resumes=True,
            writes_tables=True,
        ),
        "ablations": Command(
            "ablations:run",
            "run a method without each of its parts, next to the published effects",
            usage="method=METHOD [group=choice] [key=value] …",
            resumes=True,
            writes_tables=True,
        ),
        "reproduce": Command(
            "reproduce:run",
            "run every row of the papers' tables, next to the published numbers",
            usage="[scale=smoke|full] [group=choice] [key=value] …",
            config_name="reproduce",
            resumes=True,
            writes_tables=True,
        ),
    },
    "Look at results": {
        "ls": Command(
            "ls:run",
            "list runs with their scores, costs, tags and notes, the newest first",
            usage="[FOLDER …] [tag=TAG]",
            config_name="ls",
            words="optional",
            writes_tables=True,
        ),
        "compare": Command(
            "compare:run",
            "compare configurations of runs question by question: differences, tests, costs, noise",
            usage="RUN [RUN …] [key=value] …",
            config_name="compare",
            words="required",
            writes_tables=True,
        ),
        "show": Command(
            "show:run",
            "show one question of a run: answers, where a wrong one was lost, facts, and every step",
            usage="RUN QUESTION [configuration=N] [calls=true] [step=N]",
            config_name="show",
            words="required",
        ),
        "view": Command(
            "view:run",
            "browse runs: questions, comparisons, and the walk and every call of one question",
            usage="RUN [RUN …] [port=N] [open=true]",
            config_name="view",
            words="required",
            prints_figures=False,
        ),
        "losses": Command(
            "losses:run",
            "show at which stage wrong questions lost their answers, and why",
            usage="RUN [by=type|hops|…]",
            config_name="losses",
            words="required",
            writes_tables=True,
        ),
        "score": Command(
            "score:run",
            "recompute a run's metrics from its traces, or score a file of predictions",
            usage="RUN [evaluation.key=value] … | predictions=FILE dataset=NAME [dataset.key=value] …",
            config_name="score",
            words="optional",
            writes_tables=True,
        ),
        "report": Command(
            "report:run",
            "write one HTML page about runs: scores, costs, a recommendation",
            usage="RUN [RUN …] [output=FILE]",
            config_name="report",
            words="required",
            writes_tables=True,
        ),
        "export": Command(
            "export:run",
            "write a run for another tool: Inspect, OpenTelemetry, MLflow, W&B, Every Eval Ever",
            usage="RUN format=inspect|otel|every-eval-ever|mlflow|wandb [output=…] [configuration=N]",
            config_name="export",
            words="required",
        ),
    },
    "Data and graphs": {
        "graph load": Command(
            "graph:load",
            "convert and load the graph of a dataset",
            usage="[dataset=NAME] [target=NAME] [key=value] …",
            config_name="graph_load",
        ),
        "graph serve": Command(
            "graph:serve",
            "start local Virtuoso replicas of a graph",
            usage="[dataset=NAME] [replicas=N] [key=value] …",
            config_name="graph_serve",
            prints_figures=False,
        ),
        "build-references": Command(
            "build_references:run",
            "build the solved training questions that SRP shows to its model",
            config_name="build_references",
        ),
    },
    "Models": {
        "llm serve": Command(
            "llm:serve",
            "serve a model with vLLM for many jobs",
            usage="llm.model=NAME [key=value] …",
            config_name="llm_serve",
            prints_figures=False,
        ),
        "init-model": Command(
            "init_model:run",
            "write a small Llama with random weights, for smoke tests",
            usage="output=FOLDER [group=choice] [key=value] …",
            config_name="init_model",
            extra="train",
        ),
    },
    "Training": {
        "collect arg": Command(
            "collect:arg",
            "collect training texts for ArG's generator",
            config_name="collect_arg",
            resumes=True,
        ),
        "collect parog": Command(
            "collect:parog",
            "collect training plans for PARoG's planner",
            config_name="collect_parog",
            resumes=True,
        ),
        "collect rog": Command(
            "collect:rog",
            "collect training rows for RoG's planner and reader",
            config_name="collect_rog",
            resumes=True,
        ),
        "collect calls": Command(
            "collect_calls:run",
            "collect the model calls of finished runs, for distillation",
            usage="RUN [RUN …] output=FILE [key=value] …",
            config_name="collect_calls",
            words="required",
        ),
        "collect corrections": Command(
            "collect_corrections:run",
            "collect what the oracle would have written where the model of finished runs erred",
            usage="RUN [RUN …] output=FILE [key=value] …",
            config_name="collect_corrections",
            words="required",
        ),
        "train arg": Command(
            "train:run",
            "fine-tune a Llama into ArG's generator",
            usage="[key=value] …",
            config_name="train_arg",
            extra="train",
            resumes=True,
        ),
        "train parog": Command(
            "train:run",
            "fine-tune a Llama into PARoG's planner",
            usage="[key=value] …",
            config_name="train_parog",
            extra="train",
            resumes=True,
        ),
        "train rog": Command(
            "train:run",
            "fine-tune a Llama into RoG's planner and reader",
            usage="[key=value] …",
            config_name="train_rog",
            extra="train",
            resumes=True,
        ),
        "train improve": Command(
            "train_improve:run",
            "train a model on what it should have written in its own runs, in rounds",
            usage="configurations=FILE model=FOLDER output=FOLDER [key=value] …",
            config_name="train_improve",
            extra="train",
            resumes=True,
        ),
        "train bundled-model": Command(
            "train_bundled_model:run",
            "train the bundled model again from nothing",
            usage="[key=value] …",
            config_name="train_bundled_model",
            extra="train",
            resumes=True,
        ),
    },
    "Tools": {
        "capacity": Command(
            "capacity:run",
            "project wall time, cost and bottleneck of a GPU cluster",
            usage="[RUN …] [key=value] …",
            config_name="capacity",
            words="optional",
        ),
        "benchmark": Command(
            "benchmark:run",
            "measure this installation",
            usage="NAME … | all",
            config_name=None,
            words="required",
            verb="measure",
        ),
    },
}
"""The commands by the section of `kgqa --help` that lists them."""

COMMANDS: Mapping[str, Command] = {name: command for part in SECTIONS.values() for name, command in part.items()}


def named(words: Sequence[str]) -> str | None:
    """Return the command that the first words name; None if there is none."""
    return next((name for name in COMMANDS if list(words[: len(name.split())]) == name.split()), None)
