"""One round of kills (SIGKILL) of a server and its producers, which both checkers judge."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.harness import forked
from tests.kafka_front.kill_storm import ENVIRONMENT, PROGRESS, Client, Storm, Watcher, check_readers
from tests.kafka_front.storm_history import check_again


@dataclass(frozen=True, slots=True)
class Round:
    """Outcome of a round."""

    kills: Mapping[str, int]
    """Number of kills by kind of process, with the exit status."""
    transactions: Mapping[str, int]
    """Number of transactions by fate."""
    operations: int
    """Number of operations in the history that the second checker read."""
    interrupting: int
    """Number of kills within a transaction of at least one producer."""


def by(kind: str, transactional_id: str) -> Client:
    """Return a producer of librdkafka (kafka), of the SDK (sdk) or over stubs (stub)."""
    return Client(
        transactional_id,
        lambda storm, life: program(
            kind, storm.kafka if kind == "kafka" else storm.server.address, transactional_id, str(life)
        ),
        kind=kind,
    )


def program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.kafka_front.killed_producer", *arguments]


def run_round(directory: Path, seed: int, clients: Sequence[Client], kills: int, *, progress: int = PROGRESS) -> Round:
    """Go through a storm. Raises AssertionError for what one of the checkers finds."""
    with Storm(directory / "data", seed, clients) as storm:
        with Watcher(program("watch", storm.kafka)) as watcher:
            storm.rage(kills, progress=progress)
            storm.calm()
        groups = [client.told[0].group for client in clients if client.kind == "kafka"]
        shown = forked.run(
            program("read", storm.kafka, *groups), stdout=subprocess.PIPE, text=True, check=True, env=ENVIRONMENT
        )
        found = json.loads(shown.stdout)
        check_readers(storm, found["values"], found["offsets"], ended_min=kills * progress)
        operations = check_again(storm, found, directory / "history.jsonl", watcher.polls)
    fates = Counter(told.fate for client in clients for told in client.told)
    kills = {f"{kind}, status {status}": count for (kind, status), count in storm.kills.items()}
    return Round(kills, fates, operations, storm.interrupting)
