"""The viewer in a real browser: lists, comparisons and the walk of every method, without requests to other machines."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.ui import WebDriverWait

from pipeline.analysis.runs import open_run
from pipeline.viewer.index_queries import question_url
from tests.integration.test_report_browser import browser  # noqa: F401 - a fixture
from tests.support import KGQA
from tests.viewer.support import LONG, METHODS, QUESTIONS, make_hostile, make_run

AXE = Path(__file__).resolve().parents[1] / "viewer" / "axe" / "axe.min.js"
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"], "resultTypes": ["violations"]}
SCREENS = [(width, scheme) for width in (400, 1280) for scheme in ("light", "dark")]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of every method."""
    return make_run(tmp_path_factory.mktemp("viewed") / "run")


@pytest.fixture(scope="module")
def address(run: Path) -> Iterator[str]:
    """The address of `kgqa view` over the run, and a copy with hostile texts."""
    hostile = make_hostile(run, run.with_name("hostile"))
    command = [*KGQA, "view", str(run), str(hostile), "port=0"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(run.with_name("cache"))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().split()[0]
        server.terminate()
        assert server.wait(30) == 143


@pytest.fixture(scope="module")
def wrong(run: Path) -> Mapping[int, str]:
    """The address of a wrong question of each configuration."""
    lost = open_run(run).losses().filter(pl.col("step").is_not_null()).collect()
    first = lost.group_by("configuration").agg(pl.col("question_id").max())
    return {number: question_url("run", number, id) for number, id in first.iter_rows()}


@pytest.fixture
def view(browser: Chrome, address: str) -> Iterator[View]:  # noqa: F811
    """The browser on the pages. They must log nothing, and ask no other machine."""
    browser.get_log("browser")
    browser.execute_cdp_cmd("Network.enable", {})
    shown = View(browser, address)
    shown.screen(1280, "light")
    yield shown
    assert browser.get_log("browser") == []
    assert shown.asked
    assert all(each.startswith(address) for each in shown.asked), shown.asked


class View:
    """A page of the viewer."""

    def __init__(self, driver: Chrome, address: str) -> None:
        self.driver, self.address = driver, address
        self.asked: set[str] = set()

    def open(self, path: str) -> None:
        self.driver.get(self.address.rstrip("/") + path)
        self.note()

    def note(self) -> None:
        """Note what the page has asked for."""
        entries = "return performance.getEntries().map((each) => each.name).filter((name) => name.includes('://'))"
        self.asked |= {str(name) for name in self.driver.execute_script(entries)}

    def screen(self, width: int, scheme: str) -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def click(self, element: WebElement) -> None:
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center', inline: 'center'})", element)
        element.click()

    def follow(self, element: WebElement) -> None:
        """Click what loads another page, and wait for that page: until then the old elements are still found."""
        self.driver.execute_script("window.left = false")
        self.click(element)
        ready = "return window.left === undefined && document.readyState === 'complete'"
        WebDriverWait(self.driver, 30).until(lambda driver: driver.execute_script(ready), "no other page")
        self.note()

    def texts(self, selector: str) -> list[str]:
        """The texts of all such elements at one moment, as the page may replace an element once it is found."""
        text = "each.innerText ?? each.textContent"  # a drawing has no innerText
        script = f"return [...document.querySelectorAll(arguments[0])].map((each) => {text})"
        return [str(each) for each in self.driver.execute_script(script, selector)]

    def text(self, selector: str) -> str:
        """The text of the first such element at one moment."""
        return self.texts(selector)[0]

    def wait(self, text: str, selector: str = "main") -> None:
        """Wait until the text stands in one of such elements."""
        wait = WebDriverWait(self.driver, 30)
        wait.until(lambda _: any(text in each for each in self.texts(selector)), f"no '{text}' in {selector}")
        self.note()

    def wait_for_step(self, number: str) -> None:
        """Wait until this step is open: the panel of another step may name it too, in a link."""
        self.wait(f"Step {number}: ", ".opened-head h3")
        self.wait_for_address(f"step={number}")

    def wait_for_address(self, end: str) -> None:
        """Wait until the address, which can be sent, says what is shown."""
        WebDriverWait(self.driver, 30).until(lambda driver: driver.current_url.endswith(end), f"not at {end}")
        self.note()

    def wait_until_read(self) -> None:
        """Wait until all shards of both runs are in the tables."""
        wait = WebDriverWait(self.driver, 60)
        rows = f"{2 * len(METHODS) * QUESTIONS} questions"
        wait.until(lambda _: (self.open("/"), rows in self.text("main"))[1])

    def violations(self) -> list[Any]:
        """What the accessibility checker finds on the page that is serious or critical."""
        self.driver.execute_script(AXE.read_text("utf-8"))
        script = "const done = arguments[1]; axe.run(document, arguments[0]).then((found) => done(found.violations))"
        found = self.driver.execute_async_script(script, RULES)
        serious = [each for each in found if each["impact"] in {"serious", "critical"}]
        return [(each["id"], [node["html"][:200] for node in each["nodes"][:3]]) for each in serious]


def test_the_walk_of_every_method_and_its_calls(view: View, wrong: Mapping[int, str]) -> None:
    words = {"srp": "round 1", "arg": "hop 1", "parog": "sub-goal 1", "r3": "attempt 1", "tog": "round 1"}
    words |= {"pog": "round 1", "rog": "plan", "rag": "expanded", "cot": "answered", "dog": "turn 1"}
    view.wait_until_read()
    for configuration, method in enumerate(METHODS):
        view.open(wrong[configuration])
        assert words[method] in view.text("svg.tree")
        assert view.all(".timeline .bar")
        lost = view.all(".tree .lost")
        assert lost, f"the step at which {method} lost the answer is marked"
        assert "The answer was lost here." in view.text(".opened")
        chip = view.all(".tree .chip.llm")[0]
        number = re.search(r"step=(\d+)", str(chip.get_dom_attribute("href")))
        assert number
        view.click(chip)
        view.wait_for_step(number[1])
        assert "Completion" in view.text(".opened")
        assert "Prompt: " in view.text(".opened")


def test_an_open_list_follows_a_run_that_begins_later(view: View) -> None:
    view.wait_until_read()
    older = "document.body.dataset.state = 'older'; document.getElementById('results').textContent = 'older'"
    view.driver.execute_script(older)
    view.wait("questions", "#results")  # although none of the runs goes on


def test_three_clicks_lead_from_the_list_to_the_cause(view: View) -> None:
    view.wait_until_read()
    view.open("/?run=run&configuration=1")
    before = view.text(".count")
    link = next(each for each in view.all(".legend a") if each.text.startswith("lost at:"))
    view.follow(link)
    assert view.text(".count") != before
    view.follow(view.one(".questions tbody th a"))
    view.wait("Lost:", "main")
    assert "The answer was lost here." in view.text(".opened")


def test_filters_and_sorting(view: View) -> None:
    view.wait_until_read()
    view.open("/?run=run")
    Select(view.one("select[name=configuration]")).select_by_value("0")
    Select(view.one("select[name=outcome]")).select_by_value("right")
    view.follow(view.one(".filters button"))
    assert set(view.texts(".questions .outcome")) == {"right"}
    assert "configuration=0" in view.driver.current_url
    view.follow(view.one(".questions thead a[href*='sort=tokens']"))
    tokens = [int(text.replace(",", "")) for text in view.texts("tbody tr td:nth-last-child(2)")]
    assert tokens == sorted(tokens, reverse=True)
    assert len(set(tokens)) > 1
    text = view.one("input[name=text]")
    text.send_keys("000003", Keys.ENTER)
    view.wait("1 question", ".count")


def test_two_configurations_are_compared_side_by_side(view: View) -> None:
    view.wait_until_read()
    view.open("/compare?a=run%2F0&b=run%2F1&show=lost")
    row = view.one(".questions tbody tr")
    assert view.texts(".questions tbody tr:first-child .outcome") == ["right", "wrong"]
    view.follow(row.find_element(By.TAG_NAME, "a"))
    view.wait("1: arg")
    left, right = view.texts(".panel")
    assert "0: srp" in left
    assert "Lost:" in right
    view.click(view.all(".panel")[1].find_element(By.CSS_SELECTOR, ".tree .chip"))
    view.wait("Step 0: ", "#other_step")
    view.wait_for_address("other_step=0")
    view.driver.back()
    view.wait("The answer was lost here.", "#other_step")


def test_hostile_texts_are_shown_and_do_nothing(view: View) -> None:
    view.wait_until_read()
    view.open(f"/?run=hostile&configuration={len(METHODS) - 1}")
    assert "<script>document.title='owned'</script>" in view.text(".questions tbody")
    view.follow(view.one(".questions tbody th a"))
    view.wait("<img src=x onerror=", "h1")
    view.wait("Show all", ".opened")
    view.click(next(each for each in view.all(".opened a") if each.text.startswith("Show all")))
    length = "return document.querySelector('.opened').textContent.length"
    WebDriverWait(view.driver, 30).until(lambda driver: driver.execute_script(length) > LONG)
    assert view.driver.title != "owned"
    assert "\u202e" not in view.driver.page_source
    assert not view.all("img")


def test_the_keyboard_reaches_a_step_and_goes_on_from_it(view: View, wrong: Mapping[int, str]) -> None:
    view.wait_until_read()
    view.open(f"{wrong[4]}?step=2")
    view.one(".tree a[href$='step=0']").send_keys(Keys.ENTER)
    view.wait_for_step("0")
    view.one(".tree a[aria-current]").send_keys(Keys.ARROW_RIGHT)
    view.wait_for_step("1")
    focused = "return document.activeElement.matches('.tree [aria-current], .opened nav a')"
    WebDriverWait(view.driver, 30).until(lambda driver: driver.execute_script(focused))
    view.driver.switch_to.active_element.send_keys(Keys.ARROW_LEFT)
    view.wait_for_step("0")


def test_the_step_that_was_asked_for_last_stays_open(view: View, wrong: Mapping[int, str]) -> None:
    view.wait_until_read()
    view.open(wrong[4])
    late = """const [usual, done] = [window.fetch, () => { window.late = true; }];
    window.fetch = async (url) => {
      const reply = await usual(url);
      if (url.endsWith("step=0")) { await new Promise((go) => setTimeout(go, 1000)); setTimeout(done, 100); }
      return reply;
    };
    for (const step of [0, 1]) {
      const link = document.querySelector(`.tree a[href$='step=${step}']`);
      link.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
    }"""
    view.driver.execute_script(late)
    view.wait_for_step("1")
    WebDriverWait(view.driver, 30).until(lambda driver: driver.execute_script("return window.late === true"))
    assert view.text(".opened-head h3").startswith("Step 1: ")


@pytest.mark.exhaustive
@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_the_checker_finds_nothing_serious_and_nothing_is_wider_than_the_screen(
    width: int, scheme: str, view: View, wrong: Mapping[int, str]
) -> None:
    view.wait_until_read()
    view.screen(width, scheme)
    beside = f"{wrong[0]}?beside=run%2F4"
    for path in ("/", "/?run=hostile", "/compare", wrong[1], wrong[2], beside):
        view.open(path)
        assert view.violations() == [], json.dumps(path)
        wide = "return document.documentElement.scrollWidth - innerWidth"
        assert view.driver.execute_script(wide) <= 0, f"{path} is wider than the screen"
