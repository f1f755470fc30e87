"""Spark job of the streaming demo, with executors that are killed one by one or all together."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from examples.demo_parts.failures import StreamFailed
from examples.demo_parts.leashed import leashed

MASTER: Final = "local-cluster[2,1,1024]"
"""Two executors in processes of their own, as on a cluster."""
MICRO_BATCHES: Final = 20
"""Smallest number of micro-batches: more than the kills wait for."""


class StreamJob:
    """Job that copies a topic to another one. It may be started several times with one checkpoint."""

    def __init__(self, directory: Path, endpoint: str, source: str, target: str, rows: int) -> None:
        """`rows` is the number of rows that the source will have."""
        self.log = directory / "spark.log"
        self.lives = 0
        self.micro_batches = 0
        """Number of reported micro-batches, over all starts."""
        command = leashed("pyspark_txnlog.job", source, "--endpoint", endpoint, "--master", MASTER)
        command += ["--format", "topic", "--output", target, "--checkpoint", str(directory / "checkpoint")]
        command += ["--starting-offsets", "earliest", "--max-records-per-trigger", str(rows // MICRO_BATCHES)]
        self._command = command
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Continue from the checkpoint, until the job is killed."""
        self._process = self._launch("--follow", "--trigger-interval", "0 seconds")

    def finish(self) -> None:
        """Run from the checkpoint to the present end of the source. Raises: StreamFailed."""
        process = self._process = self._launch("--available-now")
        while self._next_line():
            pass
        if process.wait():
            raise StreamFailed(f"the job ended with status {process.returncode}: see {self.log}")
        self._process = None

    def await_micro_batches(self, count: int) -> None:
        """Return after `count` more micro-batches. Raises: StreamFailed if the job ends before."""
        wanted = self.micro_batches + count
        while self.micro_batches < wanted:
            if not self._next_line():
                raise StreamFailed(f"the job ended on its own: see {self.log}")

    def kill_an_executor(self) -> None:
        """End one of the executors with SIGKILL. Spark starts another. Raises: StreamFailed if there is none."""
        assert self._process is not None, "it runs"
        running = _executors_of(self._process.pid)
        if not running:
            raise StreamFailed(f"the job has no executor that could be killed: see {self.log}")
        os.kill(random.choice(running), signal.SIGKILL)

    def kill(self) -> None:
        """End the driver, its executors and their workers with SIGKILL. Idempotent."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
            self._process = None

    def _launch(self, *more: str) -> subprocess.Popen[str]:
        self.lives += 1
        # The user's settings for another Spark are not meant for this one.
        unset = {"SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"}
        environment = {name: value for name, value in os.environ.items() if name not in unset}
        environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if Path(entry).is_dir())
        return subprocess.Popen(
            [*self._command, *more],
            env=environment,
            # Ends the job, with its executors, if the demo itself is killed.
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=self._directory,
            # Ctrl-C in the terminal is for the demo, and a kill ends the whole job.
            start_new_session=True,
        )

    def _next_line(self) -> str:
        """Return the next line of the job's output; empty after its end."""
        assert self._process is not None, "it runs"
        assert self._process.stderr is not None, "its output was asked for"
        line = self._process.stderr.readline()
        self.micro_batches += "micro-batch" in line
        with self.log.open("a") as log:
            log.write(line)
        return line


def _executors_of(driver: int) -> Sequence[int]:
    """Return the process ids of the executors of a job: processes of its session with the command line of an
    executor."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = os.getsid(int(entry.name)) == driver
            command = (entry / "cmdline").read_bytes()
        except (ProcessLookupError, FileNotFoundError):
            continue
        if is_ours and b"CoarseGrainedExecutorBackend" in command:
            found.append(int(entry.name))
    return found
