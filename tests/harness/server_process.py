"""A real server process for tests: started, killed, restarted, asked to end; always on loopback and in a directory of
the test. Waiting is for a condition, never for a time, and the watchdog ends it if the server hangs.

    with ServerProcess(tmp_path / "data") as server:
        channel = grpc.insecure_channel(server.address)
        server.kill()
        server.start()      # same directory, same port
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.harness import forked
from tests.harness.combinations import wanted_environment
from tests.harness.engines import store_arguments, store_environment

# Tests of processes know it by this module, too.
from tests.harness.patience import DEADLINE_SECONDS as DEADLINE_SECONDS
from tests.harness.transports import VARIABLE, wanted_transport

ROOT: Final = Path(__file__).resolve().parent.parent.parent
READY: Final = re.compile(r"gRPC on (?P<host>\S+):(?P<port>\d+),")


class ServerFailed(AssertionError):
    """The server did not do what the test asked for; the message holds what it wrote."""


class ServerProcess:
    """`txnctl serve` on a directory. Make it, `start` it, and `start` it again after `kill` or `terminate`: it comes
    back on the same port, so that clients find it again. As a context manager it starts at once and is gone at the
    end."""

    def __init__(
        self,
        data_dir: Path,
        *arguments: str,
        module: str = "txnctl",
        environment: Mapping[str, str] | None = None,
        handles_max: int | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        """`arguments` are further arguments of `serve`. `module` is what `python -m` runs, given the same arguments.
        `handles_max` is how many files it may open, if that is to be fewer than usual. `prefix` is a command that
        becomes the server, such as `ip netns exec NAME`."""
        self.installed: Path | None = None
        """The Python of an environment in which another build is installed, to run that from the next start on; None
        runs this tree."""
        self.data_dir = data_dir
        self.arguments: Sequence[str] = arguments
        self.host = "127.0.0.1"
        self.port = 0
        """0 until the first start; from then on the port it was given."""
        self._module = module
        self._environment = dict(environment or {})
        limit = f'ulimit -n {handles_max}; exec "$@"'
        self._prefix = [*prefix, *([] if handles_max is None else ["bash", "-c", limit, "bash"])]
        self._process: forked.Popen | None = None
        self._stderr_path = data_dir.with_name(f"{data_dir.name}.{id(self)}.stderr")
        self._stdout = b""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"the server wrote:\n{self.output}")
        self.kill()

    @property
    def address(self) -> str:
        """HOST:PORT for a channel."""
        return f"{self.host}:{self.port}"

    @property
    def command(self) -> list[str]:
        """The subcommand with what a test always gives it."""
        engine = [] if "--store" in self.arguments else store_arguments(self.data_dir)
        return ["serve", "--data-dir", str(self.data_dir), "--listen", self.address, *engine]

    @property
    def _program(self) -> list[str]:
        """txnctl of the installed build, whose modules may have other names, or what `python -m` runs of this tree."""
        if self.installed is not None:
            return [str(self.installed.with_name("txnctl"))]
        return [sys.executable, "-m", self._module]

    @property
    def process_id(self) -> int:
        assert self._process is not None, "the server was never started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def output(self) -> str:
        """Output of all runs so far on stderr, and of the last one on stdout until it was ready."""
        stderr = self._stderr_path.read_text(errors="replace") if self._stderr_path.exists() else ""
        return stderr + self._stdout.decode(errors="replace")

    def start(self) -> None:
        """Start it and return once it takes work. Raises ServerFailed if it ends instead."""
        self.launch()
        ready = self.read_until(READY)
        self.port = int(ready["port"])

    def read_until(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Return once it has written this to stdout. Raises ServerFailed if it ends instead."""
        assert self._process is not None, "the server was never started"
        assert self._process.stdout is not None
        with self._gone_if_given_up():
            while (found := pattern.search(self._stdout.decode(errors="replace"))) is None:
                read = os.read(self._process.stdout.fileno(), 65_536)
                if not read:
                    raise ServerFailed(f"ended with {self.wait()} instead of serving:\n{self.output}")
                self._stdout += read
        return found

    def launch(self) -> None:
        """Start it and do not wait: for servers that will not serve."""
        assert not self.is_running, "the server runs already"
        self._close_pipe()
        self._stdout = b""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TXN_")}
        environment.pop("PYTHONPATH", None)
        if self.installed is None:
            environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "proto")])
        environment |= {
            **wanted_environment(),
            VARIABLE: wanted_transport(),
            **store_environment(),
            **self._environment,
        }
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        with self._stderr_path.open("ab") as stderr:
            self._process = forked.Popen(
                [
                    *self._prefix,
                    *self._program,
                    *self.command,
                    *self.arguments,
                ],
                stdout=subprocess.PIPE,
                stderr=stderr,
                stdin=subprocess.DEVNULL,
                env=environment,
                cwd=self.data_dir.parent,
            )

    def wait(self) -> int:
        """Wait for its end; returns the exit status, negative for a signal."""
        assert self._process is not None, "the server was never started"
        with self._gone_if_given_up():
            status = self._process.wait()
        self._close_pipe()
        return status

    def kill(self) -> None:
        """End it as a crash does (SIGKILL). Does nothing if it has ended."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._close_pipe()

    def kill_and_outlive(self) -> None:
        """End it with SIGKILL; return once no process holds what it wrote to: those that it started have it too."""
        assert self._process is not None, "the server was never started"
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        while os.read(self._process.stdout.fileno(), 65_536):
            pass
        self._close_pipe()

    def terminate(self) -> int:
        """Ask it to end (SIGTERM), and wait; returns the exit status."""
        self.send_signal(signal.SIGTERM)
        return self.wait()

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "the server was never started"
        self._process.send_signal(number)

    @contextmanager
    def _gone_if_given_up(self) -> Iterator[None]:
        """The watchdog may end the test while it waits for the server: then the server ends too, and has its say."""
        try:
            yield
        except BaseException as error:
            self.kill()
            if not isinstance(error, ServerFailed):
                error.add_note(f"the server wrote:\n{self.output}")
            raise

    def _close_pipe(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
