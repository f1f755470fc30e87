"""Targets of references in the documents exist: files, and the names in the code that they explain."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from tests.docs.fences import ROOT
from tests.tidy.tree import text_files

DOCUMENTS = [
    "README.md",
    "ARCHITECTURE.md",
    "docs/store-format.md",
    "docs/backup.md",
    "docs/compatibility.md",
    "docs/releasing.md",
    "docs/spark.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/clients.md",
    "docs/guarantees.md",
    "docs/recipes.md",
    "docs/tour.md",
    "docs/quotas.md",
    "docs/security.md",
]
PATH = re.compile(r"`((?!\.\.)[a-z_.*-]+(?:/[a-z_.0-9*-]+)+/?|[a-z_]+\.(?:py|proto|md|toml))`")
NAME = re.compile(r"`((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:\([^`]*\))?`")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")
PLACE = re.compile(r"\]\((?!https?:)([^)#]*)#([^)]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
PAGES = [path for path in text_files() if path.suffix == ".md"]


def test_links_lead_somewhere() -> None:
    links = [(page, target) for page in PAGES for target in LINK.findall(prose(page))]
    assert len(links) > 200, "the pattern does not find them any more"
    assert [link for link in links if not (link[0].parent / link[1]).exists()] == []


def test_links_into_pages_lead_to_a_heading() -> None:
    links = [
        (page, page.parent / target if target else page, place)
        for page in PAGES
        for target, place in PLACE.findall(prose(page))
    ]
    assert len(links) > 20, "the pattern does not find them any more"
    assert [link for link in links if link[2] not in places(link[1])] == []


def places(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(prose(page))}


def prose(page: Path) -> str:
    """A page without its blocks of code, in which a # begins a comment."""
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_paths_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    names = {path.name for path in text_files()}
    missing = [
        path for path in PATH.findall(text) if not (any(ROOT.glob(path.rstrip("/"))) if "/" in path else path in names)
    ]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_names_are_those_of_the_code(document: str) -> None:
    text = re.sub(r"```.*?```", "", (ROOT / document).read_text(), flags=re.DOTALL)
    # A name that ends in an underscore is the beginning of several names.
    named = [name for name in NAME.findall(text) if not name.endswith("_")]
    unknown = [name for name in named if not all(word in words_of_the_code() for word in name.split("."))]
    assert unknown == []


@functools.cache
def words_of_the_code() -> frozenset[str]:
    """All words of the sources, and all names of files and folders."""
    sources = (path.read_text() for path in text_files() if path.suffix in {".py", ".rs", ".proto", ".toml"})
    words = (word for source in sources for word in re.findall(r"\w+", source))
    return frozenset((*words, *(part for path in text_files() for part in _parts(path))))


def test_every_file_of_the_crate_says_what_it_is() -> None:
    crate = [path for path in text_files() if path.suffix == ".rs"]
    assert len(crate) > 20
    assert [path.name for path in crate if not path.read_text().startswith("//! ")] == []


def test_unsafe_code_is_counted() -> None:
    crate = [path.read_text() for path in text_files() if path.suffix == ".rs"]
    assert "two lines of `unsafe` code" in (ROOT / "SECURITY.md").read_text()
    assert sum(code.count("unsafe {") for code in crate) == 2


def _parts(path: Path) -> list[str]:
    return [*path.relative_to(ROOT).parts, path.stem, path.suffix.removeprefix(".")]


def test_every_decision_has_a_number_of_its_own_and_its_title_has_it_too() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    numbers = [path.name.partition("-")[0] for path in pages]
    assert len(set(numbers)) == len(numbers)
    assert [path.read_text().partition(".")[0] for path in pages] == [f"# {int(number)}" for number in numbers]


def test_a_decision_is_named_by_the_number_of_the_page_that_the_link_leads_to() -> None:
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        for said, page in re.findall(r"\[decision (\d+)\]\([^)]*?(\d{4})-", path.read_text()):
            assert int(said) == int(page), f"{path.name}: decision {said} leads to page {page}"


def test_a_decision_has_at_most_400_words() -> None:
    words = {path.name: len(path.read_text().split()) for path in (ROOT / "docs" / "decisions").glob("*.md")}
    assert {name: count for name, count in words.items() if count > 400} == {}
