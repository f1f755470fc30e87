"""docs/spark.md names every option of the source, with the default that the source has."""

from __future__ import annotations

import re

from pyspark_txnlog.advice import ALIASES, OPTIONS
from tests.docs.fences import ROOT

PAGE = (ROOT / "docs/spark.md").read_text()


def test_the_page_has_a_row_for_each_option_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*?) ?\| (?=.* \| .* \|$)", PAGE, re.MULTILINE)
    assert dict(rows) == {name: option.default for name, option in OPTIONS.items()}


def test_the_page_names_what_is_understood_of_kafka() -> None:
    assert all(f"`{alias}`" in PAGE for alias in ALIASES)
