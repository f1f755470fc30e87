"""The server of the demo: a real `txnctl serve`, started, killed and started again on the same directory and port."""

from __future__ import annotations

import os
import random
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from examples.demo_parts.failures import ServerFailed
from examples.demo_parts.leashed import leashed

START_SECONDS_MAX: Final = 300
"""A second or two, unless the machine has much else to do. Like every limit here it is there for what hangs: nobody is
served by a demo that gives up because it is slow."""

STOP_SECONDS_MAX: Final = 60
PORTS: Final = range(20_000, 30_000)
"""Below the ports that systems hand out: while the server is dead, nobody else may be given its port."""


class Server:
    """One server, over several lives."""

    def __init__(self, directory: Path, settings: Mapping[str, object] | None = None) -> None:
        """`settings`: those that are not as they are by default, by name."""
        self.log = directory / "server.log"
        self.starts = 0
        self.data_dir = directory / "data"
        self._settings = [f"{name}={value}" for name, value in (settings or {}).items()]
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = f"127.0.0.1:{_free_port()}"

    def start(self) -> float:
        """Start it and return, once it takes work, how many seconds that took. Raises: ServerFailed."""
        began = time.monotonic()
        command = leashed("txnctl", "serve")
        command += ["--data-dir", str(self.data_dir), "--listen", self.endpoint]
        for setting in self._settings:
            command += ["--set", setting]
        # What the user has set for his own servers is not meant for this one.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TXN_")}
        with self.log.open("ab") as log:
            # Its own process group: Ctrl-C in the terminal is for the demo, which then ends the server itself. It also
            # ends where the demo is killed, because its standard input does.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd=self.log.parent,
                process_group=0,
            )
        self.starts += 1
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_SECONDS_MAX)
        if not ready or not self._process.stdout.readline():
            raise ServerFailed(f"the server did not start: {self._last_words()}")
        return time.monotonic() - began

    def check(self) -> None:
        """Raises: ServerFailed where the server ended although nobody ended it."""
        if self._process is None or self._process.poll() is not None:
            raise ServerFailed(f"the server ended on its own: {self._last_words()}")

    def kill(self) -> None:
        """End it with SIGKILL, in the middle of whatever it does."""
        self.check()
        assert self._process is not None
        self._process.kill()
        status = self._process.wait()
        self._forget()
        if status != -signal.SIGKILL:
            raise ServerFailed(f"the server ended with status {status} before it was killed: see {self.log}")

    def stop(self) -> int | None:
        """Ask it to finish and end; return its exit status, or None where it was not running."""
        if self._process is None:
            return None
        self._process.terminate()
        try:
            return self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            self._forget()

    def _last_words(self) -> str:
        said = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return f"{said[-1]} (more in {self.log})" if said else f"it said nothing in {self.log}"

    def _forget(self) -> None:
        for pipe in () if self._process is None else (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None


def _free_port() -> int:
    for port in random.sample(PORTS, k=100):
        with socket.socket() as probe:
            # As the server itself does: a port that a finished connection still lingers on is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServerFailed(f"no free port found in {PORTS} on {os.uname().nodename}")
