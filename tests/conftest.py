"""Setup of every test run: tests that need Java say so, and a machine without it skips them aloud."""

from __future__ import annotations

import functools
import gc
import os
import signal

import pytest
from hypothesis import settings
from xdist.remote import Producer

from scripts.java import java_problem
from tests.harness.checked_loop import CheckedLoop
from tests.harness.combinations import Combination, chosen, row_in_turn, rows_of
from tests.harness.engines import ENGINE_VARIABLE, ENGINES, NATURAL, SLATE, close_shelves
from tests.harness.of_commit import TENTHS, commit_here, first_seed, tenth_in_turn, tenth_of
from tests.harness.shares import Shares

# pytest finds its hooks by their names here.
from tests.harness.watchdog import pytest_timeout_set_timer as pytest_timeout_set_timer

java_problem_here = functools.cache(java_problem)
IS_CI = os.environ.get("CI", "").lower() in {"1", "true"}

# As the SDK sets it when it is imported, in case something else brings gRPC in before: its handlers crash children.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# Spark's Java machines live for a minute here, and take a third less of it when they compile less and collect garbage
# with one thread. A user's own options win.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# A shell starts what it puts into the background with SIGINT ignored, and processes pass that on: the commands that the
# tests interrupt would never hear of it. With a handler here, they start with the default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# So does nohup with SIGHUP. The default would end this run with its terminal, which nohup is there to prevent: here a
# handler lets it pass, and the processes that are started from here have the default.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda _number, _frame: None)

# No deadline: the time of an example says more about the machine than about us. And a gate must say the same twice: in
# CI Hypothesis draws the same examples for the same commit, new ones elsewhere. Four times as many are for the long
# tests.
settings.register_profile("quick", deadline=None, max_examples=25, **({"database": None} if IS_CI else {}))
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=100)
settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write what happens into tests/scenarios/*.txt")
    parser.addoption("--seed", type=int, default=None, help="run the simulation with this seed only")
    parser.addoption("--commit", default=None, help="try the seeds of the commit with this hash, not of the one here")
    parser.addoption(
        "--engine",
        default=NATURAL,
        choices=ENGINES,
        help="the engine below worlds and servers (tests/harness/engines.py)",
    )
    parser.addoption(
        "--tenth",
        default="",
        choices=["", "turn", *map(str, range(TENTHS))],
        help="of the tests that are selected, run this tenth, or (turn) the one whose turn it is by the commit",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Find out the commit once, before workers are started and Hypothesis looks for its seed."""
    option = config.option
    if option.engine != NATURAL:
        os.environ[ENGINE_VARIABLE] = option.engine
    option.commit = option.commit or commit_here()
    if option.tenth == "turn":
        option.tenth = str(tenth_in_turn(option.commit))
    if IS_CI and option.hypothesis_seed is None:
        option.hypothesis_seed = str(first_seed(option.commit))


def pytest_report_header(config: pytest.Config) -> str:
    commit, tenth = config.option.commit, config.option.tenth
    of_tenth = f", tenth {tenth} of the tests (0 to {TENTHS - 1})" if tenth else ""
    return f"seeds from {first_seed(commit)} on{of_tenth}: --commit {commit} repeats it"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Three workers for two cores where tests start processes, because they wait for a third of the time; else None,
    which means as many as cores."""
    return max(1, len(os.sched_getaffinity(0)) * 3 // 2) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Shares | None:
    return Shares(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories() -> dict[str, type[CheckedLoop]]:
    return {"checked": CheckedLoop}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the other tenths out, and tests that copy a store if it is in a bucket."""
    if config.option.engine == SLATE:
        for item in items:
            if item.get_closest_marker("copies_store"):
                item.add_marker(pytest.mark.skip(reason="a store in a bucket is not copied"))
    if not config.option.tenth:
        return
    tenth = int(config.option.tenth)
    left_out = [item for item in items if tenth_of(item) != tenth]
    kept = [item for item in items if tenth_of(item) == tenth]
    # A demo takes minutes. Begun last, it would be waited for by all workers.
    items[:] = sorted(kept, key=lambda item: item.path.parent.name != "demo")
    config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Look for no garbage while modules are imported: nearly all that they make stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave the modules and tests, which stay until the end, out of all later collections of garbage."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let each test that uses one of the fixtures run in its rows, which its name then tells."""
    if "every_combination" in metafunc.fixturenames:
        rows = rows_of(metafunc.definition, first_seed(metafunc.config.option.commit))
        metafunc.parametrize("every_combination", rows, indirect=True, ids=str)
    if "combination" in metafunc.fixturenames:
        row = row_in_turn(metafunc.module, metafunc.function.__name__)
        metafunc.parametrize("combination", [row], indirect=True, ids=str)


def pytest_runtest_teardown() -> None:
    """Close the stores of the test's worlds."""
    close_shelves()


@pytest.fixture
def every_combination(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Combination:
    """The choices of every server that the test starts, but for those that it makes itself: all rows of the libraries
    that are installed. `make test` has one of them, another one with another commit, unless the test kills servers; all
    others are long. `make lowest` has those of the other libraries."""
    return chosen(request.param, monkeypatch)


@pytest.fixture
def combination(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Combination:
    """The same with one row, whose turn it is in the module, for tests that take long."""
    return chosen(request.param, monkeypatch)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs Java where there is none; in CI a skipped test would be a broken promise, so it fails."""
    if not any(item.iter_markers("requires_java")) and not any(item.iter_markers("spark")):
        return
    problem = java_problem_here()
    if problem is None:
        return
    if IS_CI:
        pytest.fail(problem, pytrace=False)
    pytest.skip(problem)
