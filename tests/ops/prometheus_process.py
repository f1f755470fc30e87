"""A real Prometheus for tests, with the rules of ops/ and a server to scrape, in a hurry: it scrapes and evaluates
every second, and every span of the rules that is written in minutes takes seconds. The expressions are those of the
files.

What fires is not asked for again and again: Prometheus tells it to its Alertmanager, which here is the test."""

from __future__ import annotations

import json
import queue
import re
import socket
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.request import urlopen

from tests.harness.patience import DEADLINE_SECONDS
from tests.harness.server_process import ServerProcess
from tests.harness.tools import require_tool
from tests.ops.files import ALERT_RULES, RECORDING_RULES

SEEN: Final = "TestSawTheServer"
"""An alert of the test's own, which fires once the server was scraped."""

_MINUTES: Final = re.compile(r"(?<=[\[ ])(\d+)m\b")
_CONFIG: Final = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [recording.rules.yml, alert.rules.yml, test.rules.yml]
alerting:
  alertmanagers:
    - static_configs: [{{targets: ["127.0.0.1:{alertmanager}"]}}]
scrape_configs:
  - job_name: txn-coordinator
    static_configs: [{{targets: ["{target}"]}}]
"""
_TEST_RULES: Final = f"""\
groups:
  - name: test
    rules: [{{alert: {SEEN}, expr: 'up{{job="txn-coordinator"}} == 1'}}]
"""

Labels = dict[str, str]


def in_a_hurry(rules: str) -> str:
    """The rules with seconds for minutes."""
    return _MINUTES.sub(r"\1s", rules)


class PrometheusProcess:
    """Runs from `with` to its end. `target` is HOST:PORT of a server's metrics."""

    def __init__(self, directory: Path, target: str) -> None:
        self._program = require_tool("prometheus")
        self._directory = directory
        self._fired: queue.SimpleQueue[Labels] = queue.SimpleQueue()
        self._alertmanager = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._port = free_port()
        directory.mkdir()
        (directory / "prometheus.yml").write_text(
            _CONFIG.format(alertmanager=self._alertmanager.server_port, target=target)
        )
        for rules in (ALERT_RULES, RECORDING_RULES):
            (directory / rules.name).write_text(in_a_hurry(rules.read_text()))
        (directory / "test.rules.yml").write_text(_TEST_RULES)

    def __enter__(self) -> Self:
        threading.Thread(target=self._alertmanager.serve_forever, daemon=True).start()
        command = [
            self._program,
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]
        with (self._directory / "stderr").open("wb") as stderr:
            self._process = subprocess.Popen(command, cwd=self._directory, stderr=stderr, stdout=stderr)
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._alertmanager.shutdown()
        self._alertmanager.server_close()
        if error is not None:
            error.add_note(f"Prometheus wrote:\n{(self._directory / 'stderr').read_text()}")

    def wait_for(self, alert: str) -> Labels:
        """Return the labels of the alert once it was reported. Fails after a long while."""
        end = time.monotonic() + DEADLINE_SECONDS
        met = set()
        while True:
            try:
                labels = self._fired.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"{alert} did not fire within {DEADLINE_SECONDS} s; what did: {met}") from None
            if labels["alertname"] == alert:
                return labels
            met.add(labels["alertname"])

    def firing(self) -> list[dict[str, Any]]:
        """Return the alerts that its HTTP API shows as firing, but for the test's own alert."""
        with urlopen(f"http://127.0.0.1:{self._port}/api/v1/alerts", timeout=DEADLINE_SECONDS) as response:
            alerts: list[dict[str, Any]] = json.load(response)["data"]["alerts"]
        return [each for each in alerts if each["state"] == "firing" and each["labels"]["alertname"] != SEEN]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fired = self._fired

        class Alertmanager(BaseHTTPRequestHandler):
            """Takes what fires; Prometheus tells it again from time to time, and when it ends."""

            def do_POST(self) -> None:
                for each in json.loads(self.rfile.read(int(self.headers["Content-Length"]))):
                    fired.put(each["labels"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                """Nowhere."""

        return Alertmanager


def metrics_address(server: ServerProcess) -> str:
    """Return the address where the server, which logs as JSON, answers scrapes."""
    events = [json.loads(line) for line in server.output.splitlines() if line.startswith("{")]
    listens: list[str] = [event["listen"] for event in events if event["event"] == "serving_metrics"]
    return listens[-1]


def free_port() -> int:
    """A port that was free a moment ago: Prometheus does not report its own choice."""
    with socket.socket() as plug:
        plug.bind(("127.0.0.1", 0))
        port: int = plug.getsockname()[1]
        return port
