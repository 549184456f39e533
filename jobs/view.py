"""`kgqa view` as a script, for `ray job submit -- python jobs/view.py …`."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder, whose modules hide installed packages

from pipeline.cli.main import main  # noqa: E402

sys.exit(main(["view", *sys.argv[1:]]))
