"""Transfers between accounts with the generated stubs alone, as a client in any language with gRPC would do it.

    .venv/bin/txnctl dev                            in one terminal
    .venv/bin/python examples/with_stubs.py         in another; HOST:PORT may follow

The transfers are those of `with_sdk.py`. The SDK does more, which a long-running program needs: it retries with the
same `request_id` and a deadline, and acts on `error_class`.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final, Protocol, TypeVar

import grpc

from coordinator_api.v1 import common_pb2 as common
from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_api.v1.log_pb2_grpc import LogServiceStub
from coordinator_api.v1.transaction_pb2_grpc import TransactionServiceStub

TOPIC: Final = "transfers"
TRANSACTIONAL_ID: Final = "bank"
TIMEOUT_MS: Final = 60_000
ACCOUNTS: Final = {"alice": 0, "bob": 1}
"""Partition of each account, so every transfer touches two partitions."""


class UnknownAccount(Exception):
    """There is no account with that name."""


class Reply(Protocol):
    """Common fields of all replies and their items."""

    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str: ...


ReplyT = TypeVar("ReplyT", bound=Reply)


def main(endpoint: str) -> None:
    """Make a transfer that succeeds and one that fails, then show the balances."""
    with grpc.insecure_channel(endpoint) as channel:
        logs = LogServiceStub(channel)
        create_topic(logs)
        bank = Bank(logs, TransactionServiceStub(channel))
        bank.transfer("alice", "bob", 30)
        try:
            bank.transfer("alice", "nobody", 50)
        except UnknownAccount as error:
            print(f"aborted: there is no account of {error}")
        for isolation in (common.ISOLATION_LEVEL_READ_UNCOMMITTED, common.ISOLATION_LEVEL_READ_COMMITTED):
            balances: Counter[str] = Counter()
            for record in read(logs, isolation):
                balances[record.key.decode()] += int(record.value)
            name = common.IsolationLevel.Name(isolation).removeprefix("ISOLATION_LEVEL_").lower()
            print(name, dict(sorted(balances.items())))


class Bank:
    """A transactional producer: its identity, and the number of records that it sent to each partition with it."""

    def __init__(self, logs: LogServiceStub, transactions: TransactionServiceStub) -> None:
        self._logs = logs
        self._transactions = transactions
        # This fences the previous producer with this transactional id, and aborts its open transaction.
        identity = checked(
            transactions.InitProducerId(
                txn.InitProducerIdRequest(transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=TIMEOUT_MS)
            )
        )
        self._producer_id, self._producer_epoch = identity.producer_id, identity.producer_epoch
        self._sequences: Counter[int] = Counter()

    def transfer(self, source: str, target: str, amount: int) -> None:
        """Book both sides in one transaction. If it raises UnknownAccount, neither is booked."""
        try:
            self._send(source, -amount)
            if target not in ACCOUNTS:
                raise UnknownAccount(target)
            self._send(target, amount)
        except UnknownAccount:
            self._end(committed=False)
            raise
        self._end(committed=True)

    def _send(self, account: str, amount: int) -> None:
        partition, now_ms = ACCOUNTS[account], time.time_ns() // 1_000_000
        record = log.Record(key=account.encode(), value=b"%d" % amount, timestamp_ms=now_ms)
        batch = log.RecordBatch(
            record_count=1,
            base_timestamp_ms=now_ms,
            max_timestamp_ms=now_ms,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._sequences[partition],
            is_transactional=True,
            encoding=log.ENCODING_RECORDS_V1,
            payload=log.Records(records=[record]).SerializeToString(),
        )
        # Version 2 of the protocol adds the partition to the transaction with the first batch.
        reply = checked(
            self._logs.Produce(
                log.ProduceRequest(
                    transactional_id=TRANSACTIONAL_ID,
                    batches=[log.PartitionBatch(topic=TOPIC, partition=partition, batch=batch)],
                )
            )
        )
        checked(reply.results[0])
        self._sequences[partition] += 1

    def _end(self, *, committed: bool) -> None:
        ended = checked(
            self._transactions.EndTxn(
                txn.EndTxnRequest(
                    transactional_id=TRANSACTIONAL_ID,
                    producer_id=self._producer_id,
                    producer_epoch=self._producer_epoch,
                    committed=committed,
                )
            )
        )
        # The reply has the identity of the next transaction, under which sequences count from 0 again.
        self._producer_id, self._producer_epoch = ended.producer_id, ended.producer_epoch
        self._sequences.clear()


def create_topic(logs: LogServiceStub) -> None:
    """Create the topic unless it exists."""
    topic = log.NewTopic(name=TOPIC, partition_count=len(ACCOUNTS))
    reply = checked(logs.CreateTopics(log.CreateTopicsRequest(topics=[topic])))
    if reply.results[0].error_code != common.ERROR_CODE_TOPIC_ALREADY_EXISTS:
        checked(reply.results[0])


def read(logs: LogServiceStub, isolation: common.IsolationLevel.ValueType) -> Iterator[log.Record]:
    """Yield the records of all partitions, each up to its present end."""
    for partition in ACCOUNTS.values():
        offset, is_over = 0, False
        while not is_over:
            wanted = log.FetchPartition(topic=TOPIC, partition=partition, fetch_offset=offset)
            reply = checked(logs.Fetch(log.FetchRequest(isolation_level=isolation, partitions=[wanted])))
            found = checked(reply.results[0])
            for batch in found.batches:
                if batch.encoding != log.ENCODING_RECORDS_V1 or batch.compression != log.COMPRESSION_NONE:
                    raise SystemExit(
                        "this topic has batches of another writer, in an encoding that this example cannot read"
                    )
                yield from log.Records.FromString(batch.payload).records
            is_committed = isolation == common.ISOLATION_LEVEL_READ_COMMITTED
            end = found.last_stable_offset if is_committed else found.high_watermark
            # The server returns the next offset, because hidden records and markers have offsets, too.
            offset, is_over = found.next_offset, found.next_offset >= end


def checked(reply: ReplyT) -> ReplyT:
    """Return the reply, or exit with its protocol error. gRPC raises only the errors of the transport."""
    if reply.error_code:
        raise SystemExit(f"the server refused with error {reply.error_code}: {reply.error_message}")
    return reply


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Transfers between accounts, with nothing but the generated stubs.")
    parser.add_argument("endpoint", nargs="?", default="127.0.0.1:7070", metavar="HOST:PORT")
    main(parser.parse_args().endpoint)
