"""Work of the processes of a soak. Each continues until it is killed or asked to end.

python -m bench.soak.work ROLE ENDPOINT NUMBER DIRECTORY
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.soak.ledger import ABORTED, BEGUN, COMMITTED, PARTITIONS, Told
from coordinator_client import Abortable, Consumer, Producer

ORDERS: Final = "orders"
COPIES: Final = "copies"
BULK: Final = "bulk"
COPIERS: Final = "copiers"
WATCHERS: Final = "watchers"

_PACE_S: Final = 0.02
"""Time from the beginning of one transaction to that of the next (s): a steady load, below the possible maximum."""
_ABORT_EVERY: Final = 10
_ORDER_BYTES: Final = 1_000
_BULK_BYTES: Final = 64 * 1024
_BULK_RECORDS: Final = 4
_BULK_PACE_S: Final = 0.2
_VISIT_S: Final = 15.0
_POLL_MS: Final = 500
_TIMEOUT_MS: Final = 20_000
"""Timeout of transactions (ms): an open transaction of a killed process blocks readers for at most this long."""

_over = threading.Event()


def outcomes_of(directory: Path, number: int) -> Path:
    """Return the file in which transactor `number` reports the outcomes of its transactions."""
    return directory / f"outcomes-{number}.log"


def transact(endpoint: str, number: int, directory: Path) -> None:
    """Send small transactions, and abort some.

    Each number is written down before it is used, so that a successor after a kill knows which numbers are taken."""
    path = outcomes_of(directory, number)
    told = Told()
    if path.exists():
        # A line that was cut short by a kill is ended here, and ignored.
        with path.open("a") as outcomes:
            outcomes.write("\n")
        for line in path.read_text().splitlines(keepends=True):
            told.note(line)
    with (
        path.open("a", buffering=1) as outcomes,
        Producer(
            endpoint, transactional_id=f"soak-{number}", transaction_timeout_ms=_TIMEOUT_MS, wait_ms=None
        ) as producer,
    ):
        transaction_number = told.begun
        while not _over.is_set():
            began = time.monotonic()
            is_aborted = transaction_number % _ABORT_EVERY == _ABORT_EVERY - 1
            outcomes.write(f"{transaction_number} {BEGUN} 0\n")
            value = b"%d %d ".ljust(_ORDER_BYTES, b".") % (number, transaction_number)
            try:
                with producer.transaction() as txn:
                    for partition in range(PARTITIONS):
                        txn.send(ORDERS, value, partition=partition)
                    if is_aborted:
                        txn.flush()
                        txn.abort()
                what = ABORTED if is_aborted else COMMITTED
            except Abortable:
                what = ABORTED
            took_s = time.monotonic() - began
            outcomes.write(f"{transaction_number} {what} {took_s * 1_000:.3f}\n")
            transaction_number += 1
            _over.wait(max(0.0, _PACE_S - took_s))


def copy(endpoint: str, number: int, _directory: Path) -> None:
    """Copy orders exactly once, as a member of a group: records and offsets in one transaction."""
    with (
        Consumer(
            endpoint,
            group_id=COPIERS,
            group_instance_id=f"copier-{number}",
            group_protocol="classic",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            wait_ms=None,
        ) as consumer,
        Producer(
            endpoint, transactional_id=f"copier-{number}", transaction_timeout_ms=_TIMEOUT_MS, wait_ms=None
        ) as producer,
    ):
        producer.init()
        consumer.subscribe([ORDERS])
        while not _over.is_set():
            batch = consumer.poll(timeout_ms=_POLL_MS)
            if not batch:
                continue
            try:
                with producer.transaction() as txn:
                    for record in batch:
                        txn.send(COPIES, record.value, partition=record.partition)
                    txn.commit_offsets(consumer, batch)
            except Abortable:
                consumer.rewind(batch)


def visit(endpoint: str, _number: int, _directory: Path) -> None:
    """Join a group, read for a while, and leave: each causes a rebalance."""
    while not _over.is_set():
        with Consumer(endpoint, group_id=WATCHERS, auto_offset_reset="latest", wait_ms=None) as consumer:
            consumer.subscribe([ORDERS, BULK])
            until = time.monotonic() + _VISIT_S
            while time.monotonic() < until and not _over.is_set():
                consumer.poll(timeout_ms=_POLL_MS)


def send_bulk(endpoint: str, _number: int, _directory: Path) -> None:
    """Send large records outside transactions, which retention removes soon."""
    with Producer(endpoint, wait_ms=None) as producer:
        while not _over.is_set():
            for _ in range(_BULK_RECORDS):
                producer.send(BULK, os.urandom(_BULK_BYTES))
            producer.flush()
            _over.wait(_BULK_PACE_S)


ROLES: Final[dict[str, Callable[[str, int, Path], None]]] = {
    "transact": transact,
    "copy": copy,
    "visit": visit,
    "send_bulk": send_bulk,
}


def main(role: str, endpoint: str, number: str, directory: str) -> None:
    """Run one role."""
    signal.signal(signal.SIGTERM, lambda *_: _over.set())
    # Ctrl-C in the terminal is for the soak, which then ends its processes itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ROLES[role](endpoint, int(number), Path(directory))


if __name__ == "__main__":
    main(*sys.argv[1:])
