"""`txnctl cluster check-store` and `txnctl migrate`."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest

from coordinator_client import progress
from coordinator_runtime.rocks import open_store
from coordinator_runtime.slate.location import parse_location
from coordinator_runtime.slate.opening import open_slate_stopped
from coordinator_runtime.store import CommitGroup, Family
from coordinator_server.exits import ExitStatus
from tests.cli.terminal import Terminal
from tests.harness.object_store import ObjectServer


@pytest.fixture
def txnctl(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(monkeypatch)


def test_a_safe_store_passes_and_nothing_is_left_in_it(
    txnctl: Terminal, server: ObjectServer, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FIRST_MS", "LINE_MS"):
        monkeypatch.setattr(progress, name, 0)
    checked = txnctl("cluster", "check-store", address, "--rounds", "5", "-o", "json", "--progress").well()
    assert "checked 5 of 5 rounds (100%), " in checked.stderr
    report = checked.document
    assert [(row["check"], row["rounds"], row["violations"]) for row in report] == [
        ("create", 5, 0),
        ("update", 5, 0),
        ("metadata", 1, 0),
    ]
    assert not server.objects


def test_a_store_that_checks_first_and_writes_later_is_found_out(
    txnctl: Terminal, server: ObjectServer, address: str
) -> None:
    server.is_atomic = False
    ended = txnctl("cluster", "check-store", address, "--rounds", "3")
    assert ended.status == ExitStatus.PROBLEM
    assert "not safe: use another object store" in ended.stderr


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("ftp://bucket/x", "names no store: write s3://BUCKET/PREFIX"),
        ("memory:x", "is for tests: it can lose what was acknowledged"),
    ],
)
def test_other_places_are_refused(txnctl: Terminal, address: str, words: str) -> None:
    ended = txnctl("cluster", "check-store", address)
    assert ended.status == ExitStatus.STORE_REFUSED
    assert words in ended.stderr


def test_a_store_moves_into_a_bucket(
    txnctl: Terminal, server: ObjectServer, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.wall_seconds = None
    store = open_store(tmp_path / "data", shard_count=4)
    store.write([CommitGroup(1, [(Family.PRODUCERS, b"key", b"value")])])
    store.close()
    for name in ("FIRST_MS", "LINE_MS"):
        monkeypatch.setattr(progress, name, 0)
    moved = txnctl("--progress", "migrate", str(tmp_path / "data"), address).well()
    assert re.search(r"^copied (\d+) rows, [\s\S]*^compared \1 of \1 rows \(100%\), ", moved.stderr, re.MULTILINE)
    assert "rows copied and compared" in moved.stderr
    with closing(open_slate_stopped(parse_location(address))) as there:
        assert there.get(Family.PRODUCERS, b"key") == b"value"
    again = txnctl("migrate", str(tmp_path / "data"), address)
    assert again.status == ExitStatus.STORE_REFUSED
    assert "name another prefix" in again.stderr
    wrong = txnctl("migrate", str(tmp_path / "data"), str(tmp_path / "other"))
    assert "one of the two must be a directory, and the other an address" in wrong.stderr
