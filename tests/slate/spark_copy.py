"""A job of Spark that copies the topic of a storm to another one, exactly once, through source and sink."""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Final

from coordinator_client import read
from coordinator_client.clock import SystemClock
from tests.kafka_front.kill_storm import TOPIC
from tests.spark.copying import FOLLOWING, job
from tests.spark.test_job import run
from tests.spark.test_streaming_process import Running

COPY: Final = "copied"
_LOOK_MS: Final = 50


class SparkCopy:
    """The job, which runs again and again until `finish`."""

    def __init__(self, address: str, directory: Path) -> None:
        """`address`: of both servers."""
        self._address = address
        self._command = job(address, TOPIC, COPY, directory)
        self.run_count = 0
        """Number of runs so far. A task that fails ends a run of Spark on one machine."""
        self._is_over = False
        self._running: Running | None = None
        self._keeper = Thread(target=self._keep, name="keeper of the copy", daemon=True)

    def start(self) -> None:
        self._keeper.start()

    def finish(self) -> int:
        """End the job, copy the rest, and return the number of records in the copy. Raises AssertionError unless it is
        what the topic has."""
        self.kill()
        done = run(*self._command, "--available-now")
        assert done.returncode == 0, done.stderr
        expected, found = (Counter(record.value for record in read(topic, self._address)) for topic in (TOPIC, COPY))
        lost, doubled = [*(expected - found)], [*(found - expected)]
        assert found == expected, f"the copy lacks {lost[:5]}, and has too much {doubled[:5]}"
        return found.total()

    def kill(self) -> None:
        """End the job as a crash does."""
        self._is_over = True
        while self._keeper.is_alive():
            running = self._running
            if running is not None and running.process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(running.process.pid, signal.SIGKILL)
            SystemClock().pause(_LOOK_MS)

    def _keep(self) -> None:
        while not self._is_over:
            self.run_count += 1
            self._running = Running([*self._command, *FOLLOWING])
            self._running.process.communicate()
