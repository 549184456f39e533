"""The report as a file: the view laid out by a template that escapes all it is given, with style and script inside."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pipeline.analysis.report.build import page_of
from pipeline.analysis.report.measured import read_blocks
from pipeline.analysis.report.view import Page
from pipeline.traces.place import Place

_HERE = Path(__file__).parent


def report(runs: Sequence[Place]) -> str:
    """Compare the points of run folders on one HTML page. Raises UserError when a folder holds no run."""
    return render(page_of(read_blocks(runs)))


def render(page: Page) -> str:
    """Lay out the page.

    Whatever a model, a dataset or a folder is called is text: the template escapes it, and the page's own policy lets
    no script run but the one whose hash it names, and nothing be fetched at all.
    """
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    script = environment.get_template("page.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = environment.get_template("page.html.jinja").render(page=page, script_hash=f"sha256-{digest}")
    return text.encode("utf-8", "replace").decode()  # the name of a folder need not be text that can be written
