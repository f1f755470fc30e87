"""Server of the demo: a real `txnctl serve`, started, killed and started again on the same directory and port."""

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
"""Longest wait for the server to start (s). It takes a second or two on an idle machine. Like every limit here it is
for a server that hangs: a demo that fails because it is slow helps no user."""

STOP_SECONDS_MAX: Final = 60
PORTS: Final = range(20_000, 30_000)
"""Range below the ports that systems assign, so that no other program gets the port while the server is dead."""


class Server:
    """One server, which may be started several times."""

    def __init__(self, directory: Path, settings: Mapping[str, object] | None = None) -> None:
        """`settings` are those that differ from the defaults, by name."""
        self.log = directory / "server.log"
        self.starts = 0
        self.data_dir = directory / "data"
        self._settings = [f"{name}={value}" for name, value in (settings or {}).items()]
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = f"127.0.0.1:{_free_port()}"

    def start(self) -> float:
        """Start the server. Returns the seconds until it takes work. Raises: ServerFailed."""
        began = time.monotonic()
        command = leashed("txnctl", "serve")
        command += ["--data-dir", str(self.data_dir), "--listen", self.endpoint]
        for setting in self._settings:
            command += ["--set", setting]
        # The user's settings for other servers are not meant for this one.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TXN_")}
        with self.log.open("ab") as log:
            # The server has its own process group: Ctrl-C in the terminal is for the demo, which then ends the server
            # itself. It also ends if the demo is killed, because its standard input ends.
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
        """Raise ServerFailed if the server ended unexpectedly."""
        if self._process is None or self._process.poll() is not None:
            raise ServerFailed(f"the server ended on its own: {self._last_words()}")

    def kill(self) -> None:
        """End the server with SIGKILL at any point of its work."""
        self.check()
        assert self._process is not None
        self._process.kill()
        status = self._process.wait()
        self._forget()
        if status != -signal.SIGKILL:
            raise ServerFailed(f"the server ended with status {status} before it was killed: see {self.log}")

    def stop(self) -> int | None:
        """Ask the server to finish and end; return its exit status, or None if it was not running."""
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
            # Set as the server does: a port with only a lingering closed connection is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServerFailed(f"no free port found in {PORTS} on {os.uname().nodename}")
