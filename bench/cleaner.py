"""Measures the compaction of a topic by our server, and by Kafka's log cleaner on the same data.

    python -m bench cleaner            2 GiB of 1 KiB records, and of 64 KiB records
    python -m bench.cleaner 1          as much as this (GiB), at least 1: a server spares the file that it writes

One record of a hundred is the newest of its key. A program with librdkafka fills a topic and makes it compact
(`bench/load/cleaning.py`). It commits and reads in another topic before and meanwhile, one call after the other. The
servers are real processes on one machine, one at a time. Kafka spares the active segment and deletes files a minute
later by default: here its segments have 64 MiB, and it deletes after a second. Its cleaner looks every 100 ms.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.arena import WITH_FRONT, Arena
from bench.kafka.settings import PROFILES
from bench.programs import load_command, output_of
from bench.results import Cleaning
from bench.scale import FULL

if TYPE_CHECKING:
    from bench.kafka.kafka_server import KafkaServer

GIB_DEFAULT: Final = 2.0
GIB_MIN: Final = 1.0
RECORDS_PER_KEY: Final = 100
_CACHE: Final = Path(__file__).resolve().parent.parent / ".cache" / "bench"
_OURS: Final = (*WITH_FRONT, "--set", "compaction_check_interval_ms=100")
_STOCK: Final = PROFILES["stock"]
_KAFKA: Final = replace(
    _STOCK, broker={**_STOCK.broker, "log.cleaner.backoff.ms": "100", "log.segment.delete.delay.ms": "1000"}
)
_KAFKA_TOPIC: Final = {"segment.bytes": str(64 << 20)}
_HEAD: Final = (
    "server", "records", "MiB before", "MiB left", "s", "commit p99 ms", "during", "read p99 ms", "during"
)  # fmt: skip


def main(arguments: Sequence[str] = ()) -> None:
    """Print a table with a row for each server and size of records."""
    size_gib = float(arguments[0]) if arguments else GIB_DEFAULT
    if size_gib < GIB_MIN:
        raise SystemExit(f"{size_gib:g} GiB are too few: give {GIB_MIN:g} or more")
    size_bytes = int(size_gib * (1 << 30))
    print(f"| {' | '.join(_HEAD)} |")
    print(f"|{' --- |' * len(_HEAD)}")
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="cleaner-", dir=_CACHE) as directory,
        closing(Arena(Path(directory), _CACHE, FULL, [_KAFKA], _say)) as arena,
    ):
        for value_bytes in (1 << 10, 64 << 10):
            for name, servers, topic_settings in (("ours", _own, {}), ("Kafka", _broker, _KAFKA_TOPIC)):
                with servers(arena) as (server, data_dir):
                    seen = _cleaning(server, data_dir, size_bytes, value_bytes, topic_settings)
                print(f"| {name} | {value_bytes >> 10} KiB | {' | '.join(_columns(seen))} |", flush=True)


@contextmanager
def _own(arena: Arena) -> Iterator[tuple[KafkaServer, Path]]:
    from bench.kafka.kafka_server import Front

    server = arena.new_own("cleaner", _OURS)
    server.start()
    try:
        yield Front(arena.toolchain(), server), server.data_dir
    finally:
        server.stop()


@contextmanager
def _broker(arena: Arena) -> Iterator[tuple[KafkaServer, Path]]:
    broker = arena.new_broker(_KAFKA)
    broker.start()
    try:
        yield broker, broker.data_dir
    finally:
        broker.stop()


def _cleaning(
    server: KafkaServer, data_dir: Path, size_bytes: int, value_bytes: int, topic_settings: dict[str, str]
) -> Cleaning:
    """Measure once. Raises: CannotRun, LoadFailed."""
    records = size_bytes // value_bytes
    settings = {
        "bootstrap": server.bootstrap,
        "server_process_id": server.process_id,
        "data_dir": str(data_dir),
        "records": records,
        "value_bytes": value_bytes,
        "keys": max(1, records // RECORDS_PER_KEY),
        "topic_settings": topic_settings,
    }
    command, environment = load_command("cleaning", settings, server.toolchain.librdkafka())
    return Cleaning(**json.loads(output_of(command, "the load program cleaning", environment)))


def _columns(seen: Cleaning) -> list[str]:
    commits = seen.commit_p99_ms_before, seen.commit_p99_ms
    reads = seen.read_p99_ms_before, seen.read_p99_ms
    sizes = [f"{size:,.0f}" for size in (seen.mib_before, seen.mib_left)]
    return [*sizes, f"{seen.took_s:.1f}", *(f"{each:.2f}" for each in (*commits, *reads))]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
