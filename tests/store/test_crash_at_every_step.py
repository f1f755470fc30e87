"""A process may die before any step that changes a file of the store: what is left is opened, or its loss accepted, and
holds every group that was durable and nothing by halves."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator_runtime import rocks
from tests.store.damage import ROOT
from tests.store.dying import CHANGES, ROCKSDB_CHANGES

MODULES = [*Path(rocks.__file__).parent.glob("*.py")]
ON_PATHS = {"touch", "write_text", "write_bytes", "writelines"}
ELSEWHERE = {
    ("files.py", "_write"): "notes of damage: tests/store/test_damaged_files.py",
    (
        "segments.py",
        "delete",
    ): "on a thread of its own; what is left goes at the next start, as a file does in the story",
    ("segments.py", "_write_all"): "the rest of a short write: tests/store/test_segments.py",
}
"""Functions with a step outside the story, and the place that covers it."""


@pytest.fixture(scope="module")
def deaths() -> list[tuple[str, str, str, str]]:
    """File and function of each step, what it calls, and what was wrong."""
    # Files that a killed process has written are there after it, synced or not: the memory of the machine is disk
    # enough.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as scratch:
        command = [sys.executable, "-m", "tests.store.dying", scratch]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return [tuple(json.loads(line)) for line in ended.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.long
def test_what_a_death_leaves_is_whole(deaths: list[tuple[str, str, str, str]]) -> None:
    assert len(deaths) > 100
    assert [death for death in deaths if death[-1]] == []


@pytest.mark.slow
@pytest.mark.long
def test_no_step_of_the_product_is_left_out(deaths: list[tuple[str, str, str, str]]) -> None:
    """A new one belongs into the story of tests/store/dying.py."""
    passed = {(file, function) for file, function, *_ in deaths} | ELSEWHERE.keys()
    steps = {step for module in MODULES for step in _steps_in(module)}
    assert len(steps) > 12
    assert steps - passed == set()


def _steps_in(module: Path) -> Iterator[tuple[str, str]]:
    """Functions that call what changes a file: of `os`, of a path or of the database."""
    for function in ast.walk(ast.parse(module.read_text())):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if not isinstance(node, ast.Attribute):
                continue
            of = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
            is_step = node.attr in CHANGES - {"open", "replace"} if of == "os" else False
            is_step |= node.attr in ROCKSDB_CHANGES - {"close", "set_options"} and of in {
                "_database",
                "database",
                "meta",
            }
            if is_step or node.attr in ON_PATHS or (node.attr in {"mkdir", "unlink", "rename"} and of != "os"):
                yield module.name, function.name
