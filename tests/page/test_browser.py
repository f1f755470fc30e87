"""The page in a real browser: hostile records, accessibility, keyboard, widths, no scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

from tests.harness.certificates import Authority
from tests.page import chromium
from tests.page.chromium import Chromium
from tests.page.filled import HOSTILE_GROUP, HOSTILE_ID
from tests.page.served import served_page
from tests.page.test_views import PAGES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("chromium"),
    pytest.mark.skipif(chromium.PROGRAM is None, reason=chromium.MISSING),
]

ALL: Final = [
    *PAGES,
    "/transaction?id=shipping-2",
    "/transaction?id=checkout-web-01",
    f"/transaction?id={quote(HOSTILE_ID)}",
    f"/group?id={quote(HOSTILE_GROUP, safe='')}",
    "/nothing",
]
TAB: Final = ("Tab", 9)
ENTER: Final = ("Enter", 13)


@pytest.fixture(scope="module")
def address(filled: str) -> Iterator[str]:
    with served_page(filled) as address:
        yield address


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("profile")) as browser:
        browser.look(1280)
        yield browser


def complaints(browser: Chromium) -> list[str]:
    """Return the browser's complaints about a page: scripts that ran or were blocked, and files that are not there."""
    said = []
    for event in browser.events:
        parameters = event.get("params", {})
        match event.get("method"):
            case "Log.entryAdded":
                entry = parameters["entry"]
                if "404" not in entry["text"]:
                    said.append(entry["text"])
            case "Runtime.exceptionThrown" | "Page.javascriptDialogOpening" | "Runtime.consoleAPICalled":
                said.append(json.dumps(parameters))
    return said


@pytest.mark.parametrize("path", ALL)
def test_nothing_foreign_happens(browser: Chromium, address: str, path: str) -> None:
    browser.open(address + path)
    foreign = "document.querySelectorAll('script, iframe, object, style, [onerror], [onmouseover], main img').length"
    assert browser.run(foreign) == 0
    assert browser.run("document.title") != "owned"
    assert browser.run("getComputedStyle(document.querySelector('h1')).display") != "none"
    assert complaints(browser) == []


CHECK: Final = """axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]})
.then(found => found.violations.map(each => ({
    rule: each.id, help: each.help, nodes: each.nodes.slice(0, 5).map(node => node.html.slice(0, 200)),
    why: each.nodes[0].failureSummary})))"""


def violations(browser: Chromium) -> list[dict[str, Any]]:
    browser.run((files("axe_core_python") / "axe.min.js").read_text() + "; null")
    found: list[dict[str, Any]] = browser.run(CHECK)
    return found


@pytest.mark.parametrize("is_dark", [False, pytest.param(True, marks=pytest.mark.long)], ids=["light", "dark"])
@pytest.mark.parametrize("path", ALL)
def test_a_page_breaks_no_rule_of_accessibility(browser: Chromium, address: str, path: str, is_dark: bool) -> None:
    browser.look(1280, is_dark=is_dark)
    browser.open(address + path)
    assert violations(browser) == []


def test_the_rules_find_something(browser: Chromium, address: str) -> None:
    browser.open(address + "/")
    browser.run("document.querySelector('main').innerHTML += '<img src=/x><p class=pale>x</p>'; null")
    assert "image-alt" in {each["rule"] for each in violations(browser)}


@pytest.mark.parametrize("width", [360, 768])
@pytest.mark.parametrize("path", ALL)
def test_a_narrow_window_scrolls_no_page_sideways(browser: Chromium, address: str, path: str, width: int) -> None:
    browser.look(width)
    browser.open(address + path)
    outside = "each.getBoundingClientRect().right > innerWidth + 1 && !each.closest('.scroll, .sections')"
    wide = (
        f"[...document.querySelectorAll('body *')].filter(each => {outside}).map(each => each.outerHTML.slice(0, 150))"
    )
    assert browser.run("document.documentElement.scrollWidth") <= width, browser.run(wide)
    browser.look(1280)


def focused(browser: Chromium) -> str:
    text: str = browser.run("document.activeElement.textContent.trim() || document.activeElement.name || ''")
    return text


def test_the_keyboard_reaches_everything_in_order(browser: Chromium, address: str) -> None:
    browser.open(address + "/transactions")
    browser.press(*TAB)
    assert focused(browser) == "Skip to the content"
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") != "none"
    reached = []
    for _key in range(200):
        browser.press(*TAB)
        if browser.run("document.activeElement === document.body"):
            break
        reached.append(browser.run("[...document.querySelectorAll('*')].indexOf(document.activeElement)"))
    assert reached == sorted(reached)
    able = "a[href]:not(.skip), button, input:not([type=hidden]), select, [tabindex='0']"
    assert len(reached) == browser.run(f"document.querySelectorAll(`{able}`).length")


def test_the_skip_link_leads_to_the_content(browser: Chromium, address: str) -> None:
    browser.open(address + "/topics")
    browser.press(*TAB)
    browser.press(*ENTER)
    assert browser.run("document.activeElement.id") == "content"


def test_a_page_needs_no_script_and_refreshes_itself(browser: Chromium, address: str) -> None:
    browser.open(address + "/pace?every=5&back=/topics")
    browser.without_scripts(True)
    try:
        browser.open(address + "/topics")
        browser.wait_for("Page.loadEventFired")
        assert browser.run("document.querySelectorAll('tbody tr').length") == 4
    finally:
        browser.without_scripts(False)
        browser.open(address + "/pace?every=off&back=/")


def test_the_form_for_a_login_is_for_everyone(browser: Chromium, tmp_path: Path) -> None:
    ca_file = Authority(tmp_path, "ca").ca_file
    with served_page("localhost:1", "--tls-ca-file", str(ca_file)) as address:
        for is_dark in (False, True):
            browser.look(360, is_dark=is_dark)
            assert browser.open(address + "/transactions") == 200
            assert browser.run("location.pathname") == "/login"
            assert violations(browser) == []
            assert browser.run("document.documentElement.scrollWidth") <= 360
        browser.look(1280)


def test_pictures_can_be_taken(browser: Chromium, address: str, tmp_path: Path) -> None:
    browser.open(address + "/")
    assert browser.picture().startswith(b"RIFF")
