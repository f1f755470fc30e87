"""The profile that is computed from samples."""

from __future__ import annotations

import json
from pathlib import Path

from bench.profile import Profile, read, tables

STACKS = {
    ("a.rules:decide", "a.service:end", "asyncio.runners:Runner.run"): 30,
    ("a.codec:encode", "a.service:end", "asyncio.runners:Runner.run"): 50,
    ("asyncio.runners:Runner.run",): 20,
}


def cells(lines: list[str], name: str) -> list[str]:
    return next([cell.strip() for cell in line.split("|")[2:-1]] for line in lines if line.startswith(f"| {name} |"))


def test_samples_become_microseconds_per_transaction() -> None:
    lines = tables(Profile(1_000, {"the loop": 200.0, "commit": 30.0}, 200.0, STACKS))
    assert cells(lines, "commit") == ["30.0"]
    assert cells(lines, "a.codec") == ["100.0", "50%"]
    assert cells(lines, "a.rules:decide") == ["60.0", "60.0"]
    assert cells(lines, "(uvloop and gRPC, in C)") == ["40.0", "20%"]


def test_a_part_counts_once_with_all_that_it_calls_in_the_time_of_all_threads() -> None:
    found = Profile(1_000, {"the loop": 200.0, "commit": 50.0}, 200.0, STACKS)
    assert found.share_of(["a.service"]) == 0.8 * 200 / 250
    assert found.share_of(["a.rules", "a.codec"]) == 0.8 * 200 / 250
    assert found.share_of(["a.ser"]) == 0, "a beginning of a name is another module"


def test_threads_have_their_python_names_and_only_what_they_spent_meanwhile(tmp_path: Path) -> None:
    written = {"threads": {"7": "MainThread", "8": "commit"}, "loop": 7, "stacks": [[3, ["a:f"]]]}
    file = tmp_path / "stacks.json"
    file.write_text(json.dumps(written))
    before = {7: ("python", 1.0), 8: ("python", 0.5)}
    after = {7: ("python", 1.5), 8: ("python", 0.6), 9: ("rocksdb:low", 0.01)}
    found = read(file, before, after, transactions=1_000)
    assert {name: round(us, 6) for name, us in found.threads_us.items()} == {
        "the loop": 500,
        "commit": 100,
        "rocksdb:low": 10,
    }
    assert (found.loop_us, found.samples) == (500, 3)
