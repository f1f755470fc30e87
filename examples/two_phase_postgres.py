"""Orders in a database and in a log, both or neither: the database decides, and the log follows its decision.

    TXN_TRANSACTION_TWO_PHASE_COMMIT_ENABLE=true .venv/bin/txnctl dev                 in one terminal
    .venv/bin/python examples/two_phase_postgres.py --order 1 --database shop.sqlite  in another
    .venv/bin/python examples/two_phase_postgres.py --order 2 --database shop.sqlite --crash-at decided
    .venv/bin/python examples/two_phase_postgres.py --database shop.sqlite            recovers, and shows both

`--database` (or TWO_PHASE_DATABASE) is a PostgreSQL DSN (`postgresql://...`, needs psycopg) or the path of an SQLite
file. `--crash-at` ends the process without any cleanup, at one of the steps of `STEPS`.

The protocol, in the order that makes it safe:

1. The record is written and the transaction is *prepared*. From here on it can be committed in spite of any crash, and
   only this application ends it.
2. One database transaction writes the order AND the identity of its prepared transaction. Its commit is the decision.
3. The log's transaction is committed. If the process dies before that, the next start does it.

At every start, `recover` takes over the log's transaction, looks up the decision in the database, and ends the
transaction accordingly. Without a decision it is aborted: the order is not in the database either. It cannot get there
any more, because every deciding database transaction checks that its process was not replaced meanwhile. An error of
any kind simply ends the program; the next start recovers.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Final, Protocol

from coordinator_client import Admin, Identity, Producer, TransactionError, read

TOPIC: Final = "orders"
TRANSACTIONAL_ID: Final = "shop"
STEPS: Final = ("kept", "initialised", "produced", "prepared", "undecided", "decided", "committed")
"""Steps at which a crash can be requested.

