"""A topic of a real server process gets more partitions while in use: no client is restarted, nothing is lost,
and nothing is read twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from coordinator_client import Admin, AsyncProducer, Connection, Consumer, Misconfigured, Producer, Rejected, read
from coordinator_client.reading.reader import ReadPlan, plan_ranges
from coordinator_protocol.hashing import partition_for
from tests.client.consumers import values
from tests.harness.patience import looks
from tests.harness.server_process import ServerProcess

pytestmark = pytest.mark.slow

SOON_MS = 200
"""Age at which the SDK renews its knowledge of topics here."""
KEYS = [b"%d" % number for number in range(30)]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("growth") / "data") as server:
        yield server


@pytest.fixture
def admin(shared: ServerProcess) -> Iterator[Admin]:
    with Admin(shared.address) as admin:
        yield admin


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_producer_and_a_group_go_on_over_the_new_partitions(
    shared: ServerProcess, admin: Admin, protocol: str
) -> None:
    topic = f"grows-{protocol}"
    admin.create_topic(topic, 2)
    options = {"group_id": topic, "group_protocol": protocol, "metadata_max_age_ms": SOON_MS}
    with (
        Producer(shared.address, transactional_id=topic, metadata_max_age_ms=SOON_MS) as producer,
        Consumer(shared.address, auto_offset_reset="earliest", **options) as first,
        Consumer(shared.address, auto_offset_reset="earliest", **options) as second,
    ):
        members = (first, second)
        for member in members:
            member.subscribe([topic])
        sent: list[bytes] = []
        seen: list[bytes | None] = []
        for _ in looks("records in all six partitions, read by both members"):
            if sent and len(admin.describe_topic(topic).partitions) == 2:
                admin.add_partitions(topic, 6)
            with producer.transaction() as txn:
                for key in KEYS:
                    sent.append(b"%d" % len(sent))
                    txn.send(topic, sent[-1], key=key)
            for member in members:
                seen += values(member.poll(timeout_ms=50))
            written = {record.partition for record in read(topic, shared.address)}
            shares = [member.assignment() for member in members]
            if written == set(range(6)) and sum(map(len, shares)) == 6 and all(shares):
                break
        for _ in looks("everything that was sent"):
            for member in members:
                seen += values(member.poll(timeout_ms=50))
            if len(seen) >= len(sent):
                break
    assert sorted(seen, key=repr) == sorted(sent, key=repr)


def test_a_record_that_names_a_new_partition_gets_there(shared: ServerProcess, admin: Admin) -> None:
    admin.create_topic("named", 1)

    async def write() -> None:
        async with AsyncProducer(shared.address) as producer:
            await producer.send("named", b"a")
            await producer.flush()
            await asyncio.to_thread(admin.add_partitions, "named", 3)
            await producer.send("named", b"b", partition=2)
            with pytest.raises(Rejected, match="named has the partitions 0 to 2"):
                await producer.send("named", b"c", partition=3)

    asyncio.run(write())
    assert [(record.partition, record.value) for record in read("named", shared.address)] == [(0, b"a"), (2, b"b")]
    with Connection(shared.address) as connection:
        assert [found.partition for found in plan_ranges(connection, "named", ReadPlan())] == [0, 1, 2]


def test_what_changed_is_there_after_a_kill(shared: ServerProcess, admin: Admin) -> None:
    admin.create_topic("kept", 1)
    admin.add_partitions("kept", 4)
    admin.alter_topic_configs("kept", {"retention_ms": "86400000", "validate_payload": "header"})
    shared.kill()
    shared.start()
    assert len(admin.describe_topic("kept").partitions) == 4
    settings = admin.topic_configs("kept")
    assert (settings["retention_ms"].value, settings["retention_ms"].origin) == ("86400000", "topic")
    assert (settings["retention_bytes"].value, settings["retention_bytes"].origin) == ("-1", "default")
    with Producer(shared.address) as producer:
        for key in KEYS:
            producer.send("kept", key, key=key)
    written = {record.partition for record in read("kept", shared.address)}
    assert written == {partition_for(key, 4) for key in KEYS}


def test_what_cannot_be_is_refused_and_changes_nothing(shared: ServerProcess, admin: Admin) -> None:
    admin.create_topic("refuses", 3)
    for count in (-1, 0, 2, 3, 10_001, 2**31 - 1):
        with pytest.raises(Rejected, match="INVALID_PARTITIONS"):
            admin.add_partitions("refuses", count)
    with pytest.raises(Misconfigured, match=r"did you mean retention_ms\?"):
        admin.alter_topic_configs("refuses", {"retention": "5"})
    with pytest.raises(Rejected, match="INVALID_REQUEST"):
        admin.alter_topic_configs("refuses", {})
    with pytest.raises(Rejected, match="UNKNOWN_TOPIC_OR_PARTITION"):
        admin.add_partitions("nowhere", 5)
    assert len(admin.describe_topic("refuses").partitions) == 3
    assert {each.origin for each in admin.topic_configs("refuses").values()} == {"default"}
