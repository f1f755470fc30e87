"""Counts of the product's size."""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath

import pytest

from scripts.statements import count_packages, is_product, main, sources_of_commit, sources_of_tree, statements, table


def test_statements_count_wherever_they_stand_and_documentation_does_not() -> None:
    assert (
        statements(
            '''
"""Of the module."""
A = 1
"""Of the constant."""

def f(x):  # one
    """Of the function."""
    if x: return A  # two
    print("no documentation",
          x)  # one

class C:
    "Of the class."
'''
        )
        == 6
    )


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("txn_coordinator/rules.py", True),
        ("txnctl/commands/serve.py", True),
        ("native_transport/build.py", True),
        ("txn_coordinator/rules.pyi", False),
        ("proto/coordinator_api/v1/log_pb2.py", False),
        ("tests/log/test_fetch.py", False),
        ("setup.py", False),
        (".ci/run.py", False),
    ],
)
def test_what_is_written_for_users_counts(path: str, counts: bool) -> None:
    assert is_product(PurePosixPath(path)) is counts


def test_a_commit_is_counted_as_it_was_and_the_tree_as_it_lies(tmp_path: Path) -> None:
    package = tmp_path / "txn_coordinator"
    package.mkdir()
    (package / "rules.py").write_text("A = 1\n")
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-q", "-m", "one"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    (package / "rules.py").write_text("A = 1\nB = 2\n")
    (package / "state.py").write_text("C = 3\n")
    assert count_packages(sources_of_commit(tmp_path, "HEAD")) == {"txn_coordinator": 1}
    assert count_packages(sources_of_tree(tmp_path)) == {"txn_coordinator": 3}
    with pytest.raises(SystemExit, match=r"git archive failed: .*no-such-commit"):
        list(sources_of_commit(tmp_path, "no-such-commit"))


def test_the_table_ends_with_the_sum() -> None:
    assert table({"a": 1_200, "b": 34})[2:] == ["| a | 1,200 |", "| b | 34 |", "| all | 1,234 |"]


def test_this_tree_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    printed = capsys.readouterr().out
    for package in ("txn_coordinator", "coordinator_server", "coordinator_client", "pyspark_txnlog", "txnctl"):
        assert f"| {package} | " in printed
    assert "bench" not in printed
