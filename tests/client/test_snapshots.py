"""Snapshots by the SDK, against a real server in this process."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace

import pytest
from msgspec import structs

from coordinator_api.v1 import log_pb2
from coordinator_client import Admin, Producer, Rejected, Snapshot, TopicPartition, read
from coordinator_client.reading.batch_reader import filter_message
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.snapshots import CompactionProgress, SnapshotFilter
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
        admin.delete_topic("t")


def test_each_range_carries_the_progress_of_compaction(address: str) -> None:
    progress = CompactionProgress(7, 3)
    with Admin(address) as admin:
        admin.create_topic("t", 1)
        taken = admin.take_snapshot(["t"], lease_ms=0)
        assert taken.views["t", 0].compaction == CompactionProgress(), "it was never compacted"
        view = structs.replace(taken.views["t", 0], end_offset=9, excluded={1: 2}, compaction=progress)
        later = replace(taken, views={("t", 0): structs.replace(view, end_offset=12, excluded={})})
        ranges = [*replace(taken, views={("t", 0): view}).ranges("t"), *later.ranges("t", since=taken)]
        sent = [filter_message(each.shown) for of_one in ranges for each in of_one]
        assert len(sent) == 2
        assert {(each.compaction.end_offset, each.compaction.position) for each in sent if each} == {progress}
        assert filter_message(SnapshotFilter()) == log_pb2.SnapshotFilter(), "not checked"
        admin.delete_topic("t")


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


def test_leases_are_refused_by_their_codes(address: str) -> None:
    with Admin(address) as admin:
        admin.create_topic("leased", 1)
        held = admin.take_snapshot(["leased"], lease_ms=3_600_000)
        for ask, code in (
            (lambda: admin.take_snapshot(["leased"], lease_ms=3_600_001), ErrorCode.INVALID_REQUEST),
            (lambda: admin.renew_snapshot(held, lease_ms=3_600_001), ErrorCode.INVALID_REQUEST),
            (lambda: admin.renew_snapshot(held, lease_ms=0), ErrorCode.INVALID_REQUEST),
            (lambda: admin.renew_snapshot(replace(held, snapshot_id=b"x")), ErrorCode.SNAPSHOT_NOT_FOUND),
            (lambda: admin.take_snapshot(["absent"]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ):
            with pytest.raises(Rejected) as refusal:
                ask()
            assert refusal.value.code == code
        admin.release_snapshot(held)


def test_records_stay_while_a_snapshot_is_held(address: str) -> None:
    with Admin(address) as admin, Producer(address, transactional_id="holds") as producer:
        admin.create_topic("t", 1)
        with producer.transaction() as transaction:
            transaction.send("t", b"kept", partition=0)
        held = admin.take_snapshot(["t"])
        (deleted,) = admin.delete_records({TopicPartition("t", 0): -1}).values()
        assert deleted.held_back
        assert values(address, held) == [b"kept"]
        admin.release_snapshot(held)
        (deleted,) = admin.delete_records({TopicPartition("t", 0): -1}).values()
        assert not deleted.held_back
        with pytest.raises(Rejected) as refusal:
            values(address, held)
        assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        admin.delete_topic("t")


def test_a_delta_from_a_line_that_is_not_this_one_is_refused_even_where_it_is_empty(address: str) -> None:
    with Admin(address) as admin:
        admin.create_topic("t", 1)
        later = admin.take_snapshot(["t"], lease_ms=0)
        view = structs.replace(later.views["t", 0], leader_epoch=later.views["t", 0].leader_epoch + 1)
        with pytest.raises(Rejected, match="is not all in this log"):
            values(address, later, replace(later, views={("t", 0): view}))
        admin.delete_topic("t")
