"""Two servers with one lease, whose owner is killed, stopped, ended and cut off again and again under producers.

    python -m tests.slate.owner_storm --faults 200 --seed 7 --weather --spark
    python -m tests.slate.owner_storm --faults 20 --cuts --history history.jsonl

Producers of librdkafka, of the SDK and over bare stubs of gRPC write. With `--spark` a job of Spark copies what they
wrote, through source and sink. With `--weather` the object store answers late, twice, with 409 and 500, or not at all.
With `--cuts` each fault cuts the owner's network: to the store, to the clients, to both.

Each fault waits until every producer got something done after the last one. The check at the end is that of any kill
storm: what was acknowledged is read exactly once, by a Kafka consumer and by the SDK, once all producers have ended.
Then a second checker (`tests/histories`) reads the history of the storm, and what a consumer polled all the time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from coordinator_client import Admin, read
from coordinator_client.clock import SystemClock
from tests.harness import forked
from tests.harness.object_store import ObjectServer
from tests.harness.store_weather import Weather
from tests.kafka_front.kill_storm import ENVIRONMENT, PARTITIONS, TOPIC, Client, Storm, Watcher, check_readers
from tests.kafka_front.storm_history import check_again
from tests.kafka_front.storm_round import by, program
from tests.slate.cuts import node_networks, why_not
from tests.slate.storm_pair import CUTS, SIGNALS, Pair

if TYPE_CHECKING:
    from tests.slate.spark_copy import SparkCopy

LEASE_TTL_MS: Final = 10_000
_EVIDENCE_LINES_MAX: Final = 40
_ENDED: Final = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
_LOOK_MS: Final = 1_000
_KINDS: Final = ("kafka", "sdk", "stub")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that one storm is made of."""

    seed: int
    faults: int
    lease_ttl_ms: int = LEASE_TTL_MS
    has_cuts: bool = False
    """True for cuts of networks in place of signals."""
    has_weather: bool = False
    has_spark: bool = False
    history: Path | None = None
    """File for the history, if it is to be kept."""


class OwnerStorm(Storm):
    """The storm over a pair."""

    def __init__(self, directory: Path, seed: int, clients: Sequence[Client], pair: Pair) -> None:
        super().__init__(directory / "unused", seed, clients)
        self._pair = pair
        self.server: Any = pair
        self.kafka = pair.kafka

    def __enter__(self) -> Self:
        self._pair.start()
        with Admin(self._pair.address) as admin:
            admin.create_topic(TOPIC, PARTITIONS)
        for client in self.clients:
            client.start(self)
        return self

    def calm(self) -> None:
        """Let all clients end. Returns once no transaction is open, so that readers see everything."""
        super().calm()
        with Admin(self._pair.address) as admin:
            while open_ids := _open_ids(admin):
                print(f"left open: {open_ids}", flush=True)
                SystemClock().pause(_LOOK_MS)

    def strike(self, faults: Sequence[str]) -> None:
        """Let the owner suffer these faults."""
        for number, fault in enumerate(faults, 1):
            self._wait_for_progress()
            with self._fault(fault):
                self._pair.fault(fault)
            print(f"{number} {fault}: {sum(each.ended_count for each in self.clients)} ended", flush=True)


def run(directory: Path, plan: Plan) -> str:
    """Go through a storm. Returns what happened in it. Raises AssertionError for a wrong transaction."""
    clients = [by(kind, f"{kind}-0") for kind in _KINDS]
    with ExitStack() as stack:
        networks = stack.enter_context(node_networks()) if plan.has_cuts else ()
        objects = stack.enter_context(ObjectServer(host="0.0.0.0" if plan.has_cuts else "127.0.0.1"))
        pair = Pair(directory, objects, plan.lease_ttl_ms, networks)
        storm = stack.enter_context(OwnerStorm(directory, plan.seed, clients, pair))
        copy = _copy(pair.address, directory, stack) if plan.has_spark else None
        if plan.has_weather:
            objects.weather = Weather(plan.seed)
        kinds = tuple(CUTS) if plan.has_cuts else SIGNALS
        with Watcher(program("watch", storm.kafka)) as watcher:
            storm.strike([kinds[number % len(kinds)] for number in range(plan.faults)])
            storm.calm()
        command = program("read", storm.kafka, *(each.told[0].group for each in clients[:1]))
        shown = forked.run(command, stdout=subprocess.PIPE, text=True, check=True, env=ENVIRONMENT)
        found = json.loads(shown.stdout)
        try:
            check_readers(storm, found["values"], found["offsets"], ended_min=plan.faults)
        except AssertionError as wrong:
            wrong.add_note(_evidence(clients, pair.address, {each for part in found["values"] for each in part}))
            raise
        check_again(storm, found, plan.history or directory / "history.jsonl", watcher.polls)
        return _account(plan, clients, pair, objects, copy)


