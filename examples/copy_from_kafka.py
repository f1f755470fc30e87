"""Copies a topic from Kafka, with the offsets of its groups, by Kafka's protocol on both sides.

    pip install confluent-kafka
    txnctl dev --kafka-listen 127.0.0.1:9092                                          in one terminal
    python examples/copy_from_kafka.py kafka.example:9092 127.0.0.1:9092 orders       in another

Stop the programs that write the topic, and the members of its groups. Afterwards start them at the new address.

1. The committed records are read, and written in the same partitions with key, value, headers and time. Records of
   aborted transactions are not copied. Neither are transactional ids: producers initialise them at the new address.
2. An offset changes where the source has none: before the log start, at markers, and at records that are gone. So the
   copy of a committed offset is that of the first record at or after it. A group goes on at the same record.
3. The target must not have the topic yet. After a failure delete it there, and start again.

Other options such as `security.protocol=SASL_SSL` follow `--source-option` and `--target-option`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from typing import Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # as its guide imports it

TIMEOUT_S: Final = 60


def main() -> int:
    """Copy the topic, then the offsets of its groups."""
    options = arguments()
    source = connection(options.source, options.source_option)
    target = connection(options.target, options.target_option)
    partitions = partition_count(source, options.topic)
    groups = committed_offsets(source, options.topic, partitions)
    create(target, options.topic, partitions)
    copier = Copier(options.topic, groups)
    count = copier.copy(source, target, partitions)
    commit(target, options.topic, copier.positions())
    print(f"copied {count} records of {options.topic}, and the offsets of {len(groups)} groups")
    return 0


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").strip(), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", help="HOST:PORT of Kafka")
    parser.add_argument("target", help="HOST:PORT of the server, its setting kafka_listen")
    parser.add_argument("topic", help="topic to copy")
    parser.add_argument("--source-option", action="append", default=[], metavar="NAME=VALUE", help="option of Kafka")
    parser.add_argument("--target-option", action="append", default=[], metavar="NAME=VALUE", help="of the server")
    return parser.parse_args()


def connection(address: str, options: list[str]) -> dict[str, str]:
    """Return the options of every client of one side."""
    return {"bootstrap.servers": address, **dict(option.split("=", 1) for option in options)}


def partition_count(source: Mapping[str, str], topic: str) -> int:
    """Return the number of partitions of the topic. Raises KafkaException."""
    found = AdminClient(dict(source)).list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return len(found.partitions)


def create(target: Mapping[str, str], topic: str, partitions: int) -> None:
    """Create the topic. Raises KafkaException, also if it exists."""
    admin = AdminClient(dict(target))
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_S)


def committed_offsets(source: Mapping[str, str], topic: str, partitions: int) -> dict[str, list[int | None]]:
    """Return the committed offset of each group in each partition; None where the group has none."""
    admin = AdminClient(dict(source))
    found = {}
    for group in admin.list_consumer_groups().result(TIMEOUT_S).valid:
        asked = ConsumerGroupTopicPartitions(group.group_id, [TopicPartition(topic, n) for n in range(partitions)])
        answer = admin.list_consumer_group_offsets([asked])[group.group_id].result(TIMEOUT_S)
        offsets = {each.partition: each.offset for each in answer.topic_partitions or () if each.offset >= 0}
        if offsets:
            found[group.group_id] = [offsets.get(number) for number in range(partitions)]
    return found


class Copier:
    """Copies the records of one topic, and translates offsets meanwhile."""

    def __init__(self, topic: str, groups: Mapping[str, list[int | None]]) -> None:
        self._topic = topic
        self._groups = groups
        self._copied: dict[int, int] = {}
        """Number of copied records of each partition, which is the offset of the next one."""
        self._positions: dict[tuple[str, int], int] = {}
        """Offset in the copy of each group and partition whose record has come by."""

    def copy(self, source: Mapping[str, str], target: Mapping[str, str], partitions: int) -> int:
        """Copy every committed record, and return their number. Raises KafkaException."""
        producer = Producer({**target, "enable.idempotence": True, "compression.type": "lz4"})
        for message in committed_records(source, self._topic, partitions):
            self._copy(producer, message)
        if producer.flush(TIMEOUT_S):
            raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT, "the target did not take all records in time"))
        return sum(self._copied.values())

    def _copy(self, producer: Producer, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        expected = self._copied.get(partition, 0)
        self._copied[partition] = expected + 1
        for group, committed in self._groups.items():
            wanted = committed[partition]
            if wanted is not None and wanted <= offset:
                self._positions.setdefault((group, partition), expected)

        def delivered(error: KafkaError | None, copy: Message) -> None:
            if error is not None:
                raise KafkaException(error)
            if copy.offset() != expected:
                raise RuntimeError(
                    f"another program writes {self._topic} in the target, too; delete it, and start again"
                )

        kind, time_ms = message.timestamp()
        while True:
            try:
                producer.produce(
                    self._topic,
                    message.value(),
                    message.key(),
                    partition,
                    on_delivery=delivered,
                    timestamp=0 if kind == TIMESTAMP_NOT_AVAILABLE else time_ms,
                    headers=message.headers() or [],
                )
            except BufferError:
                producer.poll(1.0)
            else:
                break
        producer.poll(0)

    def positions(self) -> dict[str, dict[int, int]]:
        """Return the offsets to commit in the copy, by group and partition: the end if the group has read all."""
        return {
            group: {
                partition: self._positions.get((group, partition), self._copied.get(partition, 0))
                for partition, wanted in enumerate(committed)
                if wanted is not None
            }
            for group, committed in self._groups.items()
        }


def committed_records(source: Mapping[str, str], topic: str, partitions: int) -> Iterator[Message]:
    """Yield the records of all partitions up to their last stable offsets. Raises KafkaException."""
    consumer = Consumer(
        {
            **source,
            "group.id": f"copy-of-{topic}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    open_partitions = set(range(partitions))
    try:
        while open_partitions:
            message = consumer.poll(TIMEOUT_S)
            if message is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no record came"))
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
            else:
                raise KafkaException(error)
    finally:
        consumer.close()


def commit(target: Mapping[str, str], topic: str, groups: Mapping[str, Mapping[int, int]]) -> None:
    """Commit the offsets of the groups. Raises KafkaException."""
    admin = AdminClient(dict(target))
    for group, offsets in groups.items():
        positions = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, positions)])[group].result(TIMEOUT_S)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KafkaException as failure:
        sys.exit(f"copy_from_kafka: {failure.args[0].str()}")
