"""No test gives up because the machine is slow: no wait of a test has a limit of its own, and the watchdog knows what
hangs from what is busy."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import patience
from tests.harness.watchdog import (
    IDLE_SHARE,
    LIMITS_MAX,
    LOOKS_PER_LIMIT,
    Watchdog,
    spent_by_this_and_its_children,
)
from tests.tidy.tree import ROOT, files_of_tests, found_by, judges_modules, nodes_of, shown

WAITING = {"communicate", "join", "result", "select", "timeout", "wait", "wait_for"}
"""Calls whose only or last positional number, where they have one, is a limit."""

LIMITS = re.compile(r"\w*(DEADLINE|TIMEOUT|WAIT|PATIENCE)\w*_(S|SECONDS)(_MAX)?")

DEADLINE_IS_THE_SUBJECT = {
    "tests/server/test_grpc_transport.py": 2,  # one that passes, and one that the server must hear of
    "tests/server/test_native_module.py": 1,  # one of years
}


def test_no_test_waits_for_a_number_of_seconds() -> None:
    found = {
        shown(path): lines
        for path, lines in found_by(limits).items()
        if path in files_of_tests()
        and shown(path) != "tests/harness/patience.py"
        and len(lines) != DEADLINE_IS_THE_SUBJECT.get(shown(path))
    }
    assert not found, f"waits are for hangs and not for speed, see tests/harness/patience.py: {found}"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("subprocess.run(command, timeout=60)", [1]),
        ("stub.EndTxn(request, timeout=DEADLINE_SECONDS)", []),
        ("process.wait(30)", [1]),
        ("process.wait()", []),
        ("async def f():\n    async with asyncio.timeout(30):\n        pass", [2]),
        ("await_it = asyncio.wait_for(answer, 5.0)", [1]),
        ("select.select([], [], [], 0)", []),
        ("answers.get(timeout=10)", [1]),
        ("DEADLINE_SECONDS: Final = 30.0", [1]),
        ("START_TIMEOUT_S = 30", [1]),
        ("TIMEOUT_MS = 60_000", []),
    ],
)
def test_a_limit_is_recognised(source: str, lines: list[int]) -> None:
    assert limits(ast.parse(source)) == lines


@judges_modules
def limits(module: ast.Module) -> list[int]:
    """The lines that say how many seconds to wait."""
    return sorted({node.lineno for node in nodes_of(module) if _is_limit(node)})  # type: ignore[attr-defined]


def _is_limit(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr=name), args=[*_, last]) if name in WAITING and _is_number(last):
            return True
        case ast.Call(keywords=keywords):
            return any(each.arg == "timeout" and _is_number(each.value) for each in keywords)
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_number(value):
            return LIMITS.fullmatch(name) is not None
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant() as value) if _is_number(value):
            return LIMITS.fullmatch(name) is not None
        case _:
            return False


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value > 0


# The watchdog on the time that processes used


def complaints(spent: Iterator[float | None], steps: int) -> list[tuple[int, str]]:
    """Return the complaints of a watchdog with a limit of 100 s, and the step of each."""
    watchdog = Watchdog(100, lambda: next(spent))
    return [(step, told) for step in range(1, steps + 1) if (told := watchdog.complaint()) is not None]


def test_a_test_that_uses_no_time_hangs() -> None:
    ((step, told),) = complaints(iter([5.0] * 99), LOOKS_PER_LIMIT + 1)
    assert step == LOOKS_PER_LIMIT
    assert told == "hangs: 0.00 s of processor time in the last 100 s"


def test_it_is_ended_as_long_after_it_came_to_a_halt_as_the_limit_says() -> None:
    working = [float(at) for at in range(25)]
    ((step, _),) = complaints(iter(working + [24.0] * 99), 24 + LOOKS_PER_LIMIT)
    assert step == 24 + LOOKS_PER_LIMIT


def test_a_test_that_gets_little_is_waited_for() -> None:
    each_step = 100 * IDLE_SHARE / LOOKS_PER_LIMIT
    assert complaints((at * each_step * 1.01 for at in range(9_999)), LOOKS_PER_LIMIT * LIMITS_MAX - 1) == []


def test_a_process_that_was_killed_takes_nothing_from_what_was_done() -> None:
    """Its use is gone from the sum, without a parent that waits for it."""
    working = [*(float(at) for at in range(40)), *(float(at) for at in range(5, 50))]
    assert complaints(iter(working), LOOKS_PER_LIMIT * LIMITS_MAX - 1) == []


@pytest.mark.parametrize("spent", [1.0, None])
def test_what_works_in_vain_is_ended_at_last(spent: float | None) -> None:
    used = (None if spent is None else at * spent for at in range(9_999))
    ((step, told),) = complaints(used, LOOKS_PER_LIMIT * LIMITS_MAX)
    assert step == LOOKS_PER_LIMIT * LIMITS_MAX
    assert told == "is not done after 600 s"


def test_what_cleans_up_is_given_the_same_time_again() -> None:
    assert [step for step, _ in complaints(iter([5.0] * 99), LOOKS_PER_LIMIT * 2)] == [10, 20]


# On real processes


@pytest.mark.slow
def test_the_time_of_children_counts_while_they_run_and_once_they_are_gone() -> None:
    before = spent_by_this_and_its_children()
    assert before is not None
    program = "import sys, time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\nsys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        while_it_runs = spent_by_this_and_its_children()
        child.communicate()
    once_it_is_gone = spent_by_this_and_its_children()
    assert while_it_runs is not None
    assert once_it_is_gone is not None
    # The system counts the time of a process that runs in ticks, for user and system each, and that of one that is gone
    # exactly.
    ticks = 2 / os.sysconf("SC_CLK_TCK")
    assert before + 0.4 < while_it_runs <= once_it_is_gone + ticks


TESTS = """
import subprocess, time
import pytest
from tests.harness.server_process import ServerProcess

