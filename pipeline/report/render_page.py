"""Renders the report as one HTML file, with style and script included."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pipeline.evaluation.simulated import label_meaning
from pipeline.report.page_content import Page
from pipeline.text import counted

_HERE = Path(__file__).parent


def render(page: Page) -> str:
    """Render the page.

    Names of models, datasets and folders are untrusted: the template escapes them, and the content security policy
    allows no script except the one with the given hash, and no network access.
    """
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"counted": counted, "label_meaning": label_meaning}
    script = environment.get_template("page.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = environment.get_template("page.html.jinja").render(page=page, script_hash=f"sha256-{digest}")
    return text.encode("utf-8", "replace").decode()  # folder names can contain characters that UTF-8 cannot encode
