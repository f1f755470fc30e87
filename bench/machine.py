"""Machine and versions of a measurement. Without them its numbers mean nothing."""

from __future__ import annotations

import os
import platform
import subprocess
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Final

_LIBRARIES: Final = (
    "grpcio",
    "txn-native-transport",
    "msgspec",
    "protobuf",
    "rocksdict",
    "uvloop",
    "pyarrow",
    "pyspark",
)

_FOR_SPEED: Final = frozenset({"--enable-optimizations", "--with-lto", "--with-lto=full", "--with-lto=thin"})


def machine(directory: Path | None = None) -> dict[str, str]:
    """Return names and values for the head of a report. `directory` is that of the stores: its file system affects
    every figure."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    found = {
        "processor": f"{_processor()}, {cores} cores",
        "memory": f"{memory_mib:,} MiB",
        "system": f"{platform.system()} {platform.release()}",
    }
    if directory is not None:
        found["file system"] = _file_system(directory)
    return found


def versions() -> dict[str, str]:
    """Return the versions of the product and its libraries."""
    found = {"txn-coordinator": commit_of(Path(__file__).parent), "Python": _python()}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _python() -> str:
    """Return the version of Python with its build and its options for speed.

    The build has date and compiler, because builds of one version differ in speed. Distributions have other ways to
    optimise Python, which do not show here."""
    options = (sysconfig.get_config_var("CONFIG_ARGS") or "").replace("'", "").split()
    for_speed = [option for option in options if option in _FOR_SPEED]
    built = f"built {platform.python_build()[1]} by {platform.python_compiler()}"
    return ", ".join([platform.python_version(), built, *for_speed])


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def _file_system(directory: Path) -> str:
    """Return type and options of the nearest mount. In memory (tmpfs) a flush costs nothing, which the report must
    show."""
    try:
        mounts = [line.split()[1:4] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    path = str(directory.resolve())
    holding = [mount for mount in mounts if path == mount[0] or path.startswith(mount[0].rstrip("/") + "/")]
    if not holding:
        return "unknown"
    _, kind, options = max(holding, key=lambda mount: len(mount[0]))
    return f"{kind} ({options})"


def commit_of(tree: Path) -> str:
    """Return the version of a working tree."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        said = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.stdout.strip()
