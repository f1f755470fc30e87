"""A whole soak: the server, the load processes, the kills, the samples."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import quantiles
from typing import Final

from bench.results import LoadFailed
from bench.server import last_words
from bench.soak.auditor import Auditor
from bench.soak.crew import TRANSACTORS, Crew
from bench.soak.ending import finish
from bench.soak.growth import KILLED_UNTIL, Sample, is_read_due, judge
from bench.soak.ledger import PARTITIONS, Told, differences
from bench.soak.report import Outcome
from bench.soak.sampling import WatchedServer, sampled
from bench.soak.work import BULK, COPIES, ORDERS, outcomes_of
from coordinator_client import Admin

SAMPLES: Final = 360
"""Number of samples: one every five seconds of half an hour."""
SERVER_KILLS: Final = 4
CLIENT_KILLS: Final = 24
SPARK_READS: Final = 6
_KEPT_BYTES: Final = 32 << 20
"""Retention of every partition (bytes). Large records are kept for a minute or two."""
_SETTINGS: Final = ("--set", "retention_check_interval_ms=10000")

_began = time.monotonic()


def tell(line: str) -> None:
    """Print the progress."""
    print(f"soak: {time.monotonic() - _began:6.0f} s  {line}", file=sys.stderr, flush=True)


class Soak:
    """One run, in a directory of its own."""

    def __init__(self, directory: Path, *, seconds: float, has_spark: bool) -> None:
        self._directory = directory
        self._seconds = seconds
        self._spark_reads_left = SPARK_READS if has_spark else 0
        self._server = WatchedServer(directory, _SETTINGS)
        self._told = {number: Told() for number in range(TRANSACTORS)}
        self._read_bytes = dict.fromkeys(self._told, 0)
        self._samples: list[Sample] = []
        self._server_kills = self._client_kills = self._spark_reads = 0
        self._spark: subprocess.Popen[bytes] | None = None

    def run(self, command: str) -> Outcome:
        """Load the server, sample it, and judge. Raises: LoadFailed."""
        self._server.start()
        crew: Crew | None = None
        auditor: Auditor | None = None
        was_interrupted = False
        try:
            with Admin(self._server.endpoint) as admin:
                for topic in (ORDERS, COPIES, BULK):
                    admin.create_topic(topic, PARTITIONS, config={"retention_bytes": str(_KEPT_BYTES)})
            auditor = Auditor(self._server.endpoint)
            crew = Crew(self._server.endpoint, self._directory)
            tell(f"{self._seconds / 60:g} minutes begin; logs: {self._directory}")
            try:
                self._watch(crew, auditor)
                tell("the load ends; the rest is copied and counted")
                finish(self._server.endpoint, crew, auditor)
                self._read_outcomes()
            except KeyboardInterrupt:
                was_interrupted = True
                auditor.stop()
        finally:
            if crew is not None:
                crew.kill()
            if self._spark is not None:
                self._spark.kill()
                self._spark.wait()
            self._server.stop()
        found = [] if was_interrupted else differences(self._told, auditor.seen[ORDERS], auditor.seen[COPIES])
        return Outcome(
            command=command,
            samples=self._samples,
            judgements=judge(self._samples),
            differences=found,
            orders=auditor.counts[ORDERS],
            copies=auditor.counts[COPIES],
            server_kills=self._server_kills,
            client_kills=self._client_kills,
            spark_reads=self._spark_reads,
            was_interrupted=was_interrupted,
        )

    def _watch(self, crew: Crew, auditor: Auditor) -> None:
        """Take the samples, kill at regular times, and check that all processes run otherwise."""
        began = time.monotonic()
        self._read_outcomes()
        for number in range(1, SAMPLES + 1):
            time.sleep(max(0.0, began + number * self._seconds / SAMPLES - time.monotonic()))
            self._server.check()
            crew.check()
            if auditor.failure is not None:
                raise LoadFailed(f"committed records cannot be read: {auditor.failure}") from auditor.failure
            is_after_kill = False
            if number % int(SAMPLES * KILLED_UNTIL / SERVER_KILLS) == 0 and number <= SAMPLES * KILLED_UNTIL:
                self._kill_server()
                is_after_kill = True
            elif number % (SAMPLES // CLIENT_KILLS) == 0:
                self._client_kills += 1
                tell(f"{crew.kill_one()} is killed, and started again")
            self._see_to_spark(number)
            self._samples.append(self._sample(time.monotonic() - began, is_after_kill=is_after_kill))
            if number % (SAMPLES // 12) == 0:
                tell(_words(self._samples[-1]))

    def _kill_server(self) -> None:
        self._server.kill()
        self._server_kills += 1
        began = time.monotonic()
        self._server.start()
        tell(f"the server is killed, and back after {time.monotonic() - began:.1f} s")

    def _see_to_spark(self, number: int) -> None:
        if self._spark is not None and self._spark.poll() is not None:
            if self._spark.returncode:
                raise LoadFailed(f"Spark could not read: {last_words(self._directory / 'spark.log')}")
            self._spark_reads += 1
            self._spark = None
        if is_read_due(number, SAMPLES) and self._spark is None and self._spark_reads_left:
            self._spark_reads_left -= 1
            self._spark = self._read_with_spark()

    def _read_with_spark(self) -> subprocess.Popen[bytes]:
        """Start a batch read of all records. Retention may remove the oldest between its plan and its tasks."""
        command = [sys.executable, "-m", "pyspark_txnlog.job", COPIES, "--endpoint", self._server.endpoint]
        command += ["--output", str(self._directory / "parquet"), "--overwrite", "--no-audit"]
        command += ["--fail-on-data-loss", "false", "--master", "local[1]"]
        with (self._directory / "spark.log").open("wb") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def _read_outcomes(self) -> list[float]:
        """Read the new lines of the transactors. Returns the times of commits (ms)."""
        took_ms: list[float] = []
        for number, told in self._told.items():
            path = outcomes_of(self._directory, number)
            if not path.exists():
                continue
            with path.open("rb") as outcomes:
                outcomes.seek(self._read_bytes[number])
                said = outcomes.read()
            # The last line may still be incomplete.
            whole = said[: said.rfind(b"\n") + 1]
            self._read_bytes[number] += len(whole)
            took_ms += [took for line in whole.decode().splitlines(keepends=True) if (took := told.note(line))]
        return took_ms

    def _sample(self, elapsed_s: float, *, is_after_kill: bool) -> Sample:
        took_ms = self._read_outcomes()
        cuts = quantiles(took_ms, n=100) if len(took_ms) > 1 else [0.0] * 99
        return replace(
            sampled(self._server, elapsed_s),
            p50_ms=cuts[49],
            p99_ms=cuts[98],
            transactions=sum(len(told.committed) for told in self._told.values()),
            is_after_kill=is_after_kill,
        )


def _words(sample: Sample) -> str:
    parts: Sequence[str] = (
        f"{sample.transactions:,} committed",
        f"memory {sample.memory_mib:.0f} MiB",
        f"of it write buffers {sample.buffers_mib:.0f} and block cache {sample.cache_mib:.0f}",
        f"{sample.handles:.0f} handles",
        f"{sample.threads:.0f} threads",
        f"disk {sample.disk_mib:,.0f} MiB",
        f"commits p50 {sample.p50_ms:.1f} ms, p99 {sample.p99_ms:.1f} ms",
    )
    return ", ".join(parts)
