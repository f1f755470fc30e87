"""Consumers of a real server process: what the fakes taught them must be true, in both protocols."""

# Under test is the exit of a `with`, so the block that raises has the length of a transaction.
# ruff: noqa: PT012

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from coordinator_client import Abortable, Admin, AsyncConsumer, Consumer, Misconfigured, Producer, TopicPartition
from coordinator_client.values import OffsetAndMetadata, TransactionOffsets
from coordinator_protocol.marker import Outcome
from tests.client.consumers import Diary, poll_all, values
from tests.harness import forked
from tests.harness.patience import looks
from tests.harness.server_process import ServerProcess

STEP_MS = 50
HEARTBEATS_MS, SESSION_MS = 600_000, 1_200_000
"""Interval of heartbeats, and session timeout. A member must learn of changes at once; its next heartbeat would be late
on any machine."""

pytestmark = pytest.mark.slow
both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    durations = {"heartbeat_interval_ms": HEARTBEATS_MS, "session_timeout_ms": SESSION_MS}
    settings = [f"group_consumer_{name}{end}={value}" for name, value in durations.items() for end in ("", "_max")]
    arguments = [part for each in settings for part in ("--set", each)]
    with ServerProcess(tmp_path_factory.mktemp("consumers") / "data", *arguments) as server:
        yield server


@pytest.fixture
def topic(shared: ServerProcess, request: pytest.FixtureRequest) -> str:
    """A topic of this test with four partitions; also the name of its group."""
    name = request.node.name.replace("[", ".").rstrip("]")[:200]
    with Admin(shared.address) as admin:
        admin.create_topic(name, 4)
    return name


def member(server: ServerProcess, topic: str, protocol: str = "consumer", *, listener=None, **options) -> Consumer:
    options = {"group_id": topic, "auto_offset_reset": "earliest", "heartbeat_wait_ms": HEARTBEATS_MS} | options
    if protocol == "classic":
        options |= {"heartbeat_interval_ms": HEARTBEATS_MS, "session_timeout_ms": SESSION_MS}
    consumer = Consumer(server.address, group_protocol=protocol, **options)
    consumer.subscribe([topic], listener=listener)
    return consumer


def append(server: ServerProcess, topic: str, *numbers: int) -> list[bytes]:
    """Commit these as records, spread over the partitions."""
    sent = [b"%d" % number for number in numbers]
    with Producer(server.address, transactional_id=topic) as producer, producer.transaction() as txn:
        for number, value in zip(numbers, sent, strict=True):
            txn.send(topic, value, partition=number % 4)
    return sent


def poll_until_shared(*members: Consumer, partitions: int = 4) -> list[bytes | None]:
    """Poll in turns until the members have all partitions, each some; return what they read meanwhile."""
    read: list[bytes | None] = []
    for _ in looks("the assignments of the members"):
        for each in members:
            read += values(each.poll(timeout_ms=STEP_MS))
        parts = [each.assignment() for each in members]
        if all(parts) and sum(map(len, parts)) == len(frozenset().union(*parts)) == partitions:
            break
    return read


@both_protocols
def test_members_share_a_topic_and_nothing_is_read_twice(shared: ServerProcess, topic: str, protocol: str) -> None:
    sent, diary = append(shared, topic, *range(40)), Diary()
    with member(shared, topic, protocol, listener=diary) as first:
        read = poll_all(first, 40)
        assert diary.told == [("assigned", [0, 1, 2, 3])]
        with member(shared, topic, protocol) as second:
            read += poll_until_shared(first, second)
            kept, given = first.assignment(), second.assignment()
            told = [each for each in diary.told if each[1]]
            if protocol == "consumer":
                assert told[1:] == [("revoked", sorted(number for _, number in given))]
            else:
                # The range assignor moves everything: it is given up first and shared out again.
                assert told[1:] == [("revoked", [0, 1, 2, 3]), ("assigned", sorted(number for _, number in kept))]
            sent += append(shared, topic, *range(40, 80))
            read += poll_all(first, 20) + poll_all(second, 20)
        # It leaves, commits what it has read, and what it had comes back at once.
        read += poll_until_shared(first)
        sent += append(shared, topic, *range(80, 90))
        read += poll_all(first, 10)
    assert Counter(read) == Counter(sent)


