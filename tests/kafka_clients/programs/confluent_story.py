"""The story of a pipeline with confluent-kafka (librdkafka): `python confluent_story.py HOST:PORT`.

Each step prints one line "ok STEP". A failed step ends the program with a traceback.
"""

from __future__ import annotations

import sys
import time
import uuid

from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = sys.argv[1]
RUN = uuid.uuid4().hex[:8]
STEP_S_MAX = 60


def consumer(group: str, **options: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": f"{group}-{RUN}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "check.crcs": True,
            **options,
        }
    )


def producer(transactional_id: str) -> Producer:
    made = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": f"{transactional_id}-{RUN}", "linger.ms": 0})
    made.init_transactions(STEP_S_MAX)
    return made


def read(reader: Consumer, count: int) -> list[tuple[int, str]]:
    """Return so many records as (partition, value), or fail."""
    found: list[tuple[int, str]] = []
    until = time.monotonic() + STEP_S_MAX
    while len(found) < count and time.monotonic() < until:
        message = reader.poll(1.0)
        if message is not None:
            if message.error():
                raise KafkaException(message.error())
            found.append((message.partition(), message.value().decode()))
    assert len(found) == count, f"{len(found)} of {count} records came"
    return found


def is_fenced(zombie: Producer) -> bool:
    """Return True if a commit fails for ever."""
    try:
        zombie.commit_transaction(STEP_S_MAX)
    except KafkaException as error:
        return bool(error.args[0].fatal())
    return False


def nothing_more(reader: Consumer) -> None:
    message = reader.poll(2.0)
    assert message is None, f"one more came: {message.value()!r}"


def step(name: str) -> None:
    print(f"ok {name}", flush=True)


def move_offsets(reader: Consumer, orders: str, totals: str) -> None:
    """Commit offsets of the reader in a transaction, and fence the producer of that."""
    copier = producer("copier")
    copier.begin_transaction()
    copier.produce(totals, value="133")
    copier.send_offsets_to_transaction(
        reader.position(reader.assignment()), reader.consumer_group_metadata(), STEP_S_MAX
    )
    copier.commit_transaction(STEP_S_MAX)
    committed = reader.committed([TopicPartition(orders, number) for number in range(3)], STEP_S_MAX)
    positions = {each.partition: each.offset for each in reader.position(reader.assignment())}
    assert {each.partition: each.offset for each in committed} == positions, committed
    reader.close()
    step("offsets in a transaction")

    newer = producer("copier")
    copier.begin_transaction()
    copier.produce(totals, value="zombie")
    assert is_fenced(copier), "a zombie committed"
    newer.begin_transaction()
    newer.produce(totals, value="newer")
    newer.commit_transaction(STEP_S_MAX)
    of_totals = consumer("totals")
    of_totals.subscribe([totals])
    assert [value for _, value in read(of_totals, 2)] == ["133", "newer"]
    nothing_more(of_totals)
    of_totals.close()
    step("a zombie is fenced")


def share_consumer(mode: str, topic: str) -> ShareConsumer:
    made = ShareConsumer(
        {"bootstrap.servers": BOOTSTRAP, "group.id": f"workers-{RUN}", "share.acknowledgement.mode": mode}
    )
    made.subscribe([topic])
    return made


def write(topic: str, *values: str) -> None:
    plain = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
    for value in values:
        plain.produce(topic, value=value)
    assert plain.flush(STEP_S_MAX) == 0


def taken(worker: ShareConsumer, topic: str, first: str) -> list[Message]:
    """Write values until one of them comes: a new share group begins at the end of the topic."""
    until = time.monotonic() + STEP_S_MAX
    while time.monotonic() < until:
        write(topic, first)
        found = list(worker.poll(1.0))
        if found:
            return found
    raise AssertionError("the share group never began")


def nothing_comes(topic: str) -> bool:
    """Return True if a new worker gets no record."""
    worker = share_consumer("explicit", topic)
    found = list(worker.poll(3.0))
    worker.close()
    return not found


