"""Topics with transactions in them, for tests that read them: made through the SDK, on a real server."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

import grpc

from coordinator_api.v1 import log_pb2, log_pb2_grpc
from coordinator_client.admin.admin import Admin
from coordinator_client.producer.producer import Producer
from coordinator_client.transport.connection import Connection
from coordinator_client.values import TopicPartition
from tests.harness.patience import DEADLINE_SECONDS

OPEN_MS: Final = 900_000
"""Time that a transaction may stay open, in place of a minute: a busy machine may take as long only to start Spark."""


class Abort(Exception):
    """Leaves a transaction so that it is aborted."""


class Topics:
    """Makes topics whose names start with the name of the test, and writes to them."""

    def __init__(self, endpoint: str, *, prefix: str) -> None:
        self.endpoint = endpoint
        self._prefix = re.sub(r"[^a-zA-Z0-9]+", "-", prefix)[:200]
        self._connection = Connection(endpoint, client_id="tests")
        self._admin = Admin(self._connection)
        self._count = 0
        self._open: list[Producer] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for producer in self._open:
            producer.close()
        self._connection.close()

    def create(self, partition_count: int = 1, *, validate_payload: str = "full") -> str:
        """Return the name of a new topic."""
        self._count += 1
        name = f"{self._prefix}-{self._count}"
        self._admin.create_topic(name, partition_count, config={"validate_payload": validate_payload})
        return name

    def delete(self, name: str) -> None:
        self._admin.delete_topic(name)

    def exists(self, name: str) -> bool:
        return name in {topic.name for topic in self._admin.describe_topics()}

    def recreate(self, name: str, partition_count: int = 1) -> None:
        """Put another topic of the same name in its place."""
        self.delete(name)
        self.create_again(name, partition_count)

    def create_again(self, name: str, partition_count: int = 1) -> None:
        """Create a topic with the name of one that was deleted."""
        self._admin.create_topic(name, partition_count)

    def delete_records(self, name: str, before: int) -> None:
        """Let partition 0 begin at an offset."""
        self._admin.delete_records({TopicPartition(name, 0): before})

    def add_partitions(self, name: str, partition_count: int) -> None:
        """Let the topic have so many in all."""
        self._admin.add_partitions(name, partition_count)

    def topic_id(self, name: str) -> bytes:
        return self._admin.describe_topic(name).topic_id

    def is_held_up(self, name: str) -> bool:
        """Return whether readers of partition 0 wait for a transaction."""
        found = self._admin.describe_topic(name).partitions[0]
        return found.last_stable_offset < found.high_watermark

    def commit(self, name: str, values: Iterable[str], *, partition: int = 0, encoding: str = "arrow") -> None:
        """Write the values in one transaction and commit it; a marker follows them."""
        self.commit_at(name, [(1_500, value) for value in values], partition=partition, encoding=encoding)

    def commit_at(
        self, name: str, values: Iterable[tuple[int, str]], *, partition: int = 0, encoding: str = "arrow"
    ) -> None:
        """Write values with their timestamps in one transaction, hence in one batch, and commit it."""
        with self._producer(encoding) as producer, producer.transaction() as transaction:
            for timestamp_ms, value in values:
                transaction.send(name, value.encode(), key=b"key", partition=partition, timestamp_ms=timestamp_ms)

    def abort(self, name: str, values: Iterable[str], *, partition: int = 0) -> None:
        """Write the values in one transaction, so that they are in the log, and abort it; a marker follows them."""
        with self._producer() as producer:
            try:
                with producer.transaction() as transaction:
                    for value in values:
                        transaction.send(name, value.encode(), partition=partition)
                    transaction.flush()
                    raise Abort
            except Abort:
                return

    def leave_open(self, name: str, values: Iterable[str], *, partition: int = 0) -> None:
        """Write the values in a transaction that stays open until the end of the test."""
        producer = self._producer()
        self._open.append(producer)
        transaction = producer.transaction().__enter__()
        for value in values:
            transaction.send(name, value.encode(), partition=partition)
        transaction.flush()

    def commit_everywhere(self, name: str, values: Mapping[int, Iterable[str]]) -> None:
        """Write the values to these partitions in one transaction, and commit it."""
        with self.being_written(name, values):
            pass

    @contextmanager
    def being_written(self, name: str, values: Mapping[int, Iterable[str]]) -> Iterator[None]:
        """A transaction has written the values to these partitions, and commits at the end of the block."""
        with self._producer() as producer, producer.transaction() as transaction:
            for partition, each in values.items():
                for value in each:
                    transaction.send(name, value.encode(), partition=partition)
            transaction.flush()
            yield

    def with_headers(self, name: str, value: str, headers: Iterable[tuple[str, bytes | None]]) -> None:
        """Write one record outside transactions."""
        with Producer(self._connection, encoding="arrow") as producer:
            producer.send(name, value.encode(), headers=headers, timestamp_ms=1_500)

    def packed(self, name: str, values: Iterable[str], *, encoding: str) -> None:
        """Write the values outside transactions, compressed."""
        with Producer(self._connection, encoding=encoding, compression="gzip") as producer:
            for value in values:
                producer.send(name, value.encode(), partition=0, timestamp_ms=1_500)

    def corrupt(self, name: str, record_count: int, *, partition: int = 0) -> None:
        """Write a batch that no reader can decode, to a topic that takes any payload."""
        batch = log_pb2.RecordBatch(
            record_count=record_count, encoding=log_pb2.ENCODING_RECORDS_V1, payload=b"no records"
        )
        item = log_pb2.PartitionBatch(topic=name, partition=partition, batch=batch)
        with grpc.insecure_channel(self.endpoint) as channel:
            log = log_pb2_grpc.LogServiceStub(channel)
            reply = log.Produce(log_pb2.ProduceRequest(batches=[item]), timeout=DEADLINE_SECONDS)
        assert reply.results[0].error_code == 0, reply

    def _producer(self, encoding: str = "arrow") -> Producer:
        self._count += 1
        return Producer(
            self._connection,
            transactional_id=f"{self._prefix}-{self._count}",
            transaction_timeout_ms=OPEN_MS,
            encoding=encoding,
        )
