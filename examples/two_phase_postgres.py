"""Orders in a database and in a log, both or neither: the database decides, the log takes part in its decision.

    TXN_TRANSACTION_TWO_PHASE_COMMIT_ENABLE=true .venv/bin/txnctl dev                 in one terminal
    .venv/bin/python examples/two_phase_postgres.py --order 1 --database shop.sqlite  in another
    .venv/bin/python examples/two_phase_postgres.py --order 2 --database shop.sqlite --crash-at decided
    .venv/bin/python examples/two_phase_postgres.py --database shop.sqlite            recovers, and shows both

`--database` (or TWO_PHASE_DATABASE) is a PostgreSQL DSN (`postgresql://...`, needs psycopg) or the path of an SQLite
file. `--crash-at` ends the process without a word to anybody, at one of the steps of `STEPS`.

The protocol, in the order that makes it safe:

1. The record is written and the transaction *prepared*: from here on it can be committed, whatever crashes, and nobody
   but us ends it.
2. One database transaction writes the order AND which prepared transaction belongs to it. Its commit is the decision.
3. The log's transaction is committed. If we never get there, the next start does it.

At every start, `recover` takes the log's transaction over, looks up what the database decided on it, and ends it so.
What has no decision is aborted: the order is not in the database either, and cannot get there any more, because every
deciding database transaction checks that its process was not taken over meanwhile. An error of any kind simply ends the
program; the next start knows what to do.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import grpc

from coordinator_api.v1 import common_pb2 as common
from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_api.v1.log_pb2_grpc import LogServiceStub
from coordinator_api.v1.transaction_pb2_grpc import TransactionServiceStub

TOPIC: Final = "orders"
TRANSACTIONAL_ID: Final = "shop"
STEPS: Final = ("kept", "initialised", "produced", "prepared", "undecided", "decided", "committed")
"""Where a crash can be asked for: after an open transaction was taken over and before it is ended; after recovery;
after the record; after PrepareTransaction; before the database commits; after it did; after EndTxn."""

CRASHED: Final = 70
_DEADLINE_SECONDS: Final = 30


class Identity(NamedTuple):
    """Of a producer, and of the transaction that it opened."""

    producer_id: int
    producer_epoch: int


class Connection(Protocol):
    """What sqlite3 and psycopg have in common."""

    def execute(self, query: Any, parameters: Sequence[object] = ..., /) -> Any: ...  # noqa: ANN401  two libraries
    def commit(self) -> None: ...
    def close(self) -> None: ...


class Reply(Protocol):
    """What all replies and their items have in common."""

    @property
    def error_code(self) -> int: ...
    @property
    def error_message(self) -> str: ...


ReplyT = TypeVar("ReplyT", bound=Reply)


class TakenOver(Exception):
    """Another process recovered what this one had begun; it must not decide any more."""


class Database:
    """The decision maker. `orders` is the application's; the other tables are what it takes to decide for a log."""

    def __init__(self, dsn: str) -> None:
        self._parameter = "?"
        self._connection: Connection
        if dsn.startswith(("postgres://", "postgresql://")):
            try:
                psycopg = import_module("psycopg")
            except ImportError:
                raise SystemExit("a PostgreSQL DSN needs psycopg: install it, or name an SQLite file") from None
            self._parameter, self._connection = "%s", psycopg.connect(dsn)
        else:
            self._connection = sqlite3.connect(dsn)
        for table in (
            "orders (id BIGINT PRIMARY KEY)",
            # Which process may decide: whoever recovered last.
            "participants (name TEXT PRIMARY KEY, producer_id BIGINT, producer_epoch BIGINT)",
            # A row is the decision to commit. No row: abort.
            "decisions (name TEXT, producer_id BIGINT, producer_epoch BIGINT)",
        ):
            self._connection.execute(f"CREATE TABLE IF NOT EXISTS {table}")
        self._connection.commit()

    def close(self) -> None:
        self._connection.close()

    def take_over(self, client: Identity) -> None:
        """From here on only this process decides. Waits for a decision that is being committed, and forbids later ones,
        so that what `is_committed` says then stays true."""
        self._execute(
            "INSERT INTO participants VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE"
            " SET producer_id = excluded.producer_id, producer_epoch = excluded.producer_epoch",
            (TRANSACTIONAL_ID, *client),
        )
        self._connection.commit()

    def is_committed(self, noted: Identity) -> bool:
        """Whether the database decided to commit the transaction of the log that was noted so."""
        query = "SELECT 1 FROM decisions WHERE name = ? AND producer_id = ? AND producer_epoch = ?"
        found = self._execute(query, (TRANSACTIONAL_ID, *noted)).fetchone() is not None
        self._connection.commit()
        return found

    def order(self, order_id: int, noted: Identity, client: Identity) -> None:
        """The order and the decision for the log, not committed yet. Raises: TakenOver."""
        still_ours = self._execute(
            "UPDATE participants SET name = name WHERE name = ? AND producer_id = ? AND producer_epoch = ?",
            (TRANSACTIONAL_ID, *client),
        )
        if still_ours.rowcount != 1:
            raise TakenOver(f"order {order_id} is given up: a newer process recovered")
        self._execute("INSERT INTO orders VALUES (?)", (order_id,))
        self._execute("INSERT INTO decisions VALUES (?, ?, ?)", (TRANSACTIONAL_ID, *noted))

    def commit(self) -> None:
        self._connection.commit()

    def forget_decisions(self) -> None:
        """Nothing of the log is open, so nobody will ask for a decision of the past."""
        self._execute("DELETE FROM decisions WHERE name = ?", (TRANSACTIONAL_ID,))
        self._connection.commit()

    def orders(self) -> list[int]:
        found = [order_id for (order_id,) in self._execute("SELECT id FROM orders ORDER BY id").fetchall()]
        self._connection.commit()
        return found

    def _execute(self, query: str, parameters: Sequence[object] = ()) -> Any:  # noqa: ANN401  two libraries
        return self._connection.execute(query.replace("?", self._parameter), parameters)


