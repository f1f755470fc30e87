"""The story of a pipeline with aiokafka: `python aiokafka_story.py HOST:PORT`."""

from __future__ import annotations

import asyncio
import sys
import uuid

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

BOOTSTRAP = sys.argv[1]
RUN = uuid.uuid4().hex[:8]
TOPIC = f"aio-{RUN}"
STEP_S_MAX = 30


async def values(consumer: AIOKafkaConsumer, count: int) -> list[str]:
    found: list[str] = []
    async with asyncio.timeout(STEP_S_MAX):
        while len(found) < count:
            record = await consumer.getone()
            found.append(record.value.decode())
    return found


async def main() -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, 2, 1)])
    producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=f"aio-{RUN}")
    await producer.start()
    async with producer.transaction():
        for number in range(10):
            await producer.send_and_wait(TOPIC, f"kept-{number}".encode(), partition=number % 2)
    await producer.begin_transaction()
    await producer.send_and_wait(TOPIC, b"never", partition=0)
    await producer.abort_transaction()
    print("ok transactions", flush=True)

    reader = AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=BOOTSTRAP,
        group_id=f"readers-{RUN}",
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await reader.start()
    assert sorted(await values(reader, 10)) == sorted(f"kept-{number}" for number in range(10))
    print("ok group consume at read_committed", flush=True)

    async with producer.transaction():
        await producer.send_and_wait(TOPIC, b"with offsets", partition=1)
        await producer.send_offsets_to_transaction({TopicPartition(TOPIC, 0): 5}, f"readers-{RUN}")
    assert await reader.committed(TopicPartition(TOPIC, 0)) == 5
    await reader.stop()
    await producer.stop()
    await admin.delete_topics([TOPIC])
    await admin.close()
    print("ok offsets in a transaction", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
