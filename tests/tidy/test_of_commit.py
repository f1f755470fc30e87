"""Each commit tries seeds and long tests of its own, and the same ones whenever it is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_runtime import running_version
from tests.harness import of_commit
from tests.harness.long_cases import long_but, one_in
from tests.harness.of_commit import (
    TENTHS,
    UNKNOWN,
    commit_here,
    first_seed,
    seeds,
    tenth_in_turn,
    tenth_of,
    unit_of,
)
from tests.harness.shares import SPARK, TREE, unit_of_work

COMMITS = [f"{number:040x}" for number in range(1, 200)]


def test_commits_begin_at_different_seeds() -> None:
    assert first_seed(COMMITS[0]) == first_seed(COMMITS[0])
    assert len({first_seed(commit) for commit in COMMITS}) > len(COMMITS) - 3


def test_seeds_follow_each_other_and_one_may_be_named(pytestconfig: pytest.Config, monkeypatch) -> None:
    monkeypatch.setattr(pytestconfig.option, "seed", None)
    first = first_seed(pytestconfig.getoption("--commit"))
    assert seeds(pytestconfig, 3) + seeds(pytestconfig, 2, behind=3) == list(range(first, first + 5))
    monkeypatch.setattr(pytestconfig.option, "seed", 7)
    assert seeds(pytestconfig, 3) == [7]


def test_every_tenth_has_its_turn() -> None:
    turns = [tenth_in_turn(commit) for commit in COMMITS]
    assert set(turns) == set(range(TENTHS))


@pytest.mark.parametrize("case", range(3))
def test_each_case_is_in_a_tenth_by_itself(case: int, request: pytest.FixtureRequest) -> None:
    assert unit_of(request.node) == request.node.nodeid
    assert request.node.nodeid.endswith(f"[{case}]")
    assert tenth_of(request.node) in range(TENTHS)


@pytest.fixture(scope="module")
def made_once() -> int:
    return 1


@pytest.mark.usefixtures("made_once")
def test_tests_that_share_what_is_made_for_their_module_are_in_one_tenth(request: pytest.FixtureRequest) -> None:
    assert unit_of(request.node) == request.node.nodeid.partition("::")[0]


def test_a_tree_that_does_not_say_its_commit_has_one_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_commit, "_ROOT", tmp_path)
    assert commit_here() == UNKNOWN
    (tmp_path / ".git_archival.txt").write_text(f"commit: {'ab' * 20}\ncommitted: 1\n")
    assert commit_here() == "ab" * 20
    assert running_version.commit_of(tmp_path).hash == "ab" * 20


def test_one_case_in_so_many_is_short() -> None:
    def is_long(case) -> bool:
        return [mark.name for mark in getattr(case, "marks", ())] == ["long"]

    assert [is_long(case) for case in one_in(3, [(at,) for at in range(7)])] == [False, True, True] * 2 + [False]
    assert [is_long(case) for case in long_but(lambda case: case == 1, range(3))] == [True, False, True]


def test_what_belongs_together_is_shared_out_together() -> None:
    """Files that say what they need: a Spark session, something that is made once, or neither."""
    units = [unit_of_work(f"tests/spark/test_{name}.py::test_it[a::b]") for name in ("source", "sink", "stream_source")]
    assert set(units) == {SPARK}
    assert {unit_of_work(f"tests/tidy/test_{name}.py::test_it") for name in ("values", "words", "sizes")} == {TREE}
    assert unit_of_work("tests/docs/test_readme.py::test_it") == "tests/docs/test_readme.py"
    assert unit_of_work("tests/store/test_crash_at_every_step.py::test_it") == "tests/store/test_crash_at_every_step.py"
    assert unit_of_work("tests/log/test_append.py::test_it") == "tests/log/test_append.py"
    assert unit_of_work("tests/server/test_process.py::test_it[1]") == "tests/server/test_process.py::test_it[1]"


def test_every_test_with_the_session_is_in_its_unit(request: pytest.FixtureRequest) -> None:
    """Looks at the tests of this run."""
    of_session = [item for item in request.session.items if item.path.parent.name == "spark"]
    users = [item for item in of_session if "spark" in getattr(item, "fixturenames", ())]
    assert {unit_of_work(item.nodeid) for item in users} <= {SPARK}