def share_groups(jobs: str) -> None:
    """Take records one by one, and give each an outcome (KIP-932)."""
    worker = share_consumer("explicit", jobs)
    for each in taken(worker, jobs, "begin"):
        worker.acknowledge(each)
    write(jobs, *(f"job-{number}" for number in range(30)))
    outcomes = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)
    counts: dict[str, int] = {}
    until = time.monotonic() + STEP_S_MAX
    while sum(counts.values()) < 40 and time.monotonic() < until:
        for each in worker.poll(1.0):
            assert each.error() is None, each.error()
            value = each.value().decode()
            if value == "begin":
                worker.acknowledge(each)
                continue
            counts[value] = counts.get(value, 0) + 1
            worker.acknowledge(each, AcknowledgeType.ACCEPT if counts[value] > 1 else outcomes[int(value[4:]) % 3])
        errors = [error for error in worker.commit_sync(STEP_S_MAX).values() if error is not None]
        assert not errors, errors
    assert counts == {f"job-{number}": 2 if number % 3 == 1 else 1 for number in range(30)}, counts
    write(jobs, "last")
    until = time.monotonic() + STEP_S_MAX
    while not (last := list(worker.poll(1.0))) and time.monotonic() < until:
        pass
    worker.acknowledge(*last)
    # It sends the end of its membership before this acknowledgement, on another connection.
    worker.close()
    assert nothing_comes(jobs)
    step("a share group: accept, release, reject (KIP-932)")

    implicit = share_consumer("implicit", jobs)
    write(jobs, *(f"more-{number}" for number in range(10)))
    values: list[str] = []
    until = time.monotonic() + STEP_S_MAX
    while len(values) < 10 and time.monotonic() < until:
        values += [each.value().decode() for each in implicit.poll(1.0)]
    assert sorted(values) == [f"more-{number}" for number in range(10)], values
    # A close without this releases the records of the last poll.
    assert not any(implicit.commit_sync(STEP_S_MAX).values())
    implicit.close()
    assert nothing_comes(jobs)
    step("a share group: implicit acknowledgements")


def main() -> None:
    orders, totals, jobs = f"orders-{RUN}", f"totals-{RUN}", f"jobs-{RUN}"
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    for created in admin.create_topics([NewTopic(orders, 3, 1), NewTopic(totals, 1, 1), NewTopic(jobs, 2, 1)]).values():
        created.result(STEP_S_MAX)
    assert len(admin.list_topics(timeout=STEP_S_MAX).topics[orders].partitions) == 3
    step("create topics")

    plain = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True, "compression.type": "lz4"})
    for number in range(100):
        plain.produce(orders, value=f"plain-{number}", key=str(number), headers={"n": str(number)})
    assert plain.flush(STEP_S_MAX) == 0
    reader = consumer("readers")
    reader.subscribe([orders])
    assert sorted(value for _, value in read(reader, 100)) == sorted(f"plain-{n}" for n in range(100))
    step("idempotent produce, group consume")

    writer = producer("writer")
    writer.begin_transaction()
    for number in range(30):
        writer.produce(orders, value=f"kept-{number}", partition=number % 3)
    writer.commit_transaction(STEP_S_MAX)
    writer.begin_transaction()
    writer.produce(orders, value="never", partition=0)
    writer.flush(STEP_S_MAX)
    writer.abort_transaction(STEP_S_MAX)
    writer.begin_transaction()
    writer.produce(orders, value="last", partition=0)
    writer.flush(STEP_S_MAX)
    assert sorted(value for _, value in read(reader, 30)) == sorted(f"kept-{n}" for n in range(30))
    nothing_more(reader)
    step("aborted and open records are hidden")
    writer.commit_transaction(STEP_S_MAX)
    assert read(reader, 1) == [(0, "last")]
    step("commit shows them")

    move_offsets(reader, orders, totals)

    new_style = consumer("consumers", **{"group.protocol": "consumer"})
    new_style.subscribe([orders])
    assert len(read(new_style, 131)) == 131
    new_style.commit(asynchronous=False)
    new_style.close()
    again = consumer("consumers", **{"group.protocol": "consumer"})
    again.subscribe([orders])
    nothing_more(again)
    again.close()
    step("the consumer protocol (KIP-848)")

    share_groups(jobs)

    low, high = consumer("x").get_watermark_offsets(TopicPartition(orders, 0), STEP_S_MAX)
    assert low == 0
    assert high > 40
    by_time = consumer("y").offsets_for_times(
        [TopicPartition(orders, 0, int(time.time() * 1000) + 3_600_000)], STEP_S_MAX
    )
    assert by_time[0].offset in (-1, high), by_time
    for deleted in admin.delete_topics([orders, totals, jobs]).values():
        deleted.result(STEP_S_MAX)
    step("watermarks, offsets by time, deletion")


if __name__ == "__main__":
    main()
