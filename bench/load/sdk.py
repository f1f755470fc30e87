"""Producers of the SDK that run one transaction after the other: on a loop, and in threads.

A commit is one request. An abort is two, because its records are written before, as in applications that find out late.
They are sent by `flush`, which returns once they are durable. The bare `Transact` has the outcome with the records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from coordinator_client.producer.async_producer import AsyncProducer
from coordinator_client.producer.producer import Producer
from coordinator_client.transport.connection import Connection

PARTITIONS: Final = 3


@dataclass(frozen=True, slots=True)
class Story:
    """Shape of every transaction of a load: one record to each partition, then a commit or an abort."""

    topic: str
    value: bytes
    committed: bool


class AsyncSdkProducer:
    """A producer on the loop; all producers of a process share one connection."""

    def __init__(self, connection: Connection, transactional_id: str, story: Story) -> None:
        self._connection, self._id, self._story = connection, transactional_id, story
        self._producer = AsyncProducer(connection, transactional_id=transactional_id)

    async def perform(self) -> None:
        """Run one transaction. After a failure the next one begins with a new producer, as in an application."""
        story = self._story
        try:
            async with self._producer.transaction() as transaction:
                for partition in range(PARTITIONS):
                    await transaction.send(story.topic, story.value, partition=partition)
                if not story.committed:
                    # Otherwise no record would have been sent that could be aborted. Kafka's load does the same.
                    await transaction.flush()
                    await transaction.abort()
        except Exception:
            self._producer = AsyncProducer(self._connection, transactional_id=self._id)
            raise


class ThreadedSdkProducer:
    """A blocking producer, in the thread that makes it."""

    def __init__(self, connection: Connection, transactional_id: str, story: Story) -> None:
        self._story = story
        self._producer = Producer(connection, transactional_id=transactional_id)
        self._producer.init()

    def perform(self) -> None:
        """Run one transaction."""
        story = self._story
        with self._producer.transaction() as transaction:
            for partition in range(PARTITIONS):
                transaction.send(story.topic, story.value, partition=partition)
            if not story.committed:
                transaction.flush()
                transaction.abort()

    def close(self) -> None:
        """Close the producer."""
        self._producer.close()
