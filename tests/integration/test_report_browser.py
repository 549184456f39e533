"""The report in a real browser: it opens from disk, sorts and filters, without console messages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console
from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select

from pipeline import config
from pipeline.cli.main import main
from pipeline.engine.configuration import Configuration
from pipeline.engine.run import execute

pytestmark = pytest.mark.exhaustive

ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1800,1000"),
)
HOSTILE = "</style><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"

Open = Callable[..., Chrome]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run over two methods, two depths and three retry budgets; one method has a hostile name."""
    folder = tmp_path_factory.mktemp("reported")
    configurations = []
    for method, depth, retries in [(m, d, r) for m in ("srp", "parog") for d in (1, 2) for r in (0, 1, 9)]:
        words = ("dataset.triples=2000", "run.limit=24", "evaluation.bootstrap_resamples=100", "llm=oracle")
        own = (f"method={method}", f"method.depth={depth}", f"method.retries={retries}", "llm.error_rate=0.3")
        overrides = (*words, *own, f"run.dir={folder}/run")
        resolved = config.compose(overrides)
        if method == "parog":
            resolved["method"]["name"] = f"parog {HOSTILE}"
        configurations.append(Configuration(overrides, resolved))
    execute(configurations, Console(quiet=True))
    file = folder / f"{HOSTILE.replace('/', '')}.html"
    assert main(["report", f"{folder}/run", f"output={file}"]) == 0
    return file


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """A headless Chromium; if it is missing, CI fails and other machines skip."""
    found = [shutil.which(program) for program in ("chromium", "chromedriver")]
    if not all(found):
        message = "chromium or chromedriver is not installed (Debian packages chromium, chromium-driver)"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    options = Options()
    options.binary_location = str(found[0])
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in (*ARGUMENTS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(argument)
    driver = Chrome(options=options, service=Service(str(found[1])))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser: Chrome, report: Path) -> Iterator[Chrome]:
    """The browser with the page freshly opened; it must not log anything."""
    browser.get_log("browser")
    browser.get(report.as_uri())
    yield browser
    assert browser.get_log("browser") == []


def heading(page: Chrome, text: str) -> WebElement:
    cells = page.find_elements(By.CSS_SELECTOR, ".configurations thead th:not(.plot)")
    return next(cell for cell in cells if cell.text.startswith(text))


def column(page: Chrome, text: str) -> list[float]:
    """The figures of a column, one of each group of equal configurations."""
    place = int(str(heading(page, text).get_property("cellIndex")))
    rows = page.find_elements(By.CSS_SELECTOR, ".configurations tbody tr:first-child")
    return [float(str(row.find_elements(By.CSS_SELECTOR, "th, td")[place].text).split()[0]) for row in rows]


def shown_rows(page: Chrome) -> int:
    return sum(row.is_displayed() for row in page.find_elements(By.CSS_SELECTOR, ".configurations tbody tr"))


def test_the_best_score_is_first_and_a_click_on_a_heading_sorts(opened: Chrome) -> None:
    scores = column(opened, "Hits@1")
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) > 1
    calls = column(opened, "model calls")
    assert calls != sorted(calls)
    heading(opened, "model calls").find_element(By.TAG_NAME, "button").click()
    assert column(opened, "model calls") == sorted(calls)
    assert heading(opened, "model calls").get_attribute("aria-sort") == "ascending"
    heading(opened, "model calls").find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    assert column(opened, "model calls") == sorted(calls, reverse=True)
    heading(opened, "depth").find_element(By.TAG_NAME, "button").click()
    depths = column(opened, "depth")
    assert depths == sorted(depths)
    assert heading(opened, "model calls").get_attribute("aria-sort") == "none"


def test_equal_configurations_are_one_row_that_can_be_opened(opened: Chrome) -> None:
    boxes = opened.find_elements(By.CSS_SELECTOR, ".configurations .open")
    assert boxes
    closed = shown_rows(opened)
    assert closed == len(opened.find_elements(By.CSS_SELECTOR, ".configurations tbody")) < 12
    for box in boxes:
        box.click()
    assert shown_rows(opened) == 12


def test_a_column_can_be_hidden_and_shown(opened: Chrome) -> None:
    opened.find_element(By.CSS_SELECTOR, ".chooser summary").click()
    box = opened.find_element(By.CSS_SELECTOR, ".chooser .col-2")
    assert heading(opened, "tokens").is_displayed()
    box.click()
    hidden = opened.find_elements(By.CSS_SELECTOR, ".configurations .k2")
    assert not any(cell.is_displayed() for cell in hidden)
    box.click()
    assert heading(opened, "tokens").is_displayed()


@pytest.mark.parametrize("width", [400, 1280])
def test_score_calls_and_tokens_need_no_scrolling_sideways(width: int, opened: Chrome) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    box = opened.find_element(By.CSS_SELECTOR, ".tall")
    end = box.rect["x"] + float(str(box.get_property("clientWidth"))) + 1
    for text in ("Hits@1", "model calls", "tokens"):
        cell = heading(opened, text)
        assert cell.rect["x"] + cell.rect["width"] <= end
    opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_heading_stays_in_view_when_the_table_scrolls(opened: Chrome) -> None:
    size = {"width": 1280, "height": 400, "deviceScaleFactor": 1, "mobile": False}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    box, cell = opened.find_element(By.CSS_SELECTOR, ".tall"), heading(opened, "method")
    top = cell.rect["y"]
    opened.execute_script("arguments[0].scrollTop = 150", box)
    assert box.get_property("scrollTop") == 150
    assert cell.rect["y"] == top
    opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_method_can_be_hidden_in_the_table_and_the_charts(opened: Chrome) -> None:
    def shown(selector: str) -> int:
        return sum(element.is_displayed() for element in opened.find_elements(By.CSS_SELECTOR, selector))

    rows, marks = shown_rows(opened), shown(".of.score-0 .mark")
    others = len(opened.find_elements(By.CSS_SELECTOR, '.configurations tbody[data-m="0"]'))
    opened.find_element(By.CSS_SELECTOR, ".show-1").click()
    assert 0 < shown_rows(opened) == others < rows
    assert 0 < shown(".of.score-0 .mark") < marks
    opened.find_element(By.CSS_SELECTOR, ".show-1").click()
    assert (shown_rows(opened), shown(".of.score-0 .mark")) == (rows, marks)


