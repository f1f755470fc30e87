"""The two small examples do the same job: one with the SDK, one with the generated stubs alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.docs.fences import ROOT


def run_example(name: str, endpoint: str) -> list[str]:
    command = [sys.executable, str(ROOT / "examples" / name), endpoint]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


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
