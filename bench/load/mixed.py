"""A mixed load: small transactions with aborts, bulk records, a consumer group, and a reader that starts over
repeatedly.

It runs for minutes, so that `bench.growth` can watch the memory of the server."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from bench.load.stubs import new_prefix
from bench.results import LoadFailed, Run
from bench.window import Window
from coordinator_client import Admin, Consumer, Producer, read

SMALL: Final = "small"
BULK: Final = "bulk"
PARTITIONS: Final = 3
_TRANSACTORS: Final = 12
_CONSUMERS: Final = 2
_ABORT_EVERY: Final = 10
_SMALL_BYTES: Final = 1_000
_BULK_BYTES: Final = 64 * 1024
_BULK_RECORDS: Final = 8
_BULK_PAUSE_S: Final = 0.2
_REREAD_MAX: Final = 20_000
_POLL_MS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Settings of the load."""

    endpoint: str
    server_process_id: int
    measured_s: float


class _Abandoned(Exception):
    """Raised to abort a transaction."""


def measure(load: Load) -> Run:
    """Work until the time is over; the figure is transactions per second. Raises LoadFailed if a worker failed."""
    with Admin(load.endpoint) as admin:
        for topic in (SMALL, BULK):
            admin.create_topic(topic, PARTITIONS)
    mixed = _Mixed(load.endpoint)
    window = Window(load.server_process_id)
    mixed.start()
    mixed.over.wait(load.measured_s)
    run = window.close(sum(mixed.transactions))
    mixed.stop()
    return run


class _Mixed:
    """All workers, each in a thread."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._prefix = new_prefix("mixed")
        self.over = threading.Event()
        self.transactions = [0] * _TRANSACTORS
        """Number of transactions by worker, each counted by the worker itself."""
        self._problems: list[Exception] = []
        work: list[Callable[[], None]] = [
            *(partial(self._transact, number) for number in range(_TRANSACTORS)),
            self._send_bulk,
            *[self._consume] * _CONSUMERS,
            self._read_again,
        ]
        self._threads = [threading.Thread(target=self._guarded, args=(each,), daemon=True) for each in work]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End all workers. Raises: LoadFailed."""
        self.over.set()
        for thread in self._threads:
            thread.join()
        if self._problems:
            raise LoadFailed(f"a worker failed: {self._problems[0]!r}") from self._problems[0]

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  raised where the workers are stopped
            self._problems.append(error)
            self.over.set()

    def _transact(self, number: int) -> None:
        with Producer(self._endpoint, transactional_id=f"{self._prefix}{number}") as producer:
            while not self.over.is_set():
                self.transactions[number] += 1
                try:
                    with producer.transaction() as txn:
                        for partition in range(PARTITIONS):
                            txn.send(SMALL, os.urandom(_SMALL_BYTES), partition=partition)
                        if self.transactions[number] % _ABORT_EVERY == 0:
                            raise _Abandoned
                except _Abandoned:
                    continue

    def _send_bulk(self) -> None:
        with Producer(self._endpoint) as producer:
            while not self.over.is_set():
                for _ in range(_BULK_RECORDS):
                    producer.send(BULK, os.urandom(_BULK_BYTES))
                producer.flush()
                time.sleep(_BULK_PAUSE_S)

    def _consume(self) -> None:
        with Consumer(self._endpoint, group_id="mixed", auto_offset_reset="earliest") as consumer:
            consumer.subscribe([SMALL, BULK])
            while not self.over.is_set():
                consumer.poll(timeout_ms=_POLL_MS)

    def _read_again(self) -> None:
        while not self.over.is_set():
            for count, _record in enumerate(read(SMALL, self._endpoint)):
                if count >= _REREAD_MAX or self.over.is_set():
                    break
            time.sleep(1)
