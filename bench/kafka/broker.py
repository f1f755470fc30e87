"""One Kafka broker of one profile, and its load programs."""

from __future__ import annotations

import base64
import random
import signal
import socket
import subprocess
import time
import uuid
from pathlib import Path
from typing import Final

from bench.kafka.kafka_server import JAVA_FOLDER, KafkaServer
from bench.kafka.settings import JVM_OPTIONS, ONE_NODE, Profile
from bench.kafka.toolchain import Toolchain
from bench.processes import end_in_order_on_sigterm
from bench.programs import output_of
from bench.results import LoadFailed
from bench.server import last_words

HOST: Final = "127.0.0.1"
START_S_MAX: Final = 120
STOP_S_MAX: Final = 60
_PORTS: Final = range(20_000, 30_000)
"""Ports to choose from, below those that systems assign. No other program may get the port while the broker is dead."""
_STARTED: Final = "Kafka Server started"


class Broker(KafkaServer):
    """A combined controller and broker, which may be started several times on the same directory and ports."""

    def __init__(self, toolchain: Toolchain, profile: Profile, directory: Path) -> None:
        """Build the programs; nothing is started. Raises: CannotRun."""
        super().__init__(toolchain)
        self.profile = profile
        self.data_dir = directory / "data"
        self.log = directory / "broker.log"
        self._directory = directory
        self._port, self._controller_port = _free_ports(2)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self._port}"

    @property
    def process_id(self) -> int:
        assert self._process is not None, "the broker was started"
        return self._process.pid

    def start(self) -> int:
        """Start the broker and wait until it reports that it takes work. Returns the time of the start (Unix ms).
        Raises: LoadFailed."""
        started_ms = self.launch()
        until = time.monotonic() + START_S_MAX
        assert self._process is not None, "it was launched"
        while _STARTED not in self.log.read_text(errors="replace"):
            if self._process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise LoadFailed(f"the broker did not start: {last_words(self.log)}")
            time.sleep(0.05)
        return started_ms

    def launch(self) -> int:
        """Start the broker without waiting. Returns the time of the start (Unix ms)."""
        if not self.data_dir.exists():
            self._format()
        end_in_order_on_sigterm()
        started_ms = time.time_ns() // 1_000_000
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    str(self.toolchain.java),
                    *JVM_OPTIONS,
                    f"-Dlog4j2.configurationFile={JAVA_FOLDER / 'broker-log4j2.xml'}",
                    "-cp",
                    f"{self.built / 'lib'}/*",
                    "kafka.Kafka",
                    str(self._settings_file),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                process_group=0,
            )
        return started_ms

    def kill(self) -> None:
        """End the broker like a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Ask the broker to finish; kill it if it does not."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    @property
    def _settings_file(self) -> Path:
        return self._directory / "server.properties"

    def _format(self) -> None:
        """Write the settings, and format the directory as a new cluster of one node."""
        self._directory.mkdir(parents=True, exist_ok=True)
        controller = f"{HOST}:{self._controller_port}"
        settings = {
            **ONE_NODE,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.data_dir),
            **self.profile.broker,
        }
        self._settings_file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        command = [str(self.toolchain.java), f"-Dlog4j2.configurationFile={JAVA_FOLDER / 'load-log4j2.xml'}"]
        command += ["-cp", f"{self.built / 'lib'}/*", "kafka.tools.StorageTool", "format"]
        # Without the equals sign, a cluster id that begins with a dash would be parsed as an option.
        command += [f"--cluster-id={cluster_id}", "--config", str(self._settings_file)]
        output_of([*command, "--feature", "transaction.version=2"], "formatting a directory for Kafka")


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    for port in random.sample(_PORTS, k=100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise LoadFailed(f"no {count} free ports were found in {_PORTS}")
