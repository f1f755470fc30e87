"""Program of the worker process: takes functions and arguments from a socket and returns their results.

It ends when the other end of the socket is closed, which the operating system does for a killed process. So it must not
hold that end itself: it is started with its own end and no other file (`worker.py`). A separate thread waits for that,
so that a long computation ends as well.

It imports little: the functions that it runs import what they need.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from queue import SimpleQueue
from threading import Thread  # noqa: TID251  a process of its own, without a loop
from typing import Any, BinaryIO, Final

from coordinator_runtime.background import BackgroundPriority

IN_BACKGROUND: Final = "in-background"
"""Argument of a process that computes at a low priority."""

_SIZE: Final = struct.Struct(">Q")


def send(stream: BinaryIO, message: bytes) -> None:
    """Write one message. Raises OSError if the other end is closed."""
    stream.write(_SIZE.pack(len(message)))
    stream.write(message)
    stream.flush()


def receive(stream: BinaryIO) -> bytes | None:
    """Return the next message; None if the other end was closed before or within it. Raises OSError."""
    size = stream.read(_SIZE.size)
    if len(size) < _SIZE.size:
        return None
    (length,) = _SIZE.unpack(size)
    message = stream.read(length)
    return message if len(message) == length else None


def request(function: Callable[[Any], Any], argument: Any) -> bytes:  # noqa: ANN401  any picklable value
    """Return the message that requests a result. Raises the error of pickle for a value that cannot be pickled."""
    return pickle.dumps((function, argument), pickle.HIGHEST_PROTOCOL)


def answer(message: bytes) -> bytes:
    """Compute the result of a request; return the message with the result, or with the exception that was raised."""
    try:
        function, argument = pickle.loads(message)
        return pickle.dumps((None, function(argument)), pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001  it is the answer, and is raised in the requesting process
        error.add_note(f"In the worker process:\n{traceback.format_exc()}")
        return _failure(error)


def result(message: bytes) -> Any:  # noqa: ANN401  any picklable value
    """Return the result in an answer. Raises the exception in it."""
    error, found = pickle.loads(message)
    if error is not None:
        raise error
    return found


def _failure(error: Exception) -> bytes:
    try:
        return pickle.dumps((error, None), pickle.HIGHEST_PROTOCOL)
    except Exception:  # noqa: BLE001  an exception may hold anything, and pickle raises anything for it
        return pickle.dumps((RuntimeError(repr(error)), None), pickle.HIGHEST_PROTOCOL)


def _receive_all(stream: BinaryIO, requests: SimpleQueue[bytes]) -> None:
    """Take requests until the other end is closed, then end this process, even during a computation."""
    try:
        while (message := receive(stream)) is not None:
            requests.put(message)
    finally:
        os._exit(0)


def main(descriptor: int, *, in_background: bool) -> None:
    """Serve the socket with this file descriptor, until the process ends. `in_background`: compute at a low
    priority."""
    priority = BackgroundPriority().applied if in_background else nullcontext
    with socket.socket(fileno=descriptor) as line, line.makefile("rb") as incoming, line.makefile("wb") as outgoing:
        requests: SimpleQueue[bytes] = SimpleQueue()
        Thread(target=_receive_all, args=(incoming, requests), daemon=True).start()
        while True:
            asked = requests.get()
            with priority():
                message = answer(asked)
            try:
                send(outgoing, message)
            except OSError:
                # The parent ended while this was computed.
                os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), in_background=IN_BACKGROUND in sys.argv)
