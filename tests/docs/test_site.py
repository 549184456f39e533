"""The documentation site builds strictly and without a network."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.papers.comparison_systems import comparison_systems, why_not_run
from pipeline.papers.published import published_figures

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    no_network = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    ended = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, **no_network},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return folder


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    loaded = re.compile(
        r"<(?:script|img|iframe|source)[^>]+src=\"(https?:[^\"]+)|<link[^>]+rel=\"stylesheet\"[^>]+href=\"(https?:[^\"]+)"
    )
    foreign = {page.name: found for page in site.rglob("*.html") if (found := loaded.findall(page.read_text("utf-8")))}
    assert not foreign


def test_every_command_and_key_has_a_reference(site: Path) -> None:
    commands = (site / "reference" / "commands" / "index.html").read_text("utf-8")
    assert all(f"kgqa {name}" in commands for name in ("evaluate", "sweep", "compare", "report", "doctor", "estimate"))
    configuration = (site / "reference" / "configuration" / "index.html").read_text("utf-8")
    assert all(key in configuration for key in ("method.beam_width", "kg.endpoints", "engine.workers", "run.reuse"))


def test_the_python_reference_shows_the_public_names(site: Path) -> None:
    page = (site / "reference" / "python" / "index.html").read_text("utf-8")
    assert all(name in page for name in ("evaluate", "sweep", "score", "open_run", "Prompt", "Tools", "Question"))


def test_every_published_row_is_on_its_page(site: Path) -> None:
    page = html.unescape((site / "reference" / "published" / "index.html").read_text(encoding="utf-8"))
    for figure in published_figures():
        assert f"<td>{figure.row}</td>" in page
        how = f"experiment={figure.preset}" if figure.preset else why_not_run(figure)
        assert how in page
        assert f"{figure.metric} {figure}" in page


def test_every_comparison_system_has_a_section(site: Path) -> None:
    page = html.unescape((site / "reference" / "comparison-systems" / "index.html").read_text(encoding="utf-8"))
    for name, system in comparison_systems().items():
        assert f">{name}<" in page
        assert system.what in page
        for said in (*(f"experiment={preset}" for preset in system.presets), system.reason, system.code):
            assert said is None or said in page
