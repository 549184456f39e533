"""Renders the report as one HTML file, with style and script included."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pipeline.report.build_page import build_page
from pipeline.report.data import read_blocks
from pipeline.report.page_content import Page
from pipeline.text import counted
from pipeline.traces.storage import StoragePath

_HERE = Path(__file__).parent


def report(runs: Sequence[StoragePath]) -> str:
    """Compare the configurations of run folders on one HTML page. Raises UserError if a folder is not a run."""
    return render(build_page(read_blocks(runs)))


def render(page: Page) -> str:
    """Render the page.

    Names of models, datasets and folders are untrusted: the template escapes them, and the content security policy
    allows no script except the one with the given hash, and no network access.
    """
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["counted"] = counted
    script = environment.get_template("page.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = environment.get_template("page.html.jinja").render(page=page, script_hash=f"sha256-{digest}")
    return text.encode("utf-8", "replace").decode()  # folder names can contain characters that UTF-8 cannot encode
