"""The real coordinator and log behind a client's connection, without a socket: each attempt is one call and the flushes
it takes. Partitions are `foo-0`, as in the worlds of the groups.

server = AdministeredServer()
admin = Admin(server.connection())
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coordinator_api.v1 import log_pb2
from coordinator_client.transport.connection import Connection
from coordinator_client.values import TopicPartition
from coordinator_protocol.marker import Outcome
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext, PartitionName
from coordinator_server.grpc_front.grpc_call import call_context
from coordinator_server.grpc_front.wire.edge import answer
from coordinator_server.grpc_front.wire.log.ranges import RangeServicer
from coordinator_server.grpc_front.wire.log.servicer import LogServicer
from partition_log.requests import Produce
from tests.harness.committed_offsets import Producer
from tests.harness.group_world import group_world
from tests.log.driven_log import NO_PRODUCER, Batch
from tests.log.driven_log import Producer as Writer

COMMIT, ABORT = Outcome.COMMIT, Outcome.ABORT


def place(name: str) -> TopicPartition:
    topic, _dash, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


class AdministeredServer:
    """A world with groups and a log, and the way of a client to both."""

    def __init__(self) -> None:
        self.world = group_world()

    def connection(self) -> Connection:
        """Implements the client's transport itself."""
        return Connection("here:1", open_transport=lambda _endpoint: self)

    # The transport

    def ask(self, rpc: Any, request: Any, *, timeout_ms: int) -> Any:
        if rpc.service == "GroupService":
            return self.world.ask(request)
        of_ranges = RangeServicer(self.world.inside.core.log.ranges)
        serve = getattr(of_ranges if hasattr(of_ranges, rpc.method) else self._log_servicer(), rpc.method)
        reply = answer(
            rpc.method,
            getattr(log_pb2, f"{rpc.method}Response"),
            lambda: serve(request, call_context(request.header, CallContext(), rpc.method)),
        )
        self.world.settle()
        return reply.result()

    def start(self, rpc: Any, request: Any, *, timeout_ms: int, on_done: Callable[[Any], None]) -> Any:
        raise AssertionError("administrators wait for every answer")

    def close(self) -> None:
        pass

    def _log_servicer(self) -> LogServicer:
        log = self.world.inside.core.log
        return LogServicer(log.topics, log.records, log.positions, log.foreign_markers)

    # The log

    def append(self, name: str, count: int = 1, *, timestamp_ms: int = 1_000) -> None:
        """Plain records."""
        self._produce(name, Batch(NO_PRODUCER, count=count, timestamp_ms=timestamp_ms), None)

    def append_in(self, producer: Producer, name: str, count: int = 1) -> None:
        """The first records of a transaction."""
        identity = producer.identity
        writer = Writer(identity.producer_id, identity.producer_epoch, producer.transactional_id)
        self._produce(name, Batch(writer, 0, count), producer.transactional_id)

    def _produce(self, name: str, batch: Batch, transactional_id: str | None) -> None:
        topic, partition = place(name)
        item = batch.item(PartitionName(topic, b"", partition))
        sent: Pending[Any] = self.world.inside.log.produce(Produce(transactional_id, (item,)), CallContext())
        self.world.settle()
        (result,) = sent.result()
        assert result.error is None, result.error

    def transact(self, name: str, count: int, outcome: Outcome, *, transactional_id: str = "orders") -> None:
        """Records of a transaction, and how it ends."""
        producer = self.world.offsets.producer(transactional_id)
        self.append_in(producer, name, count)
        producer.ends(outcome)


def offsets(by_name: Mapping[str, int]) -> dict[TopicPartition, int]:
    return {place(name): offset for name, offset in by_name.items()}
