"""Compare the speed of two commits: `python -m tests.compare_commits BASE [--rounds N] [--base-words WORDS] [WORDS …]`.

Both run the same `kgqa` command in turn, many times, so that both meet the same state of the machine. The base is
checked out beside this tree; both use the packages that are installed. Of each pair of runs the ratio is taken, and the
mean of the ratios is printed with its 95 % interval: a ratio below 1 says that this tree takes less than the base.
`{run}` in the words stands for a new run folder, `{server}` for the URL of a model server with one fixed reply.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import scipy

from pipeline.cli.benchmarks.server import serving

_ROOT = Path(__file__).resolve().parents[1]
_WORDS = ["evaluate", "method=srp", "dataset=synthetic", "llm=oracle", "run.limit=400", "run.dir={run}"]
"""The main job."""


class Cost(NamedTuple):
    """What a command took."""

    cpu_s: float
    wall_s: float
    memory_mb: float
    """The most memory of the largest of its processes."""


class Ratio(NamedTuple):
    """The mean of paired ratios with the ends of its 95 % interval."""

    mean: float
    low: float
    high: float


def main(arguments: Sequence[str]) -> None:
    """Run both commits in turn, and print a table of ratios."""
    parser = argparse.ArgumentParser(prog="python -m tests.compare_commits", description=__doc__)
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument("words", nargs="*", help="a command of kgqa, without `kgqa` (default: the main job)")
    parser.add_argument("--base-words", help="the command in the words of the base, where names have changed")
    parser.add_argument("--rounds", type=int, default=12, help="pairs of runs (default: 12)")
    given = parser.parse_intermixed_args(arguments)
    words = given.words or _WORDS
    base_words = given.base_words.split() if given.base_words else words
    with checkout(given.base) as base, serving() as server:
        pairs = list(compare(base, base_words, words, server, given.rounds))
    print("| measure | ratio to the base | 95 % interval |\n| --- | ---: | --- |")
    for name, ratio in ratios(pairs).items():
        print(f"| {name} | {ratio.mean:.3f} | {ratio.low:.3f} to {ratio.high:.3f} |")


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """Yield a folder with the files of a commit, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="kgqa-base-") as parent:
        folder = Path(parent) / "base"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", folder, commit], cwd=_ROOT, check=True)
        try:
            yield folder
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", folder], cwd=_ROOT, check=True)


def compare(
    base: Path, base_words: Sequence[str], words: Sequence[str], server: str, rounds: int
) -> Iterator[tuple[Cost, Cost]]:
    """Yield the costs of the base and of this tree, pair by pair. Each is first in every second pair.

    A first pair, which fills the caches of the file system, is not yielded.
    """
    for round in range(rounds + 1):
        first, second = ((base, base_words), (_ROOT, words))[:: 1 if round % 2 else -1]
        costs = {tree: _run(tree, tree_words, server) for tree, tree_words in (first, second)}
        if round:
            print(f"pair {round}/{rounds}", file=sys.stderr)
            yield costs[base], costs[_ROOT]


def _run(tree: Path, words: Sequence[str], server: str) -> Cost:
    """Run a command with the code of a tree."""
    script = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]["kgqa"]
    module, _, function = script.partition(":")
    with tempfile.TemporaryDirectory(prefix="kgqa-compared-") as folder:
        filled = [word.replace("{run}", f"{folder}/run").replace("{server}", server) for word in words]
        # Without the installed tree, whose Hydra plugin would be found from the base as well.
        code = f"import sys; sys.path[:] = [{str(tree)!r}, *(each for each in sys.path if each != {str(_ROOT)!r})]; "
        code += f"from {module} import {function}; sys.argv[0] = 'kgqa'; sys.exit({function}())"
        command = [sys.executable, "-c", code, *filled]
        began = time.monotonic()
        with subprocess.Popen(command, cwd=tree, stdout=subprocess.DEVNULL) as process:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"in {tree}, `kgqa {' '.join(filled)}` ended with exit code {process.returncode}")
        return Cost(used.ru_utime + used.ru_stime, time.monotonic() - began, used.ru_maxrss / 1024)


def ratios(pairs: Sequence[tuple[Cost, Cost]]) -> dict[str, Ratio]:
    """Return the ratio of each measure, by Student's interval on the logarithms. Needs at least two pairs."""
    found = {}
    for name in Cost._fields:
        logarithms = [math.log(getattr(ours, name) / getattr(base, name)) for base, ours in pairs]
        mean, error = statistics.mean(logarithms), statistics.stdev(logarithms) / math.sqrt(len(pairs))
        half = float(scipy.stats.t.ppf(0.975, len(pairs) - 1)) * error
        found[name] = Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half))
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