- kept: after an open transaction was taken over, and before it is ended
- initialised: after recovery
- produced: after the record
- prepared: after it was prepared
- undecided: before the database commits
- decided: after the database committed
- committed: after the log's commit
"""

CRASHED: Final = 70


class Connection(Protocol):
    """Common methods of sqlite3 and psycopg."""

    def execute(self, query: Any, parameters: Sequence[object] = ..., /) -> Any: ...  # noqa: ANN401  two libraries
    def commit(self) -> None: ...
    def close(self) -> None: ...


class TakenOver(Exception):
    """Another process has recovered the work of this one, which must not decide any more."""


class Database:
    """The decision maker. `orders` is the application's table; the others hold what it needs to decide for a log."""

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
            # Process that may decide: the last one to recover.
            "participants (name TEXT PRIMARY KEY, producer_id BIGINT, producer_epoch BIGINT)",
            # A row is a decision to commit. Without a row the transaction is aborted.
            "decisions (name TEXT, producer_id BIGINT, producer_epoch BIGINT)",
        ):
            self._connection.execute(f"CREATE TABLE IF NOT EXISTS {table}")
        self._connection.commit()

    def close(self) -> None:
        self._connection.close()

    def take_over(self, owner: Identity) -> None:
        """Let only this process decide from now on.

        Waits for a decision that is being committed, and forbids later ones by other processes. So the result of
        `is_committed` stays true."""
        self._execute(
            "INSERT INTO participants VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE"
            " SET producer_id = excluded.producer_id, producer_epoch = excluded.producer_epoch",
            (TRANSACTIONAL_ID, *owner),
        )
        self._connection.commit()

    def is_committed(self, noted: Identity) -> bool:
        """Return True if the database decided to commit the log's transaction with this identity."""
        query = "SELECT 1 FROM decisions WHERE name = ? AND producer_id = ? AND producer_epoch = ?"
        found = self._execute(query, (TRANSACTIONAL_ID, *noted)).fetchone() is not None
        self._connection.commit()
        return found

    def order(self, order_id: int, noted: Identity, owner: Identity) -> None:
        """Write the order and the decision for the log, without a commit yet. Raises: TakenOver."""
        still_ours = self._execute(
            "UPDATE participants SET name = name WHERE name = ? AND producer_id = ? AND producer_epoch = ?",
            (TRANSACTIONAL_ID, *owner),
        )
        if still_ours.rowcount != 1:
            raise TakenOver(f"order {order_id} is given up: a newer process recovered")
        self._execute("INSERT INTO orders VALUES (?)", (order_id,))
        self._execute("INSERT INTO decisions VALUES (?, ?, ?)", (TRANSACTIONAL_ID, *noted))

    def commit(self) -> None:
        self._connection.commit()

    def forget_decisions(self) -> None:
        """Delete the decisions: no transaction of the log is open, so none is needed any more."""
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

    def __init__(self, producer: Producer, database: Database, crash_at: str | None) -> None:
        self._producer = producer
        self._database = database
        self._crash_at = crash_at
        self._owner = Identity(-1, -1)
        """Identity of this process in the database. No other process ever recovers with it."""

    def recover(self) -> None:
        """Take over the log's open transaction, if there is one, and end it as the database decided."""
        kept = self._producer.recover()
        assert self._producer.identity is not None, "a producer that recovered has an identity"
        self._owner = self._producer.identity
        self._database.take_over(self._owner)
        if kept is not None:
            self._reach("kept")
            is_committed = self._database.is_committed(kept.identity)
            if is_committed:
                kept.commit()
            else:
                kept.abort()
            print(f"recovered: {'committed' if is_committed else 'aborted'} what {kept.identity} had written")
        self._database.forget_decisions()
        self._reach("initialised")

    def order(self, order_id: int) -> None:
        """Put an order into the database and into the log, both or neither."""
        with self._producer.transaction() as transaction:
            transaction.send(TOPIC, b"%d" % order_id)
            transaction.flush()
            self._reach("produced")
            prepared = transaction.prepare()
        self._reach("prepared")
        self._database.order(order_id, prepared.identity, self._owner)
        self._reach("undecided")
        self._database.commit()
        self._reach("decided")
        prepared.commit()
        self._reach("committed")
        print(f"ordered {order_id}")

    def _reach(self, step: str) -> None:
        if step == self._crash_at:
            print(f"crashing: {step}", flush=True)
            os._exit(CRASHED)


def logged_orders(endpoint: str) -> list[int]:
    """Return the orders in the log, as a reader of committed records sees them."""
    return sorted(int(record.value or b"") for record in read(TOPIC, endpoint))


def main(arguments: Iterable[str]) -> None:
    """Recover, make an order if one is given, and show the orders in database and log."""
    parser = argparse.ArgumentParser(description="One order in a database and in a log, both or neither.")
    parser.add_argument("endpoint", nargs="?", default="127.0.0.1:7070", help="HOST:PORT of the server")
    parser.add_argument("--database", default=os.environ.get("TWO_PHASE_DATABASE", "shop.sqlite"), metavar="DSN")
    parser.add_argument("--order", type=int, metavar="ID", help="order to make; none: only recover and show")
    parser.add_argument("--crash-at", choices=STEPS)
    options = parser.parse_args(list(arguments))
    database = Database(options.database)
    try:
        with Admin(options.endpoint) as admin:
            admin.create_topic(TOPIC, 1, is_existing_ok=True)
        # The outside decision may take any time, so transactions have no timeout.
        with Producer(options.endpoint, transactional_id=TRANSACTIONAL_ID, two_phase_commit=True) as producer:
            shop = Shop(producer, database, options.crash_at)
            shop.recover()
            if options.order is not None and options.order not in database.orders():
                shop.order(options.order)
        print(f"database {database.orders()}")
        print(f"log {logged_orders(options.endpoint)}")
    except TransactionError as error:
        raise SystemExit(str(error)) from error
    database.close()


if __name__ == "__main__":
    main(sys.argv[1:])
