"""Timer that sends a signal every few milliseconds of one thread's processor time. Linux only.

The standard library has none. `signal.setitimer` counts the whole process: a waiting thread would be sampled for the
work of others. A sampler thread would see the interpreter only where the GIL is released, and never in the middle of
work.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Final

_CLOCK_THREAD_CPUTIME_ID: Final = 3
_SIGEV_THREAD_ID: Final = 4


class _Event(ctypes.Structure):
    """`struct sigevent`, as far as it is used; the rest is padding."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread_id", ctypes.c_int),
        ("padding", ctypes.c_char * 64),
    )


class _Time(ctypes.Structure):
    """`struct timespec`."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Times(ctypes.Structure):
    """`struct itimerspec`."""

    _fields_ = (("interval", _Time), ("first", _Time))


class ThreadTimer:
    """Sends a signal to the thread that makes it, after each interval of its processor time, once `start` was
    called."""

    def __init__(self, signal_number: int) -> None:
        """Raises: OSError if the system has no such timer."""
        self._library = ctypes.CDLL(None, use_errno=True)
        self._timer = ctypes.c_void_p()
        event = _Event(signal=signal_number, notify=_SIGEV_THREAD_ID, thread_id=threading.get_native_id())
        self._check(
            self._library.timer_create(_CLOCK_THREAD_CPUTIME_ID, ctypes.byref(event), ctypes.byref(self._timer))
        )

    def start(self, interval_us: int) -> None:
        """Start the timer; 0 stops it. The system rounds up to its own tick, usually 1 or 4 ms."""
        pause = _Time(0, interval_us * 1_000)
        self._check(self._library.timer_settime(self._timer, 0, ctypes.byref(_Times(pause, pause)), None))

    def _check(self, status: int) -> None:
        if status:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
