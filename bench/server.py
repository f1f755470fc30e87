"""Our server in a measurement: a real `txnctl serve` with its default settings on a directory of its own."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.processes import end_in_order_on_sigterm
from bench.results import LoadFailed

HERE: Final = Path(__file__).resolve().parent.parent
"""Working tree of these measurements."""
START_S_MAX: Final = 600
STOP_S_MAX: Final = 60
_READY: Final = re.compile(r"gRPC on (\S+),")
_METRICS: Final = re.compile(r"^(?P<name>\w+)(?:\{[^}]*\})? (?P<value>\S+)$", re.MULTILINE)


class OwnServer:
    """One server, which may be started several times on the same directory and port."""

    def __init__(
        self,
        directory: Path,
        *,
        module: str | None = None,
        arguments: Sequence[str] = (),
        processors: str | None = None,
        tree: Path = HERE,
    ) -> None:
        """Prepare a server; nothing is started.

        `module` is run by `python -m` in place of txnctl. `processors` are the allowed processors, in the notation of
        taskset. `tree` is the working tree of the server; a tree other than ours has a `.venv` of its own."""
        self.data_dir = directory.resolve() / "data"
        self.log = directory / "server.log"
        self.endpoint = "127.0.0.1:0"
        """Address of the server; it has a real port from the first start on."""
        self.tree = tree
        self.python = Path(sys.executable) if tree == HERE else tree / ".venv" / "bin" / "python"
        self.txnctl: Sequence[str] = [str(self.python.with_name("txnctl"))]
        """Command of that tree, whose modules may have names that differ from ours."""
        self._serving = self.txnctl if module is None else [str(self.python), "-m", module]
        self._arguments = arguments
        self._prefix = [] if processors is None else ["taskset", "--cpu-list", processors]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process_id(self) -> int:
        assert self._process is not None, "the server was started"
        return self._process.pid

    def kafka_address(self) -> str:
        """Return the address for Kafka's clients (setting `kafka_listen`). Raises: LoadFailed."""
        for line in reversed(self.log.read_text().splitlines()):
            said = json.loads(line)
            if said["event"] == "serving_kafka":
                return str(said["listen"])
        raise LoadFailed(f"the server does not listen for Kafka's clients: {last_words(self.log)}")

    def check(self) -> None:
        """Raise LoadFailed if the server ended unexpectedly."""
        if self._process is None or self._process.poll() is not None:
            raise LoadFailed(f"our server ended by itself: {last_words(self.log)}")

    def start(self) -> int:
        """Start the server and wait until it takes work. Returns the time of the start (Unix ms). Raises:
        LoadFailed."""
        started_ms = self.launch()
        self.wait_until_ready()
        return started_ms

    def wait_until_ready(self) -> None:
        """Return once a launched server takes work. Raises: LoadFailed."""
        process = self._process
        assert process is not None, "it was launched"
        assert process.stdout is not None, "its output was asked for"
        ready, _, _ = select.select([process.stdout], [], [], START_S_MAX)
        said = process.stdout.readline().decode(errors="replace") if ready else ""
        found = _READY.search(said)
        if found is None:
            self.kill()
            raise LoadFailed(f"our server did not start: {said or last_words(self.log)}")
        self.endpoint = found.group(1)

    def launch(self) -> int:
        """Start the server without waiting. Returns the time of the start (Unix ms)."""
        end_in_order_on_sigterm()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        command = [*self._prefix, *self._serving, "serve"]
        command += ["--data-dir", str(self.data_dir), "--listen", self.endpoint, *self._arguments]
        # The user's settings for other servers are not meant for this one.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TXN_")}
        started_ms = time.time_ns() // 1_000_000
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd=self.tree,
                process_group=0,
            )
        return started_ms

    def kill(self) -> None:
        """End the server like a crash does."""
        if self._process is not None:
            self._process.kill()
            self._forget()

    def stop(self) -> None:
        """Ask the server to finish; kill it if it does not."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
            self._forget()

    def _forget(self) -> None:
        process, self._process = self._process, None
        assert process is not None, "only a process is forgotten"
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def metrics_address(log: Path) -> str:
    """Return the address of a server's metrics, from its log. After several starts, the last address counts. Raises:
    LoadFailed."""
    for line in reversed(log.read_text().splitlines()):
        said = json.loads(line)
        if said["event"] == "serving_metrics":
            return f"http://{said['listen']}{said['path']}"
    raise LoadFailed(f"the server does not say where its metrics are: {last_words(log)}")


def scraped(metrics: str) -> dict[str, float]:
    """Return the metrics of a server by name, with the values of one name added up."""
    with urllib.request.urlopen(metrics) as answer:
        text = answer.read().decode()
    values: dict[str, float] = {}
    for found in _METRICS.finditer(text):
        values[found["name"]] = values.get(found["name"], 0.0) + float(found["value"])
    return values


def last_words(log: Path) -> str:
    """Return the last lines of a program's log."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return f"{' / '.join(lines[-3:])} (more in {log})" if lines else f"it said nothing in {log}"