def test_a_group_of_both_protocols_shares_a_topic(shared: ServerProcess, topic: str) -> None:
    sent = append(shared, topic, *range(20))

    async def read_beside(old: Consumer) -> list[bytes | None]:
        read: list[bytes | None] = []
        options = {"group_id": topic, "auto_offset_reset": "earliest", "heartbeat_wait_ms": HEARTBEATS_MS}
        async with AsyncConsumer(shared.address, **options) as new:
            new.subscribe([topic])
            for _ in looks("the assignments of the members"):
                read += values(await asyncio.to_thread(old.poll, timeout_ms=STEP_MS)) + values(
                    await new.poll(timeout_ms=STEP_MS)
                )
                if len(read) == 20 and len(new.assignment()) == len(old.assignment()) == 2:
                    break
        return read

    with member(shared, topic, "classic") as old:
        read = poll_all(old, 20)
        sent += append(shared, topic, *range(20, 40))
        read += asyncio.run(read_beside(old))
    assert Counter(read) == Counter(sent)


@both_protocols
def test_only_what_was_committed_is_read_by_default(shared: ServerProcess, topic: str, protocol: str) -> None:
    with Producer(shared.address, transactional_id=topic) as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction() as txn:
            txn.send(topic, b"aborted", partition=0)
            txn.flush()
            raise ZeroDivisionError
        with (
            member(shared, topic, protocol) as consumer,
            member(shared, topic, protocol, group_id=f"{topic}-dirty", isolation="read_uncommitted") as dirty,
        ):
            with producer.transaction() as txn:
                txn.send(topic, b"committed", partition=0)
                txn.flush()
                assert poll_all(dirty, 2) == [b"aborted", b"committed"]
                assert not consumer.poll(timeout_ms=1_000)
                assert consumer.assignment()
            assert poll_all(consumer, 1) == [b"committed"]


@both_protocols
def test_offsets_are_committed_by_hand_or_by_themselves(shared: ServerProcess, topic: str, protocol: str) -> None:
    sent = append(shared, topic, *range(8))
    for _ in range(2):
        with member(shared, topic, protocol, enable_auto_commit=False) as consumer:
            assert sorted(poll_all(consumer, 8)) == sent
    zero = TopicPartition(topic, 0)
    with member(shared, topic, protocol, enable_auto_commit=False) as consumer:
        poll_all(consumer, 8)
        consumer.commit({zero: 1})
        assert consumer.committed([zero]) == {zero: OffsetAndMetadata(1)}
    with member(shared, topic, protocol, auto_commit_interval_ms=1) as consumer:
        assert sorted(poll_all(consumer, 7)) == sent[1:]
    with member(shared, topic, protocol) as consumer:
        poll_until_shared(consumer)
        append(shared, topic, 8)
        assert poll_all(consumer, 1) == [b"8"]


@pytest.mark.parametrize(("protocol", "outcome"), [("classic", Outcome.COMMIT), ("consumer", Outcome.ABORT)])
def test_a_successor_waits_for_the_outcome_of_its_offsets(
    shared: ServerProcess, topic: str, protocol: str, outcome: Outcome
) -> None:
    sent, ends = append(shared, topic, *range(8)), {TopicPartition(topic, number): 2 for number in range(4)}
    with Producer(shared.address, transactional_id=f"{topic}-copier") as producer:
        first = member(shared, topic, protocol, enable_auto_commit=False)
        poll_all(first, 8)
        with producer.transaction() as txn:
            txn.commit_offsets(first, ends)
            txn.flush()
            first.close()
            successor = member(shared, topic, protocol, enable_auto_commit=False)
            assert not successor.poll(timeout_ms=1_000)
            assert len(successor.assignment()) == 4
            if outcome is Outcome.ABORT:
                txn.abort()
        again = [] if outcome is Outcome.COMMIT else sent
        new = append(shared, topic, *range(8, 12))
        assert Counter(poll_all(successor, len(again) + 4)) == Counter(again + new)
        successor.close()


