"""Bytes that a committed transaction of three small records leaves on disk."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.arena import TOPIC, Arena, create_topic
from bench.case import Case, Row
from bench.contenders import RAW, kafka_alone, own
from bench.load.transactions import UNARY_TRANSACT
from bench.results import BYTES, LoadFailed, Run

if TYPE_CHECKING:
    from bench.kafka.settings import Profile

_PRODUCERS: Final = 16
_VALUE_BYTES: Final = 100
_KAFKA_LOGS: Final = (f"{TOPIC}-*/*.log", "__transaction_state-*/*.log", "__cluster_metadata-*/*.log")
"""Log files of Kafka that count. Index files are left out: they are sparse and 10 MiB each."""


def rows(arena: Arena) -> list[Row]:
    """Return one row: the growth of the stopped server's files, divided by its transactions.

    Produce and EndTxn are two writes, so each marker is a batch of its own. With Transact it is the tail of its batch.
    """
    ours = [own(driver, partial(_measure_own, arena, driver)) for driver in ("stubs", UNARY_TRANSACT)]
    theirs = kafka_alone(arena, RAW, partial(_measure_kafka, arena))
    return [Row("3 x 100 B, committed", BYTES, [*ours, *theirs])]


def _measure_own(arena: Arena, driver: str) -> Run:
    server = arena.new_own("disk")
    server.start()
    try:
        create_topic(server, TOPIC)
        before = _length(server.data_dir, "**/*")
        run = arena.load(
            "transactions",
            server,
            driver=driver,
            producers=_PRODUCERS,
            value_bytes=_VALUE_BYTES,
            topic=TOPIC,
            warm_up_s=0,
            measured_s=arena.scale.measured_s,
        )
    finally:
        server.stop()
    return _per_transaction(_length(server.data_dir, "**/*") - before, run)


def _measure_kafka(arena: Arena, profile: Profile) -> Run:
    broker = arena.new_broker(profile)
    broker.start()
    try:
        broker.create_topic(TOPIC)
        before = _length(broker.data_dir, *_KAFKA_LOGS)
        run = broker.load(
            "raw-transactions",
            producers=_PRODUCERS,
            bytes=_VALUE_BYTES,
            committed=True,
            topic=TOPIC,
            warm_up=0,
            measured=arena.scale.measured_s,
        )
    finally:
        broker.stop()
    return _per_transaction(_length(broker.data_dir, *_KAFKA_LOGS) - before, run)


def _length(directory: Path, *patterns: str) -> int:
    paths = {path for pattern in patterns for path in directory.glob(pattern)}
    return sum(path.stat().st_size for path in paths if path.is_file())


def _per_transaction(grown: int, run: Run) -> Run:
    """Divide the growth by the counted transactions. A few in thousands, at the very end of the load, are on disk but
    not counted."""
    if not run.operations:
        raise LoadFailed("no transaction was committed")
    return Run(figure=grown / run.operations, operations=run.operations, elapsed_s=run.elapsed_s)


CASE: Final = Case("disk", "bytes on disk per transaction", rows)
