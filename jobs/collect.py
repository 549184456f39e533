"""`kgqa collect parog`: make the material that a learned part is trained on."""

from __future__ import annotations

import sys
from importlib import import_module

from jobs.cli import guard
from pipeline.errors import UserError, nearest

WHAT = {"parog": "jobs.collect_parog"}
"""What can be collected, and the module whose `main` does it."""


def main(argv: list[str]) -> int:
    """Collect what the first word names, with the Hydra overrides that follow."""
    if not argv or argv[0] in {"-h", "--help"}:
        words = "|".join(WHAT)
        print(f"usage: kgqa collect {words} [group=choice] [key=value] …\n\n`kgqa collect WHAT --help` lists its keys.")
        return 0
    word, *rest = argv
    if word not in WHAT:
        raise UserError(f"kgqa collect has no '{word}'.{nearest(word, WHAT)} It has {', '.join(WHAT)}.")
    return int(import_module(WHAT[word]).main(rest))


if __name__ == "__main__":
    sys.exit(guard(main, sys.argv[1:]))
