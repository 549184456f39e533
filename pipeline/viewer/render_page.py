"""Renders a template of `pages/` as one page. Everything from a trace is text: escaped, without control characters."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pipeline.text import counted, printable
from pipeline.viewer.page_content import stage_name

HERE = Path(__file__).parent / "pages"
MOST_CHARACTERS = 20_000
"""Of one text of a step, unless all of it is asked for."""
_MOST_INLINE = 600
"""Of a text in a line, such as an answer."""


def render(name: str, **values: Any) -> bytes:
    """Render a page as UTF-8."""
    return _environment().get_template(name).render(**values).encode("utf-8", "replace")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters |= {
        "counted": counted,
        "inline": inline,
        "cut": cut,
        "thousands": thousands,
        "stage_name": stage_name,
    }
    return environment


def _finalize(value: object) -> object:
    """Take the characters out of every text that control a display, or turn the direction of what follows."""
    return printable(value) if type(value) is str else value  # a Markup is of the template itself


def inline(text: object, most: int = _MOST_INLINE) -> str:
    """Return a text as one line that is not too long."""
    line = " ".join(str(text)[: 4 * most].split())
    return line if len(line) <= most else f"{line[:most]}…"


def cut(text: str, is_full: bool) -> str:
    """Return the beginning of a long text, unless all of it is asked for."""
    return text if is_full else text[:MOST_CHARACTERS]


def thousands(number: float | None) -> str:
    """Return a number with separators of thousands; a dash if there is none."""
    if number is None:
        return "–"
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.2f}"
