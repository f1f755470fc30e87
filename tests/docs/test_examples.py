"""The small examples, as their first lines say that they are run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.fences import ROOT
from tests.harness.flights import require_flights


def run_example(name: str, *arguments: str) -> list[str]:
    command = [sys.executable, str(ROOT / "examples" / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/[a-z]*.py")), ids=lambda path: path.name)
def test_every_example_says_how_it_is_called(path: Path) -> None:
    assert run_example(path.name, "--help")[0].startswith(f"usage: {path.name} ")


@pytest.mark.slow
def test_both_examples_book_the_good_transfer_and_hide_the_bad_one(endpoint: str) -> None:
    failed = "aborted: there is no account of nobody"
    # Each reads what the one before it wrote, so each encoding and each way of reading meets the other.
    assert [run_example(name, endpoint) for name in ("with_stubs.py", "with_sdk.py", "with_stubs.py")] == [
        [
            failed,
            f"read_uncommitted {{'alice': {-80 * runs}, 'bob': {30 * runs}}}",
            f"read_committed {{'alice': {-30 * runs}, 'bob': {30 * runs}}}",
        ]
        for runs in (1, 2, 3)
    ]


@pytest.mark.long
@pytest.mark.slow
def test_flights_are_copied_and_a_second_run_finds_nothing_left(endpoint: str) -> None:
    require_flights()
    assert run_example("copy_exactly_once.py", "--server", endpoint, "--flights", "300") == [
        "copied 300 records of flights-in to flights-out",
        "300 records, 0 missing, 0 too often, 0 wrong",
    ]
    assert run_example("copy_exactly_once.py", "--server", endpoint) == [
        "copied 0 records of flights-in to flights-out",
    ]
