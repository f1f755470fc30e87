"""Snapshots by the SDK, against a real server in this process."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from coordinator_client import Admin, Producer, Rejected, Snapshot, read
from coordinator_protocol.errors import ErrorCode
from tests.harness.threaded_server import threaded_server


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with threaded_server() as address:
        yield address


def values(address: str, snapshot: Snapshot, since: Snapshot | None = None) -> list[bytes | None]:
    return sorted(record.value or b"" for record in read("t", address, snapshot=snapshot, since=since))


def test_a_snapshot_and_what_comes_after_it_are_read(address: str) -> None:
    with (
        Admin(address) as admin,
        Producer(address, transactional_id="a") as older,
        Producer(address, transactional_id="b") as newer,
    ):
        admin.create_topic("t", 2)
        with older.transaction() as of_older:
            for partition in (0, 1):
                of_older.send("t", b"old", partition=partition)
            of_older.flush()
            with newer.transaction() as of_newer:
                for partition in (0, 1):
                    of_newer.send("t", b"new", partition=partition)
            first = admin.take_snapshot(["t"])
            assert values(address, first) == [b"new", b"new"]
            assert not list(read("t", address))
        later = admin.take_snapshot(["t"], lease_ms=0)
        assert values(address, later) == [b"new", b"new", b"old", b"old"]
        assert values(address, later, first) == [b"old", b"old"]
        assert values(address, pickle.loads(pickle.dumps(first))) == [b"new", b"new"]
        with pytest.raises(Rejected, match="not later"):
            list(read("t", address, snapshot=first, since=later))
        admin.renew_snapshot(first)
        admin.release_snapshot(first)
        with pytest.raises(Rejected, match="lease ran out") as refusal:
            admin.release_snapshot(first)
        assert refusal.value.code == ErrorCode.SNAPSHOT_NOT_FOUND
        admin.delete_topic("t")
        admin.create_topic("t", 2)
        with pytest.raises(Rejected, match="topic"):
            values(address, later)
        with pytest.raises(Rejected, match="created again"):
            values(address, admin.take_snapshot(["t"]), later)


def test_what_contradicts_a_snapshot_is_refused_here(address: str) -> None:
    snapshot = Snapshot(snapshot_id=b"", topic_ids={}, views={})
    with pytest.raises(Rejected, match="leave out isolation"):
        read("t", address, snapshot=snapshot, raw=True)
    with pytest.raises(Rejected, match="since is compared"):
        read("t", address, since=snapshot)
    with pytest.raises(Rejected, match="take one of what you read"):
        list(read("elsewhere", address, snapshot=snapshot))
    with Admin(address) as admin, pytest.raises(Rejected, match="at least one topic"):
        admin.take_snapshot([])