@both_protocols
def test_the_offsets_of_a_member_that_was_replaced_abort_its_transaction(
    shared: ServerProcess, topic: str, protocol: str
) -> None:
    append(shared, topic, *range(8))
    with Producer(shared.address, transactional_id=f"{topic}-copier") as producer:
        with member(shared, topic, protocol, enable_auto_commit=False) as first:
            poll_all(first, 8)
            late = Late(first.transaction_offsets({TopicPartition(topic, 0): 2}))
        with member(shared, topic, protocol, enable_auto_commit=False) as successor:
            poll_all(successor, 8)
            with pytest.raises(Abortable), producer.transaction() as txn:
                txn.send(topic, b"twice")
                txn.commit_offsets(late, None)
            assert not successor.poll(timeout_ms=300)
            assert successor.committed([(topic, 0)]) == {(topic, 0): None}


class Late:
    """A consumer that was stopped after it was asked who commits, and does not know what happened since."""

    def __init__(self, offsets: TransactionOffsets) -> None:
        self._offsets = offsets

    def transaction_offsets(self, _batch: None) -> TransactionOffsets:
        return self._offsets


@both_protocols
def test_a_restart_of_the_server_costs_no_membership(shared: ServerProcess, topic: str, protocol: str) -> None:
    sent, diary = append(shared, topic, 0, 1), Diary()
    with member(shared, topic, protocol, listener=diary) as consumer:
        read, before = poll_all(consumer, 2), consumer.group_metadata()
        shared.kill()
        shared.start()
        sent += append(shared, topic, 2, 3)
        read += poll_all(consumer, 2)
        consumer.commit()
        assert consumer.group_metadata() == before
        assert diary.told == [("assigned", [0, 1, 2, 3])]
    assert sorted(read) == sent


@both_protocols
def test_who_does_not_poll_loses_its_partitions_and_gets_them_back(
    shared: ServerProcess, topic: str, protocol: str
) -> None:
    diary = Diary()
    with (
        member(shared, topic, protocol, listener=diary, max_poll_interval_ms=700) as stuck,
        member(shared, topic, protocol) as other,
    ):
        poll_until_shared(stuck, other)
        # Its listener hears here of the partitions since the last poll: no loss without a gain before it.
        stuck.poll(timeout_ms=0)
        poll_until_shared(other)
        poll_until_shared(stuck, other)
    assert "lost" in [word for word, _ in diary.told]


def test_topics_that_match_a_pattern_are_read_once_they_exist(shared: ServerProcess, topic: str) -> None:
    with Consumer(shared.address, group_id=topic, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(pattern=f"{topic}(-.*)?")
        poll_until_shared(consumer)
        with Admin(shared.address) as admin:
            admin.create_topic(f"{topic}-new", 1)
        poll_until_shared(consumer, partitions=5)


def test_a_fork_of_a_member_is_told_so_and_the_member_goes_on(shared: ServerProcess, topic: str) -> None:
    sent = append(shared, topic, *range(4))
    command = [sys.executable, "-c", _FORKING, shared.address, topic]
    done = forked.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    child, parent = done.stdout.splitlines()
    assert child.startswith(f"child: {Misconfigured.__name__}")
    assert "is used by its fork" in child
    assert parent == f"parent: {sorted(sent)}"


_FORKING = """
import os, sys
from coordinator_client import Consumer, Misconfigured
address, topic = sys.argv[1:]
with Consumer(address, group_id=topic, auto_offset_reset="earliest") as consumer:
    consumer.subscribe([topic])
    values = [record.value for record in consumer.poll(timeout_ms=10_000)]
    before = consumer.group_metadata()
    if not (child := os.fork()):
        try:
            consumer.poll(timeout_ms=0)
        except Misconfigured as why:
            print(f"child: {type(why).__name__} {why}", flush=True)
        # As a fork does that ends in order: what it inherited is closed too, and must not leave the group.
        consumer.close()
        os._exit(0)
    os.waitpid(child, 0)
    while len(values) < 4:
        values += [record.value for record in consumer.poll(timeout_ms=10_000)]
    consumer.commit()
    assert consumer.group_metadata() == before
    print("parent:", sorted(values))
"""
