"""The story of a pipeline with kafka-python: `python kafka_python_story.py HOST:PORT`."""

from __future__ import annotations

import sys
import uuid

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.structs import OffsetAndMetadata

BOOTSTRAP = sys.argv[1]
RUN = uuid.uuid4().hex[:8]
TOPIC = f"python-{RUN}"


def values(consumer: KafkaConsumer) -> list[str]:
    return [record.value.decode() for record in consumer]


def consumer(group: str | None = None, isolation: str = "read_committed") -> KafkaConsumer:
    return KafkaConsumer(
        bootstrap_servers=BOOTSTRAP,
        group_id=group,
        isolation_level=isolation,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=8_000,
        check_crcs=True,
    )


def main() -> None:
    admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    admin.create_topics([NewTopic(TOPIC, 2, 1)])
    producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=f"python-{RUN}")
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(10):
        producer.send(TOPIC, f"kept-{number}".encode(), partition=number % 2)
    producer.commit_transaction()
    producer.begin_transaction()
    producer.send(TOPIC, b"never", partition=0)
    producer.flush()
    producer.abort_transaction()
    print("ok transactions", flush=True)

    reader = consumer(f"readers-{RUN}")
    reader.subscribe([TOPIC])
    assert sorted(values(reader)) == sorted(f"kept-{number}" for number in range(10))
    print("ok group consume at read_committed", flush=True)

    everything = consumer(isolation="read_uncommitted")
    everything.assign([TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)])
    assert "never" in values(everything)
    print("ok read_uncommitted", flush=True)

    producer.begin_transaction()
    producer.send(TOPIC, b"with offsets", partition=1)
    producer.send_offsets_to_transaction({TopicPartition(TOPIC, 0): OffsetAndMetadata(5, "", -1)}, f"readers-{RUN}")
    producer.commit_transaction()
    reader.close()
    assert consumer(f"readers-{RUN}").committed(TopicPartition(TOPIC, 0)) == 5
    producer.close()
    admin.delete_topics([TOPIC])
    print("ok offsets in a transaction", flush=True)


if __name__ == "__main__":
    main()
