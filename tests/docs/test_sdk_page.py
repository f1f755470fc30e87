"""The programs of the page about the SDK print what it says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from coordinator_client import Admin, AsyncAdmin
from tests.docs.fences import ROOT, programs
from tests.harness import forked

PAGE = "docs/sdk.md"


@pytest.mark.slow
def test_the_programs_print_what_the_page_says(endpoint: str, tmp_path: Path) -> None:
    for block, promised in programs(PAGE):
        source = block.text.replace("127.0.0.1:7070", endpoint)
        done = forked.run([sys.executable, "-c", source], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == (promised, ""), block.place


def test_the_calls_of_administrators_are_there() -> None:
    table = (ROOT / PAGE).read_text().partition("## Administration")[2].partition("##")[0]
    named = re.findall(r"`(\w+)`", table.partition("| --- |")[2])
    there = {name for name in vars(Admin) if not name.startswith("_") and name != "close"}
    assert sorted(named) == sorted(there), "the table has each call once"
    assert [name for name in named if not hasattr(AsyncAdmin, name)] == []