def _copy(address: str, directory: Path, stack: ExitStack) -> SparkCopy:
    """Return a copy of the topic that goes on. Needs PySpark and Java."""
    from tests.slate.spark_copy import COPY, SparkCopy

    with Admin(address) as admin:
        admin.create_topic(COPY, PARTITIONS)
    copy = SparkCopy(address, directory)
    copy.start()
    stack.callback(copy.kill)
    return copy


def _evidence(clients: Sequence[Client], address: str, by_consumer: Set[str]) -> str:
    """Return what readers of both kinds find of the records that a Kafka consumer lacks."""
    committed, all_records = (
        {(each.value or b"").decode(): (each.partition, each.offset) for each in read(TOPIC, address, isolation=level)}
        for level in ("read_committed", "read_uncommitted")
    )
    with Admin(address) as admin:
        is_open = _open_ids(admin)
    lines = [f"open transactions: {is_open}", f"ends: {_ends(all_records)}, committed: {_ends(committed)}"]
    for client in clients:
        for number, told in enumerate(client.told, 1):
            lacking = [value for value in told.values if value not in by_consumer]
            if told.fate == "committed" and lacking:
                places = {value: (committed.get(value), all_records.get(value)) for value in told.values}
                lines.append(f"{number} of {len(client.told)} of {client.transactional_id}: committed, all: {places}")
    return "\n".join(lines[:_EVIDENCE_LINES_MAX])


def _open_ids(admin: Admin) -> list[str]:
    """Return the transactional ids whose transactions have not ended. Producers that gave up leave one."""
    return [each.transactional_id for each in admin.list_transactions() if each.state not in _ENDED]


def _ends(places: Mapping[str, tuple[int, int]]) -> dict[int, int]:
    """Return the last offset of each partition."""
    return {
        partition: max(offset for at, offset in places.values() if at == partition) for partition in range(PARTITIONS)
    }


def _account(plan: Plan, clients: Sequence[Client], pair: Pair, objects: ObjectServer, copy: SparkCopy | None) -> str:
    fates = {
        client.transactional_id: {
            fate: sum(1 for each in client.told if each.fate == fate) for fate in ("committed", "aborted", "unknown")
        }
        for client in clients
    }
    lines = [
        f"{plan.faults} faults, {sum(each.ended_count for each in clients)} transactions ended",
        "none lost, none twice, none in part, by both checkers",
        f"by producer: {fates}",
        f"ends of servers by exit status: {dict(pair.statuses)}",
    ]
    if objects.weather is not None:
        lines.append(f"faults of the store: {dict(objects.weather.counts)}, of {objects.requests.total()} requests")
    if copy is not None:
        lines.append(f"copied by Spark: {copy.finish()} records, each once, in {copy.run_count} runs")
    return "\n".join(lines)


def main() -> int:
    """Run one storm by hand."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lease-ttl-ms", type=int, default=LEASE_TTL_MS)
    parser.add_argument("--cuts", action="store_true", help="cut networks (Linux, root, iproute2) in place of signals")
    parser.add_argument("--weather", action="store_true", help="let the object store be unreliable")
    parser.add_argument("--history", type=Path, help="write the history into this file")
    parser.add_argument("--spark", action="store_true", help="let a job of Spark copy the records (PySpark, Java)")
    arguments = parser.parse_args()
    if arguments.cuts and (problem := why_not()):
        parser.error(problem)
    plan = Plan(
        seed=arguments.seed,
        faults=arguments.faults,
        lease_ttl_ms=arguments.lease_ttl_ms,
        has_cuts=arguments.cuts,
        has_weather=arguments.weather,
        has_spark=arguments.spark,
        history=arguments.history,
    )
    with tempfile.TemporaryDirectory() as directory:
        print(run(Path(directory), plan))
    return 0


if __name__ == "__main__":
    sys.exit(main())
