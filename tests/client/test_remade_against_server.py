"""Topics that are deleted and made again, against a real server in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from coordinator_client import (
    Admin,
    Consumer,
    OffsetReset,
    PlannedOffset,
    Producer,
    Rejected,
    ResetTo,
    TopicPartition,
    read,
)
from coordinator_client.errors import TOPIC_GONE
from coordinator_protocol.errors import ErrorCode
from tests.client.consumers import T0
from tests.harness.threaded_server import threaded_server

GROUP = "g"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with threaded_server() as address:
        yield address


@pytest.fixture
def admin(address: str) -> Iterator[Admin]:
    with Admin(address) as admin:
        admin.create_topic("t", 2)
        yield admin
        admin.delete_topic("t")


def fill(address: str, word: bytes, partition_count: int) -> set[bytes]:
    with Producer(address) as producer:
        for number in range(partition_count):
            producer.send("t", b"%s %d" % (word, number), partition=number)
    return {b"%s %d" % (word, number) for number in range(partition_count)}


def read_all(consumers: Sequence[Consumer], wanted: set[bytes]) -> None:
    """Poll the consumers in turn until all of these came, and nothing else, and commit."""
    found: list[bytes | None] = []
    for _ in range(600):
        for consumer in consumers:
            batch = consumer.poll(timeout_ms=20)
            found += [record.value for record in batch]
            if batch:
                consumer.commit()
        if wanted <= set(found):
            break
    assert sorted(value or b"" for value in found) == sorted(wanted)


@pytest.mark.parametrize(
    ("options", "partition_count"),
    [
        ({"group_protocol": "consumer"}, 2),
        ({"group_protocol": "classic", "partition_assignors": ["range"]}, 4),
        ({"group_protocol": "classic", "partition_assignors": ["cooperative-sticky"]}, 1),
    ],
    ids=["consumer", "eager", "cooperative"],
)
def test_all_members_of_a_group_go_on_with_the_new_topic(
    admin: Admin, address: str, options: dict[str, Any], partition_count: int
) -> None:
    group_id = f"readers-{partition_count}"
    old = fill(address, b"old", 2)
    members = [
        Consumer(address, group_id=group_id, auto_offset_reset="earliest", enable_auto_commit=False, **options)
        for _ in range(2)
    ]
    for member in members:
        member.subscribe(["t"])
    while any(len(member.assignment()) != 1 for member in members):
        for member in members:
            member.poll(timeout_ms=20, max_records=1)
            member.seek_to_beginning()
    read_all(members, old)
    admin.delete_topic("t")
    admin.create_topic("t", partition_count)
    read_all(members, fill(address, b"new", partition_count))
    committed = {each.partition: each.committed for each in admin.group_offsets(group_id)}
    assert {name.partition: at and at.offset for name, at in committed.items()} == dict.fromkeys(
        range(partition_count), 1
    )
    for member in members:
        member.close()


def test_by_hand_poll_raises_and_assigning_again_helps(admin: Admin, address: str) -> None:
    fill(address, b"old", 1)
    with Consumer(address, auto_offset_reset="earliest") as consumer:
        consumer.assign([T0])
        assert [record.value for record in consumer.poll(timeout_ms=10_000)] == [b"old 0"]
        admin.delete_topic("t")
        admin.create_topic("t", 2)
        fill(address, b"new", 1)
        with pytest.raises(Rejected, match="assign") as refusal:
            consumer.poll(timeout_ms=10_000)
        assert refusal.value.code in TOPIC_GONE
        consumer.assign([T0])
        assert [record.value for record in consumer.poll(timeout_ms=10_000)] == [b"new 0"]


def test_a_reader_that_follows_says_that_its_topic_is_gone(admin: Admin, address: str) -> None:
    fill(address, b"old", 1)
    records = read("t", address, follow=True, partitions=[0])
    assert next(records).value == b"old 0"
    admin.delete_topic("t")
    admin.create_topic("t", 2)
    fill(address, b"new", 1)
    with pytest.raises(Rejected, match="deleted") as refusal:
        next(records)
    assert refusal.value.code in TOPIC_GONE


@pytest.fixture
def remade(admin: Admin, address: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets the topic be made again right after the next look at what the group has committed."""
    fill(address, b"old", 2)
    admin.alter_group_offsets(GROUP, {T0: 1})
    look = admin._calls._offsets_of

    async def look_and_remake(group_ids: Sequence[str]) -> object:
        monkeypatch.undo()
        found = await look(group_ids)
        admin.delete_topic("t")
        admin.create_topic("t", 2)
        fill(address, b"new", 2)
        return found

    return lambda: monkeypatch.setattr(admin._calls, "_offsets_of", look_and_remake)


def test_a_lag_is_never_that_of_an_offset_in_another_topic(admin: Admin, remade: Callable[[], None]) -> None:
    (before,) = admin.group_lag(GROUP)
    assert before.lag is not None
    remade()
    (found,) = admin.group_lag(GROUP)
    assert (found.offset.partition, found.lag) == (T0, None)
    assert admin.group_lag(GROUP) == []


def test_a_reset_is_planned_and_set_in_one_topic(admin: Admin, remade: Callable[[], None]) -> None:
    (old,) = admin.plan_offset_resets(GROUP, {T0: OffsetReset(ResetTo.CURRENT)})
    remade()
    (new,) = admin.plan_offset_resets(GROUP, {T0: OffsetReset(ResetTo.EARLIEST)})
    assert new == PlannedOffset(partition=T0, committed_offset=None, offset=0, wanted_offset=0)
    assert new.topic_id != old.topic_id
    with pytest.raises(Rejected) as refusal:
        admin.alter_group_offsets(GROUP, {T0: old.offset}, topic_ids={T0: old.topic_id})
    assert refusal.value.code == ErrorCode.INCONSISTENT_TOPIC_ID
    assert admin.group_offsets(GROUP) == []
    admin.alter_group_offsets(GROUP, {T0: new.offset}, topic_ids={T0: new.topic_id})
    (set_to,) = admin.group_offsets(GROUP)
    assert (set_to.partition, set_to.topic_id) == (TopicPartition("t", 0), new.topic_id)