class Shop:
    """The participant: one transactional producer, and the database that decides for it."""

    def __init__(self, channel: grpc.Channel, database: Database, crash_at: str | None) -> None:
        self._logs, self._transactions = LogServiceStub(channel), TransactionServiceStub(channel)
        self._database = database
        self._crash_at = crash_at
        self._client = Identity(-1, -1)

    def recover(self) -> None:
        """Take the log's transaction over and end it as the database decided, if there is one."""
        started = self._call(
            self._transactions.InitProducerId,
            # The outside decision may take any time: with enable_2pc there is no transaction timeout.
            txn.InitProducerIdRequest(transactional_id=TRANSACTIONAL_ID, enable_2pc=True, keep_prepared=True),
        )
        self._client = Identity(started.producer_id, started.producer_epoch)
        self._database.take_over(self._client)
        if started.HasField("ongoing_producer_id"):
            self._reach("kept")
            noted = Identity(started.ongoing_producer_id, started.ongoing_producer_epoch)
            is_committed = self._database.is_committed(noted)
            self._end(committed=is_committed)
            print(f"recovered: {'committed' if is_committed else 'aborted'} what {noted} had written")
            self._database.take_over(self._client)
        self._database.forget_decisions()
        self._reach("initialised")

    def order(self, order_id: int) -> None:
        """Put an order into the database and into the log, both or neither."""
        self._produce(order_id)
        self._reach("produced")
        prepared = self._call(
            self._transactions.PrepareTransaction,
            txn.PrepareTransactionRequest(transactional_id=TRANSACTIONAL_ID, **self._client._asdict()),
        )
        noted = Identity(prepared.ongoing_producer_id, prepared.ongoing_producer_epoch)
        self._reach("prepared")
        self._database.order(order_id, noted, self._client)
        self._reach("undecided")
        self._database.commit()
        self._reach("decided")
        self._end(committed=True)
        self._reach("committed")
        print(f"ordered {order_id}")

    def logged_orders(self) -> list[int]:
        """The orders in the log, as a reader of committed records sees them."""
        return sorted(int(record.value) for record in self._records())

    def create_topic(self) -> None:
        reply = self._call(
            self._logs.CreateTopics,
            log.CreateTopicsRequest(topics=[log.NewTopic(name=TOPIC, partition_count=1)]),
        )
        if reply.results[0].error_code != common.ERROR_CODE_TOPIC_ALREADY_EXISTS:
            checked(reply.results[0])

    def _produce(self, order_id: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        record = log.Record(value=b"%d" % order_id, timestamp_ms=now_ms)
        batch = log.RecordBatch(
            record_count=1,
            base_timestamp_ms=now_ms,
            max_timestamp_ms=now_ms,
            producer_id=self._client.producer_id,
            producer_epoch=self._client.producer_epoch,
            base_sequence=0,
            is_transactional=True,
            encoding=log.ENCODING_RECORDS_V1,
            payload=log.Records(records=[record]).SerializeToString(),
        )
        request = log.ProduceRequest(
            transactional_id=TRANSACTIONAL_ID, batches=[log.PartitionBatch(topic=TOPIC, partition=0, batch=batch)]
        )
        checked(self._call(self._logs.Produce, request).results[0])

    def _end(self, *, committed: bool) -> None:
        ended = self._call(
            self._transactions.EndTxn,
            txn.EndTxnRequest(transactional_id=TRANSACTIONAL_ID, committed=committed, **self._client._asdict()),
        )
        self._client = Identity(ended.producer_id, ended.producer_epoch)

    def _records(self) -> Iterator[log.Record]:
        offset, is_over = 0, False
        while not is_over:
            wanted = log.FetchPartition(topic=TOPIC, partition=0, fetch_offset=offset)
            found = checked(self._call(self._logs.Fetch, log.FetchRequest(partitions=[wanted])).results[0])
            for batch in found.batches:
                yield from log.Records.FromString(batch.payload).records
            offset, is_over = found.next_offset, found.next_offset >= found.last_stable_offset

    def _call(self, method: Any, request: Any) -> Any:  # noqa: ANN401  the stubs' own types end at their attributes
        return checked(method(request, timeout=_DEADLINE_SECONDS, wait_for_ready=True))

    def _reach(self, step: str) -> None:
        if step == self._crash_at:
            print(f"crashing: {step}", flush=True)
            os._exit(CRASHED)


def checked(reply: ReplyT) -> ReplyT:
    """Return the reply. Errors of the protocol travel in it; only those of the transport are gRPC's."""
    if reply.error_code:
        raise SystemExit(f"the server refused with error {reply.error_code}: {reply.error_message}")
    return reply


def main(arguments: Iterable[str]) -> None:
    """Recover, make an order if one is asked for, and show what database and log hold."""
    parser = argparse.ArgumentParser(description="One order in a database and in a log, both or neither.")
    parser.add_argument("endpoint", nargs="?", default="127.0.0.1:7070", help="HOST:PORT of the server")
    parser.add_argument("--database", default=os.environ.get("TWO_PHASE_DATABASE", "shop.sqlite"), metavar="DSN")
    parser.add_argument("--order", type=int, metavar="ID", help="order to make; none: only recover and show")
    parser.add_argument("--crash-at", choices=STEPS)
    options = parser.parse_args(list(arguments))
    database = Database(options.database)
    # A proxy in the environment is meant for the web, and would be asked for the loopback address too.
    with grpc.insecure_channel(options.endpoint, options=[("grpc.enable_http_proxy", 0)]) as channel:
        shop = Shop(channel, database, options.crash_at)
        shop.create_topic()
        shop.recover()
        if options.order is not None and options.order not in database.orders():
            shop.order(options.order)
        print(f"database {database.orders()}")
        print(f"log {shop.logged_orders()}")
    database.close()


if __name__ == "__main__":
    main(sys.argv[1:])
