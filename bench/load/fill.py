"""Fills a topic with transactions, one in ten of them aborted, for cases that read. Operations are records."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from bench.results import Run
from bench.window import Window
from coordinator_client.admin.admin import Admin
from coordinator_client.producer.producer import Producer, Transaction

PARTITIONS: Final = 3
ABORTED_OF_TEN: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Settings of the load."""

    endpoint: str
    server_process_id: int
    topic: str
    records: int
    value_bytes: int
    records_per_transaction: int
    encoding: str


class _OnPurpose(Exception):
    """Raised to abort a transaction."""


def measure(load: Load) -> Run:
    """Create the topic and write."""
    with Admin(load.endpoint, client_id="bench") as admin:
        admin.create_topic(load.topic, PARTITIONS)
    value = os.urandom(load.value_bytes)
    window = Window(load.server_process_id)
    with Producer(
        load.endpoint, transactional_id=f"fill-{load.topic}", encoding=load.encoding, client_id="bench"
    ) as producer:
        for number, first in enumerate(range(0, load.records, load.records_per_transaction)):
            end = min(load.records, first + load.records_per_transaction)
            try:
                with producer.transaction() as transaction:
                    _write(transaction, load.topic, value, range(first, end))
                    if number % 10 < ABORTED_OF_TEN:
                        transaction.flush()
                        raise _OnPurpose
            except _OnPurpose:
                continue
    return window.close(load.records)


def _write(transaction: Transaction, topic: str, value: bytes, numbers: range) -> None:
    for number in numbers:
        transaction.send(topic, value, partition=number % PARTITIONS)
