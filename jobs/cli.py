"""The `kgqa` command: each word is one job, so a cluster can run the same entry point as a script."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version

from pipeline.errors import ServiceError, UserError, nearest
from pipeline.text import printable

COMMANDS = {
    "doctor": ("jobs.doctor", "look at all that a run needs, and say how to mend what is amiss"),
    "estimate": ("jobs.estimate", "project calls, tokens and hours of a run from a sample of it"),
    "evaluate": ("jobs.evaluate", "run a method on a dataset, score it, print the table"),
    "sweep": ("jobs.sweep", "run many configurations as one, every distinct call made once"),
    "ablations": ("jobs.ablations", "run a method without each of its parts, beside what is published"),
    "reproduce": ("jobs.reproduce", "run every row of the papers' tables, and print ours beside theirs"),
    "compare": ("jobs.compare", "runs question by question: differences, flips, costs, noise"),
    "score": ("jobs.score", "recompute a run's metrics from its traces, or score predictions"),
    "report": ("jobs.report", "points of runs on one HTML page: curves, costs, a recommendation"),
    "graph": ("jobs.load_graph", "load: convert and load one; serve: start local Virtuoso replicas"),
    "llm": ("jobs.llm", "make: a small Llama; serve: keep a model up for many jobs"),
    "references": ("jobs.build_references", "build SRP's base of solved training questions"),
    "collect": ("jobs.collect", "arg, parog: what ArG's generator and PARoG's planner train on; calls: of runs"),
    "train": ("jobs.train", "arg, parog: fine-tune a Llama on what was collected; resident: make ours"),
    "simulate": ("jobs.simulate", "project wall time, cost and bottleneck of clusters never rented"),
    "benchmark": ("jobs.benchmark", "measure this installation; --help lists what can be measured"),
}


def main(argv: list[str] | None = None) -> int:
    """Run one command. A user's mistake is one sentence on stderr and exit code 2; Ctrl-C is exit code 130."""
    words = sys.argv[1:] if argv is None else argv
    if not words or words[0] in {"-h", "--help", "help"}:
        print(_usage())
        return 0
    if words[0] == "--version":
        print(version("kgqa-pipeline"))
        return 0
    if words[0] not in COMMANDS:
        known = ", ".join(COMMANDS)
        print(f"kgqa: there is no command '{words[0]}'.{nearest(words[0], COMMANDS)} Known: {known}", file=sys.stderr)
        return 2
    module, _ = COMMANDS[words[0]]
    return guard(lambda rest: int(import_module(module).main(rest)), words[1:])


def guard(job: Callable[[list[str]], int], words: list[str]) -> int:
    """Run a job, turning what the user can mend and Ctrl-C into a sentence and an exit code."""
    try:
        return job(words)
    except BrokenPipeError:  # whoever reads our output has seen enough, as in `kgqa evaluate --help | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to be flushed
        return 141
    except Exception as error:
        sentence = _mendable(error)
        if sentence is None:
            raise
        print(f"kgqa: {printable(sentence)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("kgqa: stopped; the same command goes on where this one left off", file=sys.stderr)
        return 130


def _mendable(error: Exception) -> str | None:
    """What is wrong and not our fault, in words: a mistake, a service or a disk. None for a bug."""
    if isinstance(error, ExceptionGroup):
        return next(filter(None, map(_mendable, error.exceptions)), None)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error) if isinstance(error, (UserError, ServiceError)) else None


def _usage() -> str:
    lines = [f"  {name:<12}{purpose}" for name, (_, purpose) in COMMANDS.items()]
    return "\n".join(
        ["usage: kgqa COMMAND [group=choice] [key=value] …", "", *lines, "", "kgqa COMMAND --help lists its keys."]
    )


if __name__ == "__main__":
    sys.exit(main())
