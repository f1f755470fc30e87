"""The length of the path of a call: the functions that count, and that the command measures this tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import CodeType

import pytest

from bench.path import GENERAL, WANTED, Figures, figures_of, listed, steps_of, table

ROOT = Path(__file__).resolve().parents[2]


def code_in(path: str, source: str) -> CodeType:
    """The first function of a source that would lie there."""
    module = compile(source, path, "exec")
    return next(constant for constant in module.co_consts if isinstance(constant, CodeType))


def test_only_functions_of_the_server_count_each_of_them_once() -> None:
    decide = code_in("/tree/txn_coordinator/shard.py", "def decide():\n    pass")
    parse = code_in("/tree/coordinator_server/grpc_front/dispatcher.py", "def parse():\n    pass")
    judge = code_in("/tree/txn_coordinator/shard.py", "\n\ndef judge():\n    pass")
    others = [
        code_in(path, "def other():\n    pass")
        for path in (
            "/tree/proto/coordinator_api/v1/log_pb2.py",
            "/tree/coordinator_api/v1/log_pb2.py",
            "/tree/bench/path.py",
            "/usr/lib/coordinator_server/grpc_front/dispatcher.py",
        )
    ]
    steps = steps_of([parse, decide, *others, decide, judge], Path("/tree"))
    assert [(step.file, step.name) for step in steps] == [
        ("coordinator_server/grpc_front/dispatcher.py", "parse"),
        ("txn_coordinator/shard.py", "decide"),
        ("txn_coordinator/shard.py", "judge"),
    ]
    assert figures_of(steps) == Figures(functions=3, files=2, changes=1)


def test_a_way_is_listed_by_file_in_the_order_of_the_first_entry() -> None:
    decide = code_in("/tree/txn_coordinator/shard.py", "def decide():\n    pass")
    encode = code_in("/tree/coordinator_runtime/rows.py", "def encode():\n    pass")
    judge = code_in("/tree/txn_coordinator/shard.py", "\n\ndef judge():\n    pass")
    assert listed(steps_of([decide, encode, judge], Path("/tree"))) == [
        "txn_coordinator/shard.py",
        "    decide (line 1)",
        "    judge (line 3)",
        "coordinator_runtime/rows.py",
        "    encode (line 1)",
    ]


def test_the_table_says_which_ways_are_too_long() -> None:
    wanted = WANTED["Fetch"]
    (short,) = table({"Fetch": wanted})[2:]
    (long,) = table({"Fetch": wanted._replace(files=wanted.files + 1)})[2:]
    assert "too long" not in short
    assert "too long" in long


@pytest.mark.parametrize(
    ("before", "reason"),
    [("pass", "holds no coordinator_server: name the root of a working tree"), ("import partition_log", "too late")],
)
def test_the_product_is_chosen_before_it_is_imported_and_must_be_there(
    before: str, reason: str, tmp_path: Path
) -> None:
    program = (
        f"{before}\nimport sys, pathlib\nfrom bench.inside import use_product\nuse_product(pathlib.Path(sys.argv[1]))"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert reason in done.stderr


@pytest.mark.parametrize("call", ["EndTxn", f"EndTxn{GENERAL}"])
@pytest.mark.slow
@pytest.mark.long
def test_the_way_of_an_end_leads_through_everything_that_takes_part(call: str) -> None:
    command = [sys.executable, "-m", "bench.path", "--list", call]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    head, *lines = done.stdout.splitlines()
    functions = [line for line in lines if line.startswith(" ")]
    files = [line for line in lines if not line.startswith(" ")]
    assert head.startswith(f"{call}: {len(functions)} functions in {len(files)} files, ")
    assert any("fast_path.py" in file for file in files) is (call == "EndTxn")
    assert files[0].startswith("coordinator_server/")
    for package in ("txn_coordinator", "partition_log", "group_coordinator", "coordinator_runtime"):
        assert any(file.startswith(package) for file in files), f"nothing of {package} was entered"


@pytest.mark.slow
def test_no_way_is_longer_than_we_want() -> None:
    """Work in the background may fall into every turn that is counted: the shortest of three looks counts."""
    command = [sys.executable, "-m", "bench.path", "--wanted"]
    for _again in range(3):
        look = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if look.returncode == 0:
            return
    pytest.fail(look.stdout + look.stderr)
