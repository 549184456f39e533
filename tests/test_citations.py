"""Citations of the specification and links between documents lead to something that exists.

The section sign stands for a section of docs/specification.md everywhere in this repository, so each one is looked up.
A section of another document is written in words ("section 4 of RFC 8259").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

from pipeline import config
from pipeline.report.labels import SCORES
from tests.support import METHODS

ROOT = Path(__file__).parents[1]
SPECIFICATION = ROOT / "docs" / "specification.md"
CITING = ("pipeline", "conf", "jobs", "tests", "docs", "hydra_plugins", "notebooks", "README.md", "CONTRIBUTING.md")
"""Where the specification is cited."""
LINKED = ("docs", "infra", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
"""Where the documents are."""
TEXTS = frozenset({".py", ".yaml", ".yml", ".md", ".ipynb", ".jinja", ".sql", ".js", ".css"})

NUMBER = r"\d+(?:\.\d+)*"
CITATION = re.compile(rf"§\s?({NUMBER})(?:[–-]§?({NUMBER}))?")
OLD_CITATION = re.compile(r"methods\.md\W*§")
ATX_HEADING = re.compile(r"#{1,6}[ \t]+(.+?)(?:[ \t]+#+)?[ \t]*")
FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(?:(?!\n[ \t]*\n).)+?(?<!`)\1(?!`)", re.DOTALL)
INLINE_LINK = re.compile(r"\]\(\s*<?([^)>\s]+)>?(?:\s+[\"'][^)]*)?\)")
LINK_DEFINITION = re.compile(r"^ {0,3}\[[^\]\n]+\]:[ \t]*<?([^>\s]+)", re.MULTILINE)
ELSEWHERE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//")
ANCHOR = re.compile(r"<a\s+(?:id|name)=[\"']([^\"']+)[\"']")

Complaint = tuple[int, str]
"""A line number, counted from 1, and what is wrong there."""


# What a text holds


def without_fences(markdown: str) -> str:
    """The text with every line of a fenced block made empty. Line numbers stay."""
    lines, closing = [], ""
    for line in markdown.split("\n"):
        fence = FENCE.match(line)
        is_code = bool(fence or closing)
        if fence and not closing:
            closing = fence[1]
        elif fence and line.strip().startswith(closing) and not line.strip().strip(closing[0]):
            closing = ""
        lines.append("" if is_code else line)
    return "\n".join(lines)


def without_code(markdown: str) -> str:
    """The text without fenced blocks and code spans. Line numbers stay."""
    return CODE_SPAN.sub(lambda span: "\n" * span[0].count("\n"), without_fences(markdown))


def headings(markdown: str) -> list[str]:
    """The titles of all headings, in order."""
    found = (ATX_HEADING.fullmatch(line) for line in without_fences(markdown).split("\n"))
    return [heading[1] for heading in found if heading]


def section_numbers(markdown: str) -> set[str]:
    """The numbers with which headings begin: `3` of "3. Title", `3.5` of "3.5 Title"."""
    found = (re.match(rf"({NUMBER})\.?\s", title) for title in headings(markdown))
    return {number[1] for number in found if number}


def slugs(titles: Iterable[str]) -> Iterator[str]:
    """The fragment that GitHub gives to each heading; a repeated one is numbered."""
    seen: dict[str, int] = {}
    for title in titles:
        text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        times = seen.get(slug, 0)
        seen[slug] = times + 1
        yield f"{slug}-{times}" if times else slug


def fragments(markdown: str) -> set[str]:
    """All that `#…` can name in a document: its headings and its anchors."""
    return {*slugs(headings(markdown)), *ANCHOR.findall(without_code(markdown))}


def links(markdown: str) -> Iterator[tuple[int, str]]:
    """Line and target of every link that leads to this document or to another file."""
    text = without_code(markdown)
    for pattern in (INLINE_LINK, LINK_DEFINITION):
        for link in pattern.finditer(text):
            if not ELSEWHERE.match(link[1]):
                yield line_of(text, link.start(1)), link[1]


def line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


# What is wrong with it


def unknown_sections(text: str, known: set[str]) -> Iterator[Complaint]:
    """Citations of sections that do not exist. Of a range, both ends are looked up."""
    for citation in CITATION.finditer(text):
        for number in filter(None, citation.groups()):
            if number not in known:
                yield line_of(text, citation.start()), f"the specification has no section {number}"


def old_citations(text: str) -> Iterator[Complaint]:
    """Citations by the former name of the specification, also where a line break parts name and number."""
    for citation in OLD_CITATION.finditer(text):
        yield line_of(text, citation.start()), "cite as: specification §…"


@cache
def site_pages() -> frozenset[Path]:
    """The pages that mkdocs.yml names. Some are generated; the strict build of the site checks that all exist."""
    named = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text("utf-8"))
    return frozenset(ROOT / "docs" / page for page in named)


def broken_links(path: Path, markdown: str) -> Iterator[Complaint]:
    """Links of the document at `path` to files, headings or anchors that do not exist."""
    for line, target in links(markdown):
        name, _, fragment = unquote(target).partition("#")
        file = path.parent / name if name else path
        if name and not file.exists() and file.resolve() not in site_pages():
            yield line, f"{target}: there is no such file"
        elif fragment and file.suffix == ".md" and fragment not in fragments(read(file) if name else markdown):
            yield line, f"{target}: there is no such heading or anchor"


def unanchored_sections(markdown: str) -> Iterator[Complaint]:
    """Numbered headings without their number as an anchor on the line before."""
    lines = without_fences(markdown).split("\n")
    for number, (before, line) in enumerate(zip(["", *lines], lines, strict=False), start=1):
        heading = re.match(rf"#+ ({NUMBER})\.?\s", line)
        if heading and before != f'<a id="{heading[1]}"></a>':
            yield number, f"section {heading[1]} has no anchor"


# The repository


@cache
def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def texts_in(places: Iterable[str], suffixes: frozenset[str] = TEXTS) -> Iterator[Path]:
    """The files at these places that hold text, but for this one, which is full of broken examples."""
    for place in places:
        top = ROOT / place
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            hidden = any(part.startswith(".") for part in path.relative_to(ROOT).parts)
            if path.is_file() and path.suffix in suffixes and not hidden and path != Path(__file__):
                yield path


def complaints(paths: Iterable[Path], check: Callable[[Path], Iterable[Complaint]]) -> str:
    """All that a check finds, each with its file and line on a line of its own; nothing where all is well."""
    return "\n".join(f"{path.relative_to(ROOT)}:{line}: {what}" for path in paths for line, what in check(path))


def test_every_citation_is_of_a_section_of_the_specification() -> None:
    known = section_numbers(read(SPECIFICATION))
    found = complaints(texts_in(CITING), lambda path: unknown_sections(read(path), known))
    assert not found, found


def test_the_specification_is_cited_by_its_name() -> None:
    found = complaints(texts_in(CITING), lambda path: old_citations(read(path)))
    assert not found, found


def test_every_link_between_documents_leads_somewhere() -> None:
    documents = list(texts_in(LINKED, frozenset({".md"})))
    assert SPECIFICATION in documents
    found = complaints(documents, lambda path: broken_links(path, read(path)))
    assert not found, found


def test_every_section_of_the_specification_can_be_linked_by_its_number() -> None:
    found = complaints([SPECIFICATION], lambda path: unanchored_sections(read(path)))
    assert not found, found


# The checks themselves


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see specification §3.5.", []),
        ("# specification §3, §4.5.1 and\n# §3.5", []),
        ("specification §3–3.5, §3.5-§4.5.1", []),
        ("ok\nspecification §3.50", [(2, "3.50")]),
        ("specification §3.5, §9", [(1, "9")]),
        ("specification §3–7.2", [(1, "7.2")]),
        ("specification\n    §3.6", [(2, "3.6")]),
        ("3.6 of something else", []),
    ],
)
def test_a_citation_of_an_unknown_section_is_found(text: str, found: list[tuple[int, str]]) -> None:
    said = [(line, what.rpartition(" ")[2]) for line, what in unknown_sections(text, {"3", "3.5", "4.5.1"})]
    assert said == found


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a\n(methods.md §3.5)", [2]),
        ("# as in methods.md\n# §3.5", [1]),
        ("`docs/methods.md` §3.5", [1]),
        ("[docs/methods.md](methods.md) shows it (specification §3.5)", []),
    ],
)
def test_a_citation_by_the_former_name_is_found(text: str, lines: list[int]) -> None:
    assert [line for line, _ in old_citations(text)] == lines


def test_sections_are_the_numbered_headings_outside_code() -> None:
    text = "# Title\n## 1. One\n### 1.10 Ten\n#### 1.10.2 Two\n```\n## 2. Code\n```\n1.3 No heading\n##1.4 Nor this"
    assert section_numbers(text) == {"1", "1.10", "1.10.2"}


def test_a_fence_is_closed_by_its_own_kind() -> None:
    text = "````md\n```\n# no\n```\n````\n# yes\n~~~\n```\n# no\n~~~\n# and yes"
    assert headings(text) == ["yes", "and yes"]


def test_headings_have_the_fragments_that_github_gives_them() -> None:
    titles = ["What is cut off, and what lifts it", "`run.reuse`: once", "A – B", "[Linked](x.md) text", "Über_all"]
    assert list(slugs([*titles, "A – B"])) == [
        "what-is-cut-off-and-what-lifts-it",
        "runreuse-once",
        "a--b",
        "linked-text",
        "über_all",
        "a--b-1",
    ]


def test_links_are_those_to_files_outside_code() -> None:
    shown = '[a](b.md) and\n[c\nd](<e.md#f> "g") ![h](i.png)\n[j](https://k)\n[l]: m.md'
    code = "\n`[no](no.md)`\n```\n[no](no.md)\n```\n"
    assert list(links(shown + code)) == [(1, "b.md"), (3, "e.md#f"), (3, "i.png"), (5, "m.md")]


def test_a_broken_link_is_found_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text('# A title\n<a id="3.5"></a>\n```\n# not\n```\n', encoding="utf-8")
    good = "# Here\n[](there.md) [](there.md#a-title) [](there.md#3.5) [](#here)\n"
    bad = "[](gone.md)\n[](there.md#not) [](#a-title)"
    assert list(broken_links(tmp_path / "here.md", good + bad)) == [
        (3, "gone.md: there is no such file"),
        (4, "there.md#not: there is no such heading or anchor"),
        (4, "#a-title: there is no such heading or anchor"),
    ]


def test_a_section_without_its_anchor_is_found() -> None:
    text = '<a id="1"></a>\n## 1. One\n\n### 1.1 Two\n<a id="1.1"></a>\n### 1.2 Three\n## Four'
    assert [line for line, _ in unanchored_sections(text)] == [4, 6]


def test_a_complaint_names_file_and_line() -> None:
    found = complaints([SPECIFICATION], lambda path: unknown_sections("\n§77", {"1"}))
    assert found == "docs/specification.md:2: the specification has no section 77"


def test_relation_recall_is_defined_once() -> None:
    definition = "share of the relations of the gold query that the method followed"
    (row,) = re.findall(r"^\| relation recall \|.*$", (ROOT / "docs/specification.md").read_text(), re.MULTILINE)
    assert definition in row
    assert SCORES["relation_recall"][1] == definition
    tutorial = " ".join((ROOT / "docs/tutorials/first-run.md").read_text().split())
    assert f"the {definition}" in tutorial
    for page in ("docs/tutorials/first-run.md", "docs/reference/traces.md"):
        assert "specification.md#9.5" in (ROOT / page).read_text()


def test_the_keys_of_the_decision_index_exist() -> None:
    """A key with a method in front is a key of this method, as §1.3 says."""
    index = SPECIFICATION.read_text().partition('<a id="15"></a>')[2].partition('<a id="16"></a>')[0]
    rows = re.findall(r"^\|.*", index, re.MULTILINE)
    named = re.findall(r"`([a-z_0-9]+)\.([a-z_0-9.]+)`", " ".join(row.split("|")[3] for row in rows))
    assert len(named) > 25
    for section, key in named:
        words = [f"method={section}"] if section in METHODS else []
        name = "build_references" if section == "references" else "config"
        flat = dict(config.flatten(config.compose(["dataset=webqsp", "dataset.path=x", *words], name=name)))
        assert f"{'method' if words else section}.{key}" in flat, f"{section}.{key}"
