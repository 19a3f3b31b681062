"""A headless Chromium for all tests of a page, driven by Selenium."""

import shutil
from pathlib import Path

import pytest
import spacy
from spacy.tokens import Span, SpanGroup

from spacy_spans import viz

# The browser runs without a sandbox where tests run as root, and asks the network for nothing.
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
).split()


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    """A browser with a profile of its own."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: the extra dev")
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and chromedriver):
        pytest.skip("no chromium and chromedriver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=chromedriver)
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


class Browser:
    """A page in the browser, and what tests ask of it."""

    def __init__(self, driver, folder: Path) -> None:
        self.driver, self.path = driver, folder / "page.html"

    def open(self, sides, hash="", width=1200, **settings):
        """Write and open a page."""
        self.path.write_text(viz.render_page(sides, **settings), encoding="utf8")
        self.driver.set_window_size(width, 800)
        self.go(hash)
        return self

    def go(self, hash=""):
        self.driver.get("about:blank")
        self.driver.get(f"{self.path.as_uri()}{hash}")

    def js(self, code, *args):
        return self.driver.execute_script(code, *args)

    def texts(self, selector):
        return self.js(
            "return [...document.querySelectorAll(arguments[0])].map(x => x.textContent)", selector
        )

    def press(self, *keys):
        from selenium.webdriver import ActionChains

        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def wait(self, condition):
        """Wait until JavaScript that returns something is true, at most five seconds."""
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, 5, 0.02).until(lambda _: self.js(f"return {condition}"))

    def errors(self):
        """What the console has said since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture
def browser(driver, tmp_path):
    browser = Browser(driver, tmp_path)
    yield browser
    assert browser.errors() == []


@pytest.fixture(scope="session")
def nlp():
    return spacy.blank("en")


@pytest.fixture(scope="session")
def add(nlp):
    def add(doc, key, spans, scores=None):
        """Spans are (start token, end token, label)."""
        group = [Span(doc, start, end, label=label) for start, end, label in spans]
        attrs = {} if scores is None else {"scores": scores}
        doc.spans[key] = SpanGroup(doc, name=key, spans=group, attrs=attrs)
        return doc

    return add
