"""A Python process that has imported the product and forks itself for programs of tests (`forked.py` has the callers).

    python -m tests.harness.fork_server FD

It runs in the folder of the project, without PYTHONPATH. FD is a socket of messages. A message asks to fork or to reap,
and brings the socket for its reply. A child runs its program and then ends like any interpreter: only what was imported
is older than the process. End of file on the socket ends the server, and the death of the server all its children.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import io
import json
import os
import runpy
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypedDict

MESSAGE_BYTES_MAX: Final = 1 << 20
STREAMS: Final = 3
"""File descriptors of stdin, stdout and stderr, which follow the socket for the reply."""
_PRELOADED: Final = (
    "txnctl.cli",
    "coordinator_client",
    "coordinator_client.transport.grpc_library",
    "coordinator_server.process",
    "coordinator_server.grpc_front.grpc_transport",
    "coordinator_server.kafka_front.listeners",
)
_INSTALLED: Final = tuple(sys.path[1:])
"""Path of modules that every program of this interpreter has."""
_STDERR: Final = 2
_DIES_WITH_PARENT: Final = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


_FIRST_ON_PATH: Final[dict[str, Callable[[str], str]]] = {
    "-m": lambda _: str(Path.cwd()),
    "-c": lambda _: "",
    "": lambda file: str(Path(file).resolve().parent),
}


class Program(TypedDict):
    """One program, as a test describes it."""

    kind: str
    """-m, -c, or empty for a file."""
    words: list[str]
    """Name of the module, source, or path of the file; then its arguments."""
    environment: dict[str, str]
    directory: str
    has_own_session: bool


def main() -> Program | None:
    """Serve until the socket ends. Returns a program in each child, and None in the server."""
    given = set(os.environ)
    sys.path.append(str(Path("proto").absolute()))
    for name in _PRELOADED:
        importlib.import_module(name)
    from txnctl.cli import command_tree

    command_tree()
    set_by_imports = {name: value for name, value in os.environ.items() if name not in given}
    gc.collect()
    gc.freeze()
    # Ctrl-C in a terminal is for the test run, which then closes the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as control:
        while True:
            content, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES_MAX, 1 + STREAMS)
            if not content:
                return None
            with socket.socket(fileno=descriptors.pop(0)) as reply:
                program = _answer(json.loads(content), reply, descriptors)
            if program is not None:
                break
    program["environment"] = set_by_imports | program["environment"]
    return program


def _answer(request: dict[str, Any], reply: socket.socket, streams: list[int]) -> Program | None:
    """Do what is asked. Returns the program in a new child."""
    if "reap" in request:
        answer = os.waitpid(request["reap"], os.WNOHANG)
    else:
        assert len(list(Path("/proc/self/task").iterdir())) == 1, (
            "an import has started a thread, which a fork would lose"
        )
        server = os.getpid()
        answer = os.fork(), 0
        if answer[0] == 0:
            _die_with(server)
            for number, descriptor in enumerate(streams):
                os.dup2(descriptor, number)
        for descriptor in streams:
            os.close(descriptor)
        if answer[0] == 0:
            program: Program = request["program"]
            return program
    reply.send(json.dumps(answer).encode())
    return None


def _die_with(server: int) -> None:
    ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != server:
        os.kill(os.getpid(), signal.SIGKILL)


def become(program: Program) -> None:
    """Make of this process what `exec` would have made of it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if program["has_own_session"]:
        os.setsid()
    os.chdir(program["directory"])
    os.environ.clear()
    os.environ.update(program["environment"])
    asked = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    first = _FIRST_ON_PATH[program["kind"]](program["words"][0])
    sys.path[:] = [first, *asked, *(entry for entry in _INSTALLED if entry not in asked)]
    sys.argv[:] = program["words"]
    for number, (name, mode) in enumerate([("stdin", "rb"), ("stdout", "wb"), ("stderr", "wb")]):
        stream = _stream(number, mode, getattr(sys, name))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _stream(number: int, mode: str, old: io.TextIOWrapper) -> io.TextIOWrapper:
    """A stream as the interpreter makes it at its start; the old one was for what the server has there."""
    is_direct = old.write_through
    return io.TextIOWrapper(
        open(number, mode, 0 if is_direct else -1, closefd=False),
        old.encoding,
        old.errors,
        line_buffering=not is_direct and mode == "wb" and (number == _STDERR or os.isatty(number)),
        write_through=is_direct,
    )


def run(program: Program) -> None:
    """Run it as the interpreter does, on top of this process."""
    become(program)
    what = program["words"][0]
    if program["kind"] == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    elif program["kind"] == "-c":
        sys.argv[0] = "-c"
        module = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(what, "<string>", "exec"), vars(module))  # noqa: S102  the test's own program
    else:
        runpy.run_path(what, run_name="__main__")


if __name__ == "__main__":
    forked = main()
    if forked is not None:
        run(forked)