def test_hangs(tmp_path):
    subprocess.run(["sh", "-c", "mkfifo pipe && read line < pipe"], cwd=tmp_path)

def test_waits_for_a_silent_server(tmp_path):
    (tmp_path / "silent.py").write_text("import os; print('hm', flush=True); os.read(os.pipe()[0], 1)")
    with ServerProcess(tmp_path / "data", module="silent"):
        raise AssertionError("it never says that it is ready")

def test_works_longer_than_the_limit():
    until = time.monotonic() + 4
    while time.monotonic() < until:
        pass
"""


@pytest.mark.slow
@pytest.mark.long
def test_a_run_ends_what_hangs_with_all_that_it_started_and_lets_others_work(tmp_path: Path) -> None:
    (tmp_path / "test_three.py").write_text(TESTS)
    options = ["-p", "tests.harness.watchdog", "-p", "no:cacheprovider", "--timeout", "3", "-c", "/dev/null"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "test_three.py", "-v"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "proto")])},
        capture_output=True,
        text=True,
        check=False,
    )
    verdicts = dict(re.findall(r"::(\w+) (PASSED|FAILED)", done.stdout))
    assert verdicts == {
        "test_hangs": "FAILED",
        "test_waits_for_a_silent_server": "FAILED",
        "test_works_longer_than_the_limit": "PASSED",
    }, done.stdout
    # On a busy machine the looks themselves use so much of so short a limit that they count as work, for a while.
    assert len(re.findall(r"of processor time in the last 3 s|is not done after 18 s", done.stdout)) >= 2
    assert "the server wrote:" in done.stdout
    assert "hm" in done.stdout


# Looking


def test_looking_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "LOOKING_SECONDS", 0.01)
    with pytest.raises(AssertionError, match="the moon: not what was waited for"):
        for _ in patience.looks("the moon"):
            pass


async def test_looking_gives_way() -> None:
    came = asyncio.Event()
    asyncio.get_running_loop().call_soon(came.set)
    await patience.until(came.is_set)
