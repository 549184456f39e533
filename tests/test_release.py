"""What a package index shows of the project: version, date, addresses. Each has one value in all files."""

from __future__ import annotations

import re
import tomllib
from datetime import date
from pathlib import Path

import yaml

import pipeline

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text("utf-8")

WITH_ADDRESS = ("pyproject.toml", "CITATION.cff", "docs/tutorials/cluster.md")
"""The files with the address of the repository."""
SUFFIXES = {".toml", ".md", ".cff", ".yaml", ".yml", ".ipynb", ".py"}


def test_the_version_is_that_of_the_package_and_of_the_citation() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert pipeline.__version__ == PROJECT["version"] == cited["version"]


def test_the_newest_release_of_the_changelog_is_the_version_and_has_a_date() -> None:
    unreleased, *releases = re.findall(r"^## (.+)$", CHANGELOG, re.MULTILINE)
    assert unreleased == "Unreleased"
    version, _, day = releases[0].partition(" (")
    assert version == PROJECT["version"]
    assert date.fromisoformat(day.removesuffix(")"))


def test_every_address_is_that_of_the_repository() -> None:
    source = PROJECT["urls"]["Source"]
    assert {"Homepage", "Source", "Documentation", "Changelog", "Issues"} == PROJECT["urls"].keys()
    owner = source.rpartition("/")[0]
    folders = [ROOT / name for name in ("docs", "infra", "notebooks", "pipeline", "conf", "jobs")]
    files = [*ROOT.iterdir(), *(file for folder in folders for file in folder.rglob("*"))]
    texts = {file: file.read_text("utf-8") for file in files if file.suffix in SUFFIXES}
    addresses = {str(file.relative_to(ROOT)): text for file, text in texts.items() if owner in text}
    assert set(addresses) == set(WITH_ADDRESS)
    assert all(text.count(owner) == text.count(source) for text in addresses.values())


def test_what_a_package_index_shows_is_complete() -> None:
    assert {"name", "version", "description", "license", "authors", "keywords", "classifiers", "urls"} <= PROJECT.keys()
    minors = [name.rpartition(".")[2] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)]
    assert minors[0] == PROJECT["requires-python"].removeprefix(">=3.")
    assert not [name for name in PROJECT["classifiers"] if name.startswith("License")], "the licence has a field"


def test_the_notebooks_can_be_opened_with_their_extra() -> None:
    names = {re.split(r"[><=\[]", each)[0] for each in PROJECT["optional-dependencies"]["notebooks"]}
    assert {"jupyterlab", "matplotlib"} <= names