def test_a_value_of_a_parameter_can_be_hidden_in_tables_bars_and_charts(opened: Chrome) -> None:
    def shown(selector: str) -> int:
        return sum(element.is_displayed() for element in opened.find_elements(By.CSS_SELECTOR, selector))

    losses = "[aria-labelledby$=losses] .bars tbody tr"
    marks = shown(".of.score-0 .mark")
    assert (shown(losses), shown("[aria-labelledby$=roles] .bars tbody tr")) == (12, 12)
    opened.find_element(By.CSS_SELECTOR, ".filters summary").click()
    opened.find_element(By.CSS_SELECTOR, ".value-1-0").click()
    assert (shown(losses), shown("[aria-labelledby$=roles] .bars tbody tr")) == (8, 8)
    assert shown_rows(opened) == 8, "equal configurations are shown one by one"
    assert 0 < shown(".of.score-0 .mark") < marks
    opened.find_element(By.CSS_SELECTOR, ".value-0-0").click()
    assert shown(losses) == 4
    for value in (".value-1-0", ".value-0-0"):
        opened.find_element(By.CSS_SELECTOR, value).click()
    assert shown(losses) == 12


def test_an_example_opens_at_the_step_where_the_answer_was_lost(opened: Chrome) -> None:
    example = opened.find_element(By.CSS_SELECTOR, ".example")
    example.find_element(By.CSS_SELECTOR, "summary").click()
    lost = example.find_element(By.CSS_SELECTOR, ".steps .loss")
    assert lost.is_displayed()
    assert "lost here" in lost.text
    assert lost.find_element(By.CSS_SELECTOR, "pre").text
    assert example.find_element(By.CSS_SELECTOR, ".command").text.startswith("kgqa show ")


@pytest.mark.parametrize("width", [400, 1280])
def test_names_and_bars_do_not_overlap(width: int, opened: Chrome) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    overlapping = opened.execute_script("""
        const box = (element) => element.getBoundingClientRect();
        return [...document.querySelectorAll(".bars tbody tr")].filter((row) => {
            const name = row.querySelector(".who"), bar = row.querySelector(".stack, .bar");
            return name && bar && (box(name).right > box(bar).left || box(bar).width < 100);
        }).length""")
    assert overlapping == 0
    opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_selecting_another_score_shows_its_charts(opened: Chrome) -> None:
    first, second = (opened.find_element(By.CSS_SELECTOR, f".charts.of.score-{n}") for n in (0, 1))
    assert (first.is_displayed(), second.is_displayed()) == (True, False)
    opened.find_element(By.CSS_SELECTOR, ".pick-1").click()
    assert (first.is_displayed(), second.is_displayed()) == (False, True)


def test_a_mark_on_the_front_has_a_tooltip_for_pointer_and_keyboard(opened: Chrome) -> None:
    mark = opened.find_element(By.CSS_SELECTOR, ".mark.ranked")
    tip = opened.find_element(By.CSS_SELECTOR, ".tip")
    assert not tip.is_displayed()
    opened.execute_script("arguments[0].focus()", mark)
    assert tip.is_displayed()
    assert tip.text == mark.get_attribute("aria-label")
    assert "(oracle)" in tip.text


def test_the_breakdown_follows_the_selected_configuration(opened: Chrome) -> None:
    def rows() -> list[str]:
        return [row.text for row in opened.find_elements(By.CSS_SELECTOR, ".kinds tbody tr")]

    choice = Select(opened.find_element(By.CSS_SELECTOR, ".kinds-of"))
    start, first = int(str(choice.first_selected_option.get_attribute("value"))), rows()
    choice.select_by_value("0" if start else "1")
    assert rows() != first
    choice.select_by_value(str(start))
    assert rows() == first


def test_hostile_names_run_no_script(opened: Chrome) -> None:
    assert opened.title.startswith("srp, parog on synthetic")
    assert HOSTILE in opened.find_element(By.TAG_NAME, "main").text
    assert opened.find_elements(By.TAG_NAME, "img") == []


@pytest.mark.parametrize("width", [390, 1600])
def test_the_page_fits_the_window(width: int, opened: Chrome) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    opened.execute_script("for (const each of document.querySelectorAll('details')) each.open = true")
    assert opened.execute_script("return document.documentElement.scrollWidth") <= width
    opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.exhaustive
def test_the_numbers_are_shown_without_javascript(browser: Chrome, report: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(report.as_uri())
        for box in browser.find_elements(By.CSS_SELECTOR, ".configurations .open"):
            box.click()
        assert shown_rows(browser) == 12
        assert not browser.find_element(By.CSS_SELECTOR, ".configurations button").is_enabled()
        assert browser.find_element(By.CSS_SELECTOR, ".kinds tbody tr").text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
