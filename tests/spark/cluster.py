"""A cluster of Spark with two hosts, of one core each: a master and two workers in processes of their own.

The second attempt of a task runs on another host than the first, so that there is no speculation in a `local-cluster`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark
import pytest

_SPARK_CLASS: Final = Path(pyspark.__file__).parent / "bin" / "spark-class"
_MASTER: Final = re.compile(r"(spark://\S+:\d+)")
_JOINED: Final = re.compile("Successfully registered with master")
_HOSTS: Final = ("127.0.0.1", "127.0.0.2")
_CONFIG: Final = """
spark.speculation true
spark.speculation.interval 100ms
spark.speculation.quantile 0.5
spark.speculation.multiplier 1.1
spark.executor.memory 512m
spark.ui.enabled false
"""


class Cluster:
    """Runs while it is a context manager."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._daemons: list[subprocess.Popen[str]] = []
        self._listeners: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._directory.mkdir()
        (self._directory / "spark-defaults.conf").write_text(_CONFIG)
        self.environment = {
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(self._directory),
            "SPARK_LOCAL_IP": _HOSTS[0],
        }
        """Environment of a driver, and of the executors that it asks for."""
        try:
            self.master = self._daemon("master.Master", _HOSTS[0], _MASTER)
            for host in _HOSTS:
                more = ("--cores", "1", "--memory", "1g", "--work-dir", str(self._directory / host), self.master)
                self._daemon("worker.Worker", host, _JOINED, *more)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def workers(self) -> list[int]:
        """The sessions of the workers, to which their executors belong."""
        return [daemon.pid for daemon in self._daemons[1:]]

    def _daemon(self, name: str, host: str, sign: re.Pattern[str], *arguments: str) -> str:
        """Start a program of Spark; return what it says as a sign that it is ready."""
        environment = os.environ | self.environment | {"SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m"}
        environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if Path(entry).is_dir())
        places = ("--host", host, "--port", "0", "--webui-port", "0")
        command = [str(_SPARK_CLASS), f"org.apache.spark.deploy.{name}", *places, *arguments]
        daemon = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
        self._daemons.append(daemon)
        assert daemon.stderr is not None
        said = []
        for line in daemon.stderr:
            said.append(line)
            found = sign.search(line)
            if found is not None:
                # A program whose output is not read blocks in the end.
                listener = threading.Thread(target=daemon.stderr.read)
                listener.start()
                self._listeners.append(listener)
                return found[0]
        pytest.fail(f"{name} ended with {daemon.wait()}: {''.join(said)}")

    def _end(self) -> None:
        for daemon in reversed(self._daemons):
            os.killpg(daemon.pid, signal.SIGKILL)
        for listener in self._listeners:
            listener.join()
        for daemon in self._daemons:
            # It waits, and closes the pipe.
            daemon.communicate()
