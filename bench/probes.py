"""Speed of the machine in the main parts of a small durable request: flushing, and switching between threads.

Without these, figures of one machine say little about another. A disk that takes ten times as long to flush, or a
virtual machine that takes long to wake a processor, changes every latency and most ratios.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_FLUSHES: Final = 300
_FLUSHED_BYTES: Final = 4_096
_CHANGES: Final = 3_000
_STEPS: Final = 300_000

_flush: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)
"""System call that the store flushes with, if the system has it."""


def probes(directory: Path) -> dict[str, str]:
    """Return names and values for the head, measured now in about a second. `directory` is that of the stores."""
    flushes = sorted(_flush_us(directory))
    p50, p99 = (flushes[int(len(flushes) * part)] for part in (0.5, 0.99))
    return {
        "append and flush of 4 KiB": f"{p50:,.0f} us, p99 {p99:,.0f} us",
        "to another thread and back": f"{_median_of_three(_change_us):,.0f} us",
        "a turn of an empty Python loop": f"{_median_of_three(_step_ns):,.0f} ns",
    }


def _flush_us(directory: Path) -> list[float]:
    """Return the time of each flush (us)."""
    directory.mkdir(parents=True, exist_ok=True)
    taken: list[float] = []
    with tempfile.NamedTemporaryFile(dir=directory, prefix="flush-") as file:
        for _ in range(_FLUSHES):
            began = time.perf_counter()
            os.write(file.fileno(), bytes(_FLUSHED_BYTES))
            _flush(file.fileno())
            taken.append((time.perf_counter() - began) * 1e6)
    return taken


def _change_us() -> float:
    """Return the time to wake a waiting thread, and to be woken by it (us)."""
    there, back = threading.Lock(), threading.Lock()
    there.acquire()
    back.acquire()

    def answer() -> None:
        for _ in range(_CHANGES):
            there.acquire()
            back.release()

    thread = threading.Thread(target=answer)
    thread.start()
    began = time.perf_counter()
    for _ in range(_CHANGES):
        there.release()
        back.acquire()
    taken = time.perf_counter() - began
    thread.join()
    return taken / _CHANGES * 1e6


def _step_ns() -> float:
    began = time.perf_counter()
    step = 0
    while step < _STEPS:
        step += 1
    return (time.perf_counter() - began) / _STEPS * 1e9


def _median_of_three(measure: Callable[[], float]) -> float:
    """Return the median of three measurements: a single one may coincide with a busy moment."""
    return statistics.median(measure() for _ in range(3))
