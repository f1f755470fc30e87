"""Processor time and memory of processes, from the kernel. Linux only; elsewhere the columns stay empty.

Also ends and pauses a program together with its child processes."""

from __future__ import annotations

import os
import signal
import threading
from collections import defaultdict
from pathlib import Path
from typing import Final

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_PROC: Final = Path("/proc")


def end_in_order_on_sigterm() -> None:
    """Make SIGTERM, which `timeout` sends, end this program like Ctrl-C does: together with the servers that it
    started."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def pause(process_id: int) -> None:
    """Stop a process that leads a group, together with its children, until `resume`."""
    os.killpg(process_id, signal.SIGSTOP)


def resume(process_id: int) -> None:
    """Let a paused process go on, together with its children."""
    os.killpg(process_id, signal.SIGCONT)


def processor_seconds(process_id: int) -> float | None:
    """Return the user and system time of all threads, including ended ones."""
    fields = _stat(process_id)
    return None if fields is None else sum(map(int, fields[11:13])) / _TICKS_PER_SECOND


def processor_seconds_of_family(process_id: int) -> float | None:
    """Return the processor time of a process, its descendants, and the children that they have waited for."""
    if _stat(process_id) is None:
        return None
    family, ticks = [process_id], 0
    children = _children()
    while family:
        member = family.pop()
        family += children[member]
        fields = _stat(member)
        if fields is not None:
            ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS_PER_SECOND


def processor_seconds_of_machine() -> float | None:
    """Return the busy time of all processors together since the machine started."""
    try:
        counters = (_PROC / "stat").read_text().splitlines()[0].split()[1:]
    except OSError:
        return None
    user, nice, system, _idle, _waiting, interrupts, soft_interrupts = map(int, counters[:7])
    return (user + nice + system + interrupts + soft_interrupts) / _TICKS_PER_SECOND


def processor_seconds_of_threads(process_id: int) -> dict[int, tuple[str, float]]:
    """Return the name and the processor time of every living thread, by its kernel id."""
    found = {}
    for task in (_PROC / str(process_id) / "task").iterdir():
        name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
        fields = rest.split()
        found[int(task.name)] = (name, sum(map(int, fields[11:13])) / _TICKS_PER_SECOND)
    return found


def resident_mib(process_id: int) -> float | None:
    """Return the memory that the process occupies now."""
    try:
        lines = (_PROC / str(process_id) / "status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1_024 for line in lines if line.startswith("VmRSS:")), None)


def peak_mib(process_id: int) -> float:
    """Return the largest memory that a process has had."""
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1_024 for line in lines if line.startswith("VmHWM:")), 0.0)


def _stat(process_id: int) -> list[str] | None:
    """Return the fields after the process's name, which may contain spaces and brackets."""
    try:
        return (_PROC / str(process_id) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _children() -> defaultdict[int, list[int]]:
    found: defaultdict[int, list[int]] = defaultdict(list)
    for folder in _PROC.iterdir():
        if folder.name.isdigit() and (fields := _stat(int(folder.name))) is not None:
            found[int(fields[1])].append(int(folder.name))
    return found
