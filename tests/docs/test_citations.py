"""Sources of rules that the code names can be looked up: every section of the specification is there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.docs.fences import ROOT
from tests.tidy.tree import text_files

SPEC = ROOT / "docs" / "spec"
PAGES = sorted(path.stem for path in SPEC.glob("*.md") if path.stem != "README")
WRAPPED = re.compile(r"\s*\n\s*(?:#|//+|\*)?\s*")
CITATION = re.compile(r"\b(?:spec|design)\b[^;:()\"]{0,80}")
SECTIONS = re.compile(r"\b(" + "|".join(PAGES) + r") ((?:\d+(?:\.\d+)*)(?:(?:, and|,| and) \d+(?:\.\d+)+)*)")
SUFFIXES = {".py", ".proto", ".rs"}


def citations() -> Iterator[tuple[str, str, str]]:
    """File, page and section of each."""
    for path in text_files():
        if path.suffix not in SUFFIXES or "docs" in path.parts:
            continue
        for cited in CITATION.findall(WRAPPED.sub(" ", path.read_text())):
            for page, sections in SECTIONS.findall(cited):
                for section in re.findall(r"\d+(?:\.\d+)*", sections):
                    yield str(path.relative_to(ROOT)), page, section


@cache
def headings(page: str) -> dict[str, str]:
    """The text below each numbered heading of a page, by its number."""
    parts = re.split(r"^#+ +(\d+(?:\.\d+)*)\.? ", (SPEC / f"{page}.md").read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def is_there(page: str, section: str) -> bool:
    """Return whether the page has the section, as a heading or as a numbered point below the heading before the last
    dot."""
    above, _, point = section.rpartition(".")
    below = headings(page).get(above, "")
    return section in headings(page) or re.search(rf"(?<!\S)({re.escape(section)}|{point}\.) ", below) is not None


def test_the_source_of_a_rule_can_be_looked_up() -> None:
    cited = list(citations())
    assert len(cited) > 300, "the pattern does not find them any more"
    assert sorted({each for each in cited if not is_there(each[1], each[2])}) == []


@pytest.mark.parametrize(
    ("page", "section", "expected"),
    [("groups", "2.4", True), ("groups", "2.4.4", True), ("groups", "2.99", False), ("design", "6", True)],
)
def test_a_section_that_is_not_there_is_noticed(page: str, section: str, *, expected: bool) -> None:
    assert is_there(page, section) is expected
