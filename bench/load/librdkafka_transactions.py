"""Transactions back to back by librdkafka, one producer in each thread: one record to each partition, then a commit.

It runs in an environment of its own, so it imports only the measuring modules of the project.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import partial
from typing import Final

from confluent_kafka import Producer

from bench.load.workers import Span, run_in_threads
from bench.results import Run

_PARTITIONS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Settings of the load."""

    bootstrap: str
    server_process_id: int
    producers: int
    value_bytes: int
    topic: str
    warm_up_s: float
    measured_s: float


class _Worker:
    """A producer, in the thread that makes it."""

    def __init__(self, load: Load, transactional_id: str) -> None:
        self._topic, self._value = load.topic, os.urandom(load.value_bytes)
        self._producer = Producer(
            {"bootstrap.servers": load.bootstrap, "transactional.id": transactional_id, "linger.ms": 0}
        )
        self._producer.init_transactions()
        # The first one finds coordinator and partitions, which is no part of any warm-up.
        self.perform()

    def perform(self) -> None:
        """Run one transaction."""
        self._producer.begin_transaction()
        for partition in range(_PARTITIONS):
            self._producer.produce(self._topic, self._value, partition=partition)
        self._producer.commit_transaction()

    def close(self) -> None:
        """Do nothing. The producer ends with the process."""


def measure(load: Load) -> Run:
    """Run the transactions. Raises: LoadFailed."""
    prefix = f"librdkafka-{os.getpid()}-{time.time_ns() % 10**9}-"
    openers = [partial(_Worker, load, f"{prefix}{number}") for number in range(load.producers)]
    return run_in_threads(openers, Span(load.warm_up_s, load.measured_s), load.server_process_id)
