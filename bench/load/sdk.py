"""Producers of the SDK that do one transaction after the other: on a loop, and in threads.

A commit is one request. An abort is two, because what is to be aborted is written before, as in applications that find
out late: by `flush`, which is answered once it is durable. The bare `Transact` has the outcome with the records.
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
    """What every transaction of a load is: one record to each partition, then a commit or an abort."""

    topic: str
    value: bytes
    committed: bool


class AsyncSdkProducer:
    """A producer on the loop; those of a process share one connection."""

    def __init__(self, connection: Connection, transactional_id: str, story: Story) -> None:
        self._connection, self._id, self._story = connection, transactional_id, story
        self._producer = AsyncProducer(connection, transactional_id=transactional_id)

    async def perform(self) -> None:
        """One transaction. After a failure the next one begins with a new producer, as an application does."""
        story = self._story
        try:
            async with self._producer.transaction() as transaction:
                for partition in range(PARTITIONS):
                    await transaction.send(story.topic, story.value, partition=partition)
                if not story.committed:
                    # Otherwise nothing would have been sent that could be aborted. Kafka's load does the same.
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
        """One transaction."""
        story = self._story
        with self._producer.transaction() as transaction:
            for partition in range(PARTITIONS):
                transaction.send(story.topic, story.value, partition=partition)
            if not story.committed:
                transaction.flush()
                transaction.abort()

    def close(self) -> None:
        """Let go."""
        self._producer.close()
