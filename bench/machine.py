"""Where and with what a measurement ran. Without that its numbers say nothing."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

_LIBRARIES: Final = ("grpcio", "protobuf", "rocksdict", "uvloop")


def describe_machine() -> Iterator[str]:
    """Lines of the head: machine and versions."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    yield f"machine: {_processor()}, {cores} cores, {memory_mib:,} MiB, {platform.system()} {platform.release()}"
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in _LIBRARIES)
    yield f"versions: Python {platform.python_version()}, {versions}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())
