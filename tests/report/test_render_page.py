"""The HTML file: self-contained, and safe against hostile names."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from pipeline.evaluation.configuration_summary import Group
from pipeline.evaluation.statistics import Estimate
from pipeline.report.build_page import build_page
from pipeline.report.data import Block
from pipeline.report.details import Details, Repetition, RoleCost
from pipeline.report.examples import Example, ExampleStep
from pipeline.report.labels import Name, inline
from pipeline.report.render_page import render
from tests.report.configurations import RUN, make
from tests.support import sampled

HOSTILE = {
    "script": "</script><script>alert(1)</script>",
    "style": "</style></title><img src=x onerror=alert(1)>",
    "quotes": "\"' onmouseover='alert(1)' x=\"",
    "entity": "&lt;b&gt;&amp;",
    "comment": "<!-- ]]> -->",
    "template": "{{ 7 * 7 }}{% raw %}${alert(1)}",
    "right to left": "\u202eאבג <b>",
    "emoji": "🧪🏳️‍🌈",
    "control": "\x00\x1b[31m\u2028",
    "long": "<long>" * 2000,
    "half a character": "\udcff",
}


class Parsed(HTMLParser):
    """The elements of a page with the names of their attributes, its texts, and the values of attributes by name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.texts: list[str] = []
        self.attributes: dict[str, list[str]] = {}
        self.scripts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(name for name, _ in attrs)))
        self.open.append(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, []).append(value or "")

    def handle_data(self, data: str) -> None:
        (self.scripts if self.open[-1:] == ["script"] else self.texts).append(data)

    def handle_endtag(self, tag: str) -> None:
        self.open.append(f"/{tag}")


def html(text: str) -> str:
    """Render a page of two runs in which every name contains `text`."""
    run = replace(RUN, name=f"run {text}", facts={**RUN.facts, "git_commit": text, "versions": {text: text}})
    kinds = {f"field {text}": [Group(f"value {text}", 2, {"hits_at_1": Estimate(0.5, 0.4, 0.6, 2)})]}
    configurations = [
        make(
            [1.0, 0.0] * 5,
            {
                "depth": depth,
                "retries": retries,
                "planner": f"planner {text}{depth > 9}",
                "note": f"note {text}{retries}",
            },
            name=f"method {text}",
            label=f"label {text}",
            model=f"model {text}",
            run=run,
            breakdown=kinds,
            dataset=f"dataset {text}",
            failed=1,
            details=details(text),
        )
        for depth in (1, 2)
        for retries in range(6)
    ]
    page = build_page([Block(configurations), Block([make([1.0], run=replace(run, name=f"other {text}"))])])
    return render(replace(page, blocks=[replace(page.blocks[0], examples=[example(text)]), page.blocks[1]]))


def details(text: str) -> Details:
    return Details(
        scored=10,
        lost={"relation chosen": 3, "answered": 2},
        roles=[RoleCost(f"role {text}", 10, 100, 20, 1.0, 0.1)],
        repetitions=[Repetition("edits", 0, 6, 0.5), Repetition("edits", 1, 4, None)],
        seconds=(0.5, 1.0, 2.0),
    )


def example(text: str) -> Example:
    """An example whose texts come from a model, a graph or a dataset."""
    step = ExampleStep(
        f"1 · call {inline(text)}", ((f"user {text}", f"prompt {text}"), ("reply", f"reply {text}")), is_loss=True
    )
    name = Name.of("srp", "oracle", [inline(text)])
    texts = (f"question {text}", f"gold {text}", f"answers {text}", f"lost {text}")
    return Example(0, name, *texts, 2, f"kgqa show {text}", f"kgqa view {text}", f"/{text}/0/1", (step,))


@pytest.mark.parametrize("name", sampled(HOSTILE))
def test_hostile_names_stay_text(name: str) -> None:
    harmless, hostile = html("harmless"), html(HOSTILE[name])
    assert "harmless" in harmless
    assert Parsed(hostile).elements == Parsed(harmless).elements
    assert Parsed(hostile).scripts == Parsed(harmless).scripts


def test_names_are_shown_unchanged() -> None:
    text = HOSTILE["script"]
    texts = " ".join(Parsed(html(text)).texts)
    named = ("run", "field", "value", "planner", "note", "method", "label", "model", "dataset", "role")
    of_examples = ("question", "gold", "answers", "lost", "prompt", "reply")
    for what in (*named, *of_examples):
        assert f"{what} {text}" in texts


def test_the_fingerprint_of_a_graph_is_explained() -> None:
    titles = Parsed(html("text")).attributes["title"]
    assert any("Two runs with the same fingerprint read the same graph" in title for title in titles)


def test_long_names_are_truncated_and_writing_directions_are_isolated() -> None:
    assert len(html(HOSTILE["long"])) < 150 * len(HOSTILE["long"]), "only where it has to be whole"
    texts = Parsed(html(HOSTILE["right to left"])).texts
    overriding = [text for text in texts if "\u202e" in text]
    composed = [text for text in overriding if "(" in text or "·" in text]
    assert composed
    for text in composed:
        depth = 0
        for character in text:
            depth += {"\u2068": 1, "\u2069": -1}.get(character, 0)
            assert depth > 0 or character != "\u202e"


def test_the_page_loads_nothing() -> None:
    text = html("harmless")
    assert not re.search(r"https?:|//[a-z]|@import|url\(|src=|<link|<iframe|<img", text)
    assert all(value.startswith("#shape-") for value in Parsed(text).attributes["href"])


def test_only_the_script_with_the_given_hash_may_run() -> None:
    text = html("harmless")
    script, *rest = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert rest == []
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [value for value in Parsed(text).attributes["content"] if "default-src" in value]
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy
    assert not [name for name in Parsed(text).attributes if name.startswith("on")]


def test_the_data_of_the_breakdown_is_valid_json() -> None:
    data = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', html("harmless"), re.DOTALL)
    assert json.loads(data[0]) == [[[2, 50.0, 40.0, 60.0, None, None, None]]] * 12


def test_rendering_is_deterministic() -> None:
    assert html("harmless") == html("harmless")


def test_every_chart_has_a_text_alternative_and_every_table_its_headings() -> None:
    text = html("harmless")
    charts = re.findall(r'<svg class="chart"[^>]*>', text)
    assert charts
    assert all('aria-label="' in chart for chart in charts)
    ids = set(re.findall(r'\bid="([^"]+)"', text))
    assert set(re.findall(r'aria-labelledby="([^"]+)"', text)) <= ids
    assert text.count(' aria-sort="') == text.count("<button")


def test_a_single_configuration_can_be_shown() -> None:
    text = render(build_page([Block([make([1.0, 0.0])])]))
    assert "Recommendation" not in text
    assert "oracle" in text
    assert '<h2 id="runs">Runs</h2>' in text


def test_the_rule_of_the_recommendation_is_said_once_for_all_scores() -> None:
    page = build_page([Block([make([1.0, 0.0] * 200, {"depth": depth}, calls=depth) for depth in (1, 2)])])
    assert len(page.blocks[0].scores) > 1
    text = " ".join(Parsed(render(page)).texts)
    assert text.count("needs the fewest model calls") == 1
    assert text.count(
        "Hardly worse than the best, and beaten by no other one in score, calls and tokens: 1 of 2"
    ) == len(page.blocks[0].scores)
