"""Work done once in a process that Spark keeps for its tasks, or for planning."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_txnlog.read import reading

pytestmark = pytest.mark.slow

_RARE = {"pyspark_txnlog.read.pushdown"}
"""Loaded on the driver only."""


_WORKER = "from pyspark_txnlog.read import reading; reading.settle_worker()"
_PLANNER = "from pyspark_txnlog import DefaultSource; DefaultSource({'subscribe': 'orders'}).schema()"


def _settled_says(expression: str, how: str = _WORKER) -> list[str]:
    """Return the words that a new process prints of an expression once it is settled."""
    script = f"import gc, sys; {how}; print(*{expression})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_settled_worker_has_loaded_what_its_tasks_import() -> None:
    """Behind that, each collection of garbage would look at it: an eighth of the time of a task that reads much."""
    functions = [each for each in ast.walk(ast.parse(Path(reading.__file__).read_text())) if _is_function(each)]
    inside = [node for function in functions for node in ast.walk(function) if isinstance(node, ast.ImportFrom)]
    imported = {str(node.module) for node in inside}
    assert {"pyspark_txnlog.read.arrow_rows", "pyspark_txnlog.read.planning"} <= imported
    assert imported - _RARE <= {*_settled_says("sys.modules")}


@pytest.mark.parametrize("how", [_WORKER, _PLANNER])
def test_the_collector_does_not_see_what_a_settled_process_has_loaded(how: str) -> None:
    frozen, seen = map(int, _settled_says("(gc.get_freeze_count(), len(gc.get_objects()))", how))
    assert seen < frozen / 10


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef)
