"""The `kgqa` command: each word is one job, so a cluster can run the same entry point as a script."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version

from pipeline.errors import UserError, nearest

COMMANDS = {
    "evaluate": ("jobs.evaluate", "run a method on a dataset, score it, print the table"),
    "score": ("jobs.score", "recompute every metric of a run from its traces, or score a file of predictions"),
    "graph": ("jobs.load_graph", "load: convert and load a graph; serve: start local Virtuoso replicas"),
    "references": ("jobs.build_references", "build SRP's base of solved training questions"),
    "benchmark": ("jobs.benchmark", "measure this installation: overhead, saturation, graph, scale, traces"),
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
        print(f"kgqa: there is no command '{words[0]}'.{nearest(words[0], COMMANDS)}\n\n{_usage()}", file=sys.stderr)
        return 2
    return guard(import_module(COMMANDS[words[0]][0]).main, words[1:])


def guard(job: Callable[[list[str]], int], words: list[str]) -> int:
    """Run a job, turning a user's mistake and Ctrl-C into a sentence and an exit code."""
    try:
        return job(words)
    except UserError as error:
        print(f"kgqa: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("kgqa: stopped; the same command goes on where this one left off", file=sys.stderr)
        return 130


def _usage() -> str:
    lines = [f"  {name:<12}{purpose}" for name, (_, purpose) in COMMANDS.items()]
    return "\n".join(
        ["usage: kgqa COMMAND [group=choice] [key=value] …", "", *lines, "", "kgqa COMMAND --help lists its keys."]
    )


if __name__ == "__main__":
    sys.exit(main())
