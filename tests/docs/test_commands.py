"""Every command and every Python example of the documents runs, or the document says why it is not run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("tutorials/*.md"), *(ROOT / "docs").glob("how-to/*.md")])
ALL_PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "infra").glob("**/*.md"), *(ROOT / "docs").glob("**/*.md")])

_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]+) -->\n)?^```(?P<language>sh|python)\n(?P<code>.*?)^```",
    re.MULTILINE | re.DOTALL,
)
_HERE_DOCUMENT = re.compile(r"(?<=<< ')(\w+)'\n.*?^\1$", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


class Block(NamedTuple):
    """One fenced block of a document."""

    line: int
    language: str
    code: str
    reason: str | None
    """Why it is not run."""


def blocks(text: str) -> Iterator[Block]:
    """Yield the shell and Python blocks of a document, in order."""
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("code"))
        yield Block(line, match["language"], match["code"], match["reason"])


def commands(block: Block) -> list[str]:
    """The lines of a shell block that are no part of a here-document."""
    return _HERE_DOCUMENT.sub("", block.code).splitlines()


def script(page: Path) -> str:
    """One shell script of all blocks of a page that are run. Its Python blocks share one interpreter, at the end."""
    run = [block for block in blocks(page.read_text("utf-8")) if block.reason is None]
    shell = "".join(f"echo '--- {page.name}, line {b.line}'\n{b.code}" for b in run if b.language == "sh")
    python = "".join(block.code for block in run if block.language == "python")
    return f"{shell}python - <<'PYTHON_BLOCKS'\n{python}PYTHON_BLOCKS\n" if python else shell


@pytest.mark.exhaustive
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path, shared_data: Path) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    (tmp_path / "MetaQA").symlink_to(shared_data / "metaqa")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script(page)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert ended.returncode == 0, f"{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.stem)
def test_lists_are_quoted(page: Path) -> None:
    """Without quotes, zsh takes a list for a pattern of file names, and refuses the command."""
    lines = [line for block in blocks(page.read_text("utf-8")) if block.language == "sh" for line in commands(block)]
    assert [line for line in lines if re.search(r"=\[", _QUOTED.sub("", line.partition(" #")[0]))] == []


def test_a_block_that_is_not_run_says_why() -> None:
    text = (
        "a\n```sh\nkgqa doctor\n```\n<!-- not run: needs a GPU -->\n```sh\nkgqa evaluate\n```\n```python\nx = 1\n```\n"
    )
    assert [(block.line, block.language, block.reason) for block in blocks(text)] == [
        (2, "sh", None),
        (6, "sh", "needs a GPU"),
        (9, "python", None),
    ]


def test_most_pages_have_something_to_run() -> None:
    assert sum(1 for page in PAGES if script(page)) >= 8
