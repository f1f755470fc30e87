"""Transactions over bare stubs of gRPC, which know two servers and repeat what got no answer at the other one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import cycle
from typing import Any, Final
from uuid import uuid4

import grpc

from coordinator_api.v1 import common_pb2 as common
from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_api.v1.log_pb2_grpc import LogServiceStub
from coordinator_api.v1.transaction_pb2_grpc import TransactionServiceStub
from coordinator_client.clock import SystemClock
from tests.kafka_front.telling import now, tell

CALL_SECONDS: Final = 5.0
_PAUSE_MS: Final = 50
_TRANSACTION_TIMEOUT_MS: Final = 10_000


class Refused(Exception):
    """Refusal of a request that no repetition changes."""


class StubWork:
    """One Produce for all partitions, and one EndTxn."""

    def __init__(self, addresses: str, transactional_id: str, topic: str, fates: tuple[str, str, str]) -> None:
        """`fates`: the words for committed, aborted and unknown."""
        self._channels = cycle([grpc.insecure_channel(each) for each in addresses.split(",")])
        self._channel = next(self._channels)
        self._id, self._topic = transactional_id, topic
        self._committed, self._aborted, self._unknown = fates
        self._identity: tuple[int, int] | None = None

    def do(self, records: list[tuple[int, str]], _group: str, _offset: int, *, commits: bool) -> str:
        """Return what became of the transaction. A group is for Kafka's clients alone."""
        may_commit = False
        try:
            identity = self._identity or self._begun()
            produced = self._call(lambda: LogServiceStub(self._channel).Produce, self._produce(records, identity))
            _tell_sent(records, produced.results)
            may_commit = commits
            tell(asks="commit" if commits else "abort", producer=identity)
            end = txn.EndTxnRequest(
                transactional_id=self._id, producer_id=identity[0], producer_epoch=identity[1], committed=commits
            )
            ended = self._call(lambda: TransactionServiceStub(self._channel).EndTxn, end)
        except Refused:
            # The next InitProducerId aborts what is open.
            self._identity = None
            return self._unknown if may_commit else self._aborted
        self._identity = ended.producer_id, ended.producer_epoch
        return self._committed if commits else self._aborted

    def _begun(self) -> tuple[int, int]:
        request = txn.InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS)
        since = now()
        begun = self._call(lambda: TransactionServiceStub(self._channel).InitProducerId, request)
        tell(producer=(begun.producer_id, begun.producer_epoch), since=since)
        return begun.producer_id, begun.producer_epoch

    def _produce(self, records: list[tuple[int, str]], identity: tuple[int, int]) -> log.ProduceRequest:
        now_ms = SystemClock().wall_ms()
        by_partition: dict[int, list[log.Record]] = {}
        for partition, value in records:
            by_partition.setdefault(partition, []).append(log.Record(value=value.encode(), timestamp_ms=now_ms))
        batches = [
            log.PartitionBatch(
                topic=self._topic,
                partition=partition,
                batch=log.RecordBatch(
                    record_count=len(found),
                    base_timestamp_ms=now_ms,
                    max_timestamp_ms=now_ms,
                    base_sequence=0,
                    is_transactional=True,
                    producer_id=identity[0],
                    producer_epoch=identity[1],
                    encoding=log.ENCODING_RECORDS_V1,
                    payload=log.Records(records=found).SerializeToString(),
                ),
            )
            for partition, found in by_partition.items()
        ]
        return log.ProduceRequest(transactional_id=self._id, batches=batches)

    def _call(self, method: Callable[[], Any], request: Any) -> Any:
        """Return the answer to a request, which is repeated until there is one. Raises Refused."""
        request.header.request_id = uuid4().bytes
        while True:
            try:
                answer = method()(request, timeout=CALL_SECONDS)
            except grpc.RpcError:
                self._channel = next(self._channels)
            else:
                problem = next((each for each in _parts(answer) if each.error_class != common.ERROR_CLASS_NONE), None)
                if problem is None:
                    return answer
                if problem.error_class == common.ERROR_CLASS_REFRESH:
                    self._channel = next(self._channels)
                elif problem.error_class != common.ERROR_CLASS_RETRY:
                    raise Refused(problem.error_message)
            SystemClock().pause(_PAUSE_MS)


def _tell_sent(records: list[tuple[int, str]], results: Iterable[log.ProduceResult]) -> None:
    """Tell the offsets of what is acknowledged. The records of a partition are one batch."""
    for result in results:
        values = [value for partition, value in records if partition == result.partition]
        for number, value in enumerate(values if result.base_offset >= 0 else ()):
            tell(sent=value, offset=result.base_offset + number)


def _parts(answer: Any) -> list[Any]:
    """Return everything in an answer that may have an error of its own."""
    return [answer, *getattr(answer, "results", ())]
