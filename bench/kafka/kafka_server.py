"""A server that speaks Kafka's protocol, ours or a broker, under load by Kafka's own clients."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.kafka.toolchain import Toolchain
from bench.programs import begin, load_command, output_of, run_of_output
from bench.results import Run
from bench.server import OwnServer

JAVA_FOLDER: Final = Path(__file__).parent / "java"


class KafkaServer(ABC):
    """The load programs, the same for every server."""

    def __init__(self, toolchain: Toolchain) -> None:
        """Build the Java programs. Raises: CannotRun."""
        self.toolchain = toolchain
        self.built = toolchain.load_programs()

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """Address for Kafka's clients."""

    @property
    @abstractmethod
    def process_id(self) -> int: ...

    def create_topic(self, topic: str) -> None:
        """Create a topic of three partitions."""
        self._run("topic", {"topic": topic})

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records."""
        self._run("delete-topic", {"topic": topic})

    def load(self, program: str, **options: object) -> Run:
        """Run a Java load program and return its figures. Raises: LoadFailed."""
        return run_of_output(self._run(program, options))

    def begin_load(self, program: str, **options: object) -> subprocess.Popen[str]:
        """Start a Java load program that waits for a line on its standard input. Raises: LoadFailed."""
        return begin(self._command(program, options))

    def load_in_python(self, program: str, settings: Mapping[str, object], python: Path | None = None) -> Run:
        """Run a load program of `bench/load`, in this Python or another. Raises: LoadFailed."""
        known = {"bootstrap": self.bootstrap, "server_process_id": self.process_id}
        command, environment = load_command(program, {**known, **settings}, python)
        return run_of_output(output_of(command, f"the load program {program}", environment))

    def load_by_librdkafka(self, program: str, **settings: object) -> Run:
        """Run a load program of `bench/load` that uses librdkafka. Raises: CannotRun, LoadFailed."""
        return self.load_in_python(program, settings, self.toolchain.librdkafka())

    def _run(self, program: str, options: Mapping[str, object]) -> str:
        return output_of(self._command(program, options), f"the Java load program {program}")

    def _command(self, program: str, options: Mapping[str, object]) -> list[str]:
        server = {"bootstrap": self.bootstrap, "server": self.process_id}
        return [
            str(self.toolchain.java),
            "-Xmx2g",
            f"-Dlog4j2.configurationFile={JAVA_FOLDER / 'load-log4j2.xml'}",
            "-cp",
            f"{self.built / 'lib'}/*:{self.built / 'classes'}",
            "bench.Main",
            program,
            *(f"--{name.replace('_', '-')}={_text(value)}" for name, value in (server | dict(options)).items()),
        ]


class Front(KafkaServer):
    """Our server, as Kafka's clients see it. Its owner starts and ends it."""

    def __init__(self, toolchain: Toolchain, server: OwnServer) -> None:
        """Raises: CannotRun, and LoadFailed if the server does not listen for such clients."""
        super().__init__(toolchain)
        self._server = server
        self._bootstrap = server.kafka_address()

    @property
    def bootstrap(self) -> str:
        return self._bootstrap

    @property
    def process_id(self) -> int:
        return self._server.process_id


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
