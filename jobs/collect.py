"""`kgqa collect WORD`: the data that a method's models are trained on."""

from __future__ import annotations

import sys
from importlib import import_module

from jobs.cli import guard
from pipeline.errors import UserError, nearest

_JOBS = {"arg": "jobs.collect_arg", "calls": "jobs.collect_calls", "parog": "jobs.collect_parog"}
USAGE = "kgqa collect WORD [group=choice] [key=value] …"


def main(argv: list[str]) -> int:
    """Run the collection that the first word names, with the Hydra overrides that follow."""
    known = ", ".join(_JOBS)
    if not argv or argv[0] in {"-h", "--help"}:
        print(f"usage: {USAGE}\n\nWORD is one of: {known}. `kgqa collect WORD --help` lists the keys of each.")
        return 0
    word, *overrides = argv
    if word not in _JOBS:
        raise UserError(f"kgqa collect has no '{word}'.{nearest(word, _JOBS)} Known: {known}.")
    return int(import_module(_JOBS[word]).main(overrides))


if __name__ == "__main__":
    sys.exit(guard(main, sys.argv[1:]))
