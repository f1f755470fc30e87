"""Processes of Python programs without the time of imports: forked from one that has imported the product.

`Popen` and `run` are those of `subprocess`, with the same parameters and results. They fork for `python -m MODULE`,
`python -c SOURCE` and `python FILE`. Every other command, and what a fork cannot give (flags of the interpreter,
variables that it or a library reads at its start), they start as `subprocess` does. Tests of the start itself, or of an
installed build, use `subprocess`.
"""

from __future__ import annotations

import atexit
import inspect
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.harness.fork_server import MESSAGE_BYTES_MAX, Program

_ROOT: Final = Path(__file__).resolve().parent.parent.parent
_READ_AT_START: Final = ("GLIBC_", "GRPC_", "LANG", "LC_", "LD_", "MALLOC_", "PYTHON", "TZ")
"""Prefixes of variables that have had their effect before a fork."""
_EXCEPT: Final = ("GRPC_VERBOSITY", "PYTHONPATH")
"""`txnctl` sets the first one for itself, also when it runs in this process: a fork may write more to stderr than it
would. The other one has its effect in the fork."""
_KINDS: Final = ("-m", "-c")
_HOW: Final = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]
_PLAIN: Final[Mapping[str, Any]] = {
    "preexec_fn": None,
    "pass_fds": (),
    "shell": False,
    "gid": None,
    "gids": None,
    "uid": None,
    "umask": -1,
    "process_group": -1,
}
"""Parameters of `_execute_child` that a fork cannot have, with their defaults."""


class ForkServer:
    """The process that forks, of this one. It ends when this one does."""

    def __init__(self) -> None:
        self._environment = {name: value for name, value in os.environ.items() if name not in _EXCEPT}
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_BYTES_MAX)
        number = theirs.fileno()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.harness.fork_server", str(number)],
                cwd=_ROOT,
                env=self._environment,
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def can_give(self, environment: Mapping[str, str]) -> bool:
        """True if a fork differs in nothing from a new process with this environment."""
        return _read_at_start(environment) == _read_at_start(self._environment)

    def fork(self, program: Program, streams: Sequence[int]) -> int:
        """Start the program on these descriptors of stdin, stdout and stderr. Returns its process id."""
        process_id, _ = self._ask({"program": program}, streams)
        return process_id

    def reap(self, process_id: int) -> tuple[int, int]:
        """Return the result of `os.waitpid(process_id, os.WNOHANG)` in the server."""
        ended, status = self._ask({"reap": process_id})
        return ended, status

    def close(self) -> None:
        """End it, and all processes that are left."""
        self._control.close()
        self._process.wait()

    def _ask(self, request: object, descriptors: Sequence[int] = ()) -> tuple[int, int]:
        # A socket for each reply: threads do not mix theirs up, nor does a test that was interrupted leave one behind.
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                socket.send_fds(self._control, [json.dumps(request).encode()], [theirs.fileno(), *descriptors])
            reply = ours.recv(MESSAGE_BYTES_MAX)
        assert reply, f"the fork server ended with {self._process.wait()}"
        number, status = json.loads(reply)
        return number, status


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in environment.items() if name.startswith(_READ_AT_START) and name not in _EXCEPT
    }


class _Servers:
    """At most one fork server of this process, started once a test needs it."""

    def __init__(self) -> None:
        self._server: ForkServer | None = None

    def get(self) -> ForkServer:
        if self._server is None or not self._server.is_running:
            self._server = ForkServer()
            atexit.register(self._server.close)
        return self._server


_SERVERS: Final = _Servers()


class Popen(subprocess.Popen[Any]):
    """`subprocess.Popen` of a program, by fork where that makes no difference."""

    _server: ForkServer | None = None

    @property
    def is_forked(self) -> bool:
        return self._server is not None

    def _execute_child(self, *positional: Any) -> None:
        how = _HOW.bind(self, *positional).arguments
        environment = {os.fsdecode(name): os.fsdecode(value) for name, value in (how["env"] or os.environ).items()}
        server = _SERVERS.get() if _is_program(how) else None
        if server is None or not server.can_give(environment):
            super()._execute_child(*positional)  # type: ignore[misc]
            return
        words = [os.fspath(word) for word in how["args"][1:]]
        kind = words.pop(0) if words[0] in _KINDS else ""
        program = Program(
            kind=kind,
            words=words,
            environment=environment,
            directory=str(Path(how["cwd"] or ".").absolute()),
            has_own_session=how["start_new_session"],
        )
        pipes = [how[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
        streams = [number if given == -1 else given for number, given in enumerate([pipes[0], pipes[3], pipes[5]])]
        try:
            self.pid = server.fork(program, streams)
            self._server = server
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _internal_poll(self, _deadstate: int | None = None, *given: Any, **kept: Any) -> int | None:
        if self._server is None:
            status: int | None = super()._internal_poll(_deadstate, *given, **kept)  # type: ignore[misc]
            return status
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):  # type: ignore[attr-defined]
            try:
                self._note_end(_deadstate)
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode

    def _note_end(self, unknown: int | None) -> None:
        """Note the status if it has ended; this one if the server is gone, which has its children with it."""
        try:
            ended, status = self._try_wait(os.WNOHANG)
        except OSError:
            if unknown is None:
                raise
            self.returncode = unknown
        else:
            if ended:
                self._handle_exitstatus(status)  # type: ignore[attr-defined]

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if self._server is None:
            waited: tuple[int, int] = super()._try_wait(flags)  # type: ignore[misc]
            return waited
        if not flags & os.WNOHANG:
            _wait_for(self.pid)
        return self._server.reap(self.pid)


def run(
    words: Sequence[str | Path],
    *,
    input: Any = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run` of a program, by fork where that makes no difference."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(words, **options) as process:
        try:
            stdout, stderr = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)
    if check:
        done.check_returncode()
    return done


def _is_program(how: Mapping[str, Any]) -> bool:
    """True for a Python program with parameters that a fork can have, and without flags of the interpreter."""
    if not sys.platform.startswith("linux") or how["executable"] is not None:
        return False
    if any(how[name] != plain for name, plain in _PLAIN.items()):
        return False
    python, *words = how["args"]
    if python != sys.executable or not words:
        return False
    return words[0] in _KINDS or not os.fspath(words[0]).startswith("-")


def _wait_for(process_id: int) -> None:
    """Wait for the end of a process. It is a child of the fork server, so `waitpid` cannot do that."""
    descriptor = os.pidfd_open(process_id)
    try:
        ended = select.poll()
        ended.register(descriptor, select.POLLIN)
        ended.poll()
    finally:
        os.close(descriptor)
