"""Compaction of a topic, as a Kafka client sees it: fill the topic, let it be compacted, and commit and read elsewhere
meanwhile.

It runs in an environment of its own, so it imports only the values of measurements.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it imports them, but names no __all__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from bench.results import Cleaning

_FULL: Final = "full"
_OTHER: Final = "other"
_MIB: Final = 1 << 20
_BATCH_BYTES: Final = 256 << 10
_WARM_UP: Final = 100
_BEFORE: Final = 1_000
_AT_A_TIME: Final = 20
"""Transactions between two looks at the directory."""
_SMALL: Final = 0.25
"""Fraction of the bytes before, from which on down the topic counts as compacted."""
_SETTLED: Final = 5
"""Looks without a change, a second apart, until the directory counts as settled."""
_PATIENCE_S: Final = 600
_CALL_S_MAX: Final = 60
_COMPACT: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1000",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Settings of the load."""

    bootstrap: str
    server_process_id: int
    data_dir: str
    records: int
    value_bytes: int
    keys: int
    topic_settings: dict[str, str]
    """Settings of the topic from the beginning."""


def measure(load: Load) -> Cleaning:
    """Fill and compact. Raises RuntimeError if the directory does not become small."""
    admin = AdminClient({"bootstrap.servers": load.bootstrap})
    new = [NewTopic(_FULL, 1, 1, config=load.topic_settings), NewTopic(_OTHER, 1, 1)]
    for created in admin.create_topics(new).values():
        created.result(_CALL_S_MAX)
    _fill(load)
    others = _others(load.bootstrap)
    list(islice(others, _WARM_UP))
    before = list(islice(others, _BEFORE))
    bytes_before, began = _bytes_in(load.data_dir), time.perf_counter()
    _compact(admin, load)
    during: list[tuple[float, float]] = []
    while _bytes_in(load.data_dir) > bytes_before * _SMALL:
        during += islice(others, _AT_A_TIME)
        if time.perf_counter() - began > _PATIENCE_S:
            raise RuntimeError(f"{_bytes_in(load.data_dir)} of {bytes_before} bytes are left after {_PATIENCE_S} s")
    took_s = time.perf_counter() - began
    (commit_before, read_before), (commit, read) = _p99s(before), _p99s(during)
    return Cleaning(
        mib_before=bytes_before / _MIB,
        mib_left=_settled_bytes(load.data_dir) / _MIB,
        took_s=took_s,
        commit_p99_ms_before=commit_before,
        commit_p99_ms=commit,
        read_p99_ms_before=read_before,
        read_p99_ms=read,
    )


def _fill(load: Load) -> None:
    producer = _bulk_producer(load.bootstrap)
    value = os.urandom(load.value_bytes)
    for number in range(load.records):
        while True:
            try:
                producer.produce(_FULL, value, b"%d" % (number % load.keys), partition=0)
                break
            except BufferError:
                producer.poll(1)
    _flush(producer)


def _compact(admin: AdminClient, load: Load) -> None:
    """Change the settings. One more record then ends the active segment of a server that spares it."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in _COMPACT.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, _FULL, incremental_configs=entries)
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result(_CALL_S_MAX)
    producer = _bulk_producer(load.bootstrap)
    producer.produce(_FULL, b"last", b"0", partition=0)
    _flush(producer)


def _bulk_producer(bootstrap: str) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": _BATCH_BYTES})


def _flush(producer: Producer) -> None:
    if producer.flush(_CALL_S_MAX):
        raise RuntimeError("records were not acknowledged")


def _others(bootstrap: str) -> Iterator[tuple[float, float]]:
    """Commit and read one record after the other; yields the times of both (ms)."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "other", "linger.ms": 0})
    producer.init_transactions()
    reading = {"isolation.level": "read_committed", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "other", "fetch.wait.max.ms": 100, **reading})
    consumer.assign([TopicPartition(_OTHER, 0, 0)])
    while True:
        began = time.perf_counter()
        producer.begin_transaction()
        producer.produce(_OTHER, b"v" * 100, partition=0)
        producer.commit_transaction()
        committed = time.perf_counter()
        if consumer.poll(_CALL_S_MAX) is None:
            raise RuntimeError("a committed record did not come")
        yield (committed - began) * 1_000, (time.perf_counter() - committed) * 1_000


def _p99s(times_ms: Sequence[tuple[float, float]]) -> list[float]:
    """Return the 99th percentile of the commits, and that of the reads."""
    return [sorted(each)[int(len(each) * 0.99)] for each in zip(*times_ms, strict=True)]


def _settled_bytes(directory: str) -> int:
    found, unchanged = _bytes_in(directory), 0
    while unchanged < _SETTLED:
        time.sleep(1)
        now = _bytes_in(directory)
        unchanged = unchanged + 1 if now == found else 0
        found = now
    return found


def _bytes_in(directory: str) -> int:
    """Return the bytes on disk: sparse files are as large as what was written."""
    found = 0
    for path in Path(directory).rglob("*"):
        try:
            found += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue  # removed since it was listed
    return found
