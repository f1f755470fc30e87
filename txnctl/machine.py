"""Findings of `txnctl doctor` about the machine: one for each thing that has broken a server before."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Final

from coordinator_runtime.clock import Clock

DISTRIBUTION: Final = "txn-coordinator"
NATIVE_TRANSPORT: Final = "txn-native-transport"
SYNCS: Final = 50
SYNC_BYTES: Final = 4096

_SLOW_SYNC_US: Final = 10_000
_VERY_SLOW_SYNC_US: Final = 100_000
_INSTANT_SYNC_US: Final = 20
"""Longest sync that counts as too fast for a disk (us): the directory is in memory, or some layer does not sync."""
_OPEN_FILES_MIN: Final = 4_096
_DISK_FREE_BYTES_MIN: Final = 1 << 30
_MEMORY_BYTES_MIN: Final = 512 << 20
_JAVA_MIN: Final = 17
_PROBE_MS_MAX: Final = 10_000
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
_REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"})
_CLOCK_SKEW_MS_MAX: Final = 2_000


class Severity(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    """A server runs, but not as well or as safely as it could."""
    PROBLEM = "problem"
    """A server does not run, or does not keep its promises."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check."""

    subject: str
    verdict: Severity
    found: str
    advice: str = ""


def look_at_machine(data_dir: Path, clock: Clock) -> Iterator[Finding]:
    """Yield all findings, in the order in which a starting server depends on the things. `data_dir` need not exist
    yet."""
    yield from versions()
    yield clock_synchronisation()
    place = _existing(data_dir)
    if not os.access(place, os.W_OK | os.X_OK):
        advice = "give the user that runs the server write access to it, or choose another"
        yield Finding("data directory", Severity.PROBLEM, f"{place} cannot be written by this user", advice)
    elif data_dir.exists() and not data_dir.is_dir():
        yield Finding("data directory", Severity.PROBLEM, f"{data_dir} is a file", "name a directory")
    else:
        yield file_system(data_dir, place)
        yield from disk(place, clock)
    yield open_files()
    yield memory()
    yield java()


def versions() -> Iterator[Finding]:
    """Check the versions of the interpreter and of the libraries."""
    yield Finding("python", Severity.OK, f"{platform.python_version()} ({platform.python_implementation()})")
    floors = _floors()
    for name in ("grpcio", "protobuf", "rocksdict", "pyspark", "pyarrow"):
        floor = floors.get(name, "")
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            if name in ("pyspark", "pyarrow"):
                yield Finding(name, Severity.OK, "not installed", f"for Spark: install {DISTRIBUTION}[spark]")
            else:
                yield Finding(name, Severity.PROBLEM, "not installed", f"install {DISTRIBUTION} again")
            continue
        if floor and _numbers(found) < _numbers(floor):
            yield Finding(name, Severity.PROBLEM, f"{found}, older than {floor}", f"install {name}>={floor}")
        else:
            yield Finding(name, Severity.OK, found)
    yield _native_transport()


def _native_transport() -> Finding:
    try:
        return Finding(NATIVE_TRANSPORT, Severity.OK, metadata.version(NATIVE_TRANSPORT))
    except metadata.PackageNotFoundError:
        advice = (
            "optional, for less processor time per call: install txn-coordinator[native]; in a checkout `make native`"
        )
        return Finding(NATIVE_TRANSPORT, Severity.OK, "not installed", advice)


def clock_synchronisation() -> Finding:
    """Check that the kernel considers its clock synchronised.

    Transaction timeouts across a restart, and all times that people read, come from the wall clock."""
    state = _kernel_clock_state()
    if state is None:
        return Finding("clock", Severity.OK, "the kernel does not say whether it is synchronised")
    if state == _CLOCK_UNSYNCHRONISED:
        return Finding("clock", Severity.WARNING, "not synchronised", "run an NTP client such as chrony")
    return Finding("clock", Severity.OK, "synchronised")


def file_system(data_dir: Path, place: Path) -> Finding:
    """Check the type of the file system of the data directory, and its free space."""
    kind = _file_system_kind(place)
    free_bytes = shutil.disk_usage(place).free
    found = f"{data_dir} on {kind or 'an unknown file system'}, {free_bytes >> 20:,} MiB free"
    if kind in _IN_MEMORY:
        return Finding(
            "data directory", Severity.WARNING, found, "nothing here survives a power cut: use a disk for real data"
        )
    if kind in _REMOTE:
        return Finding(
            "data directory", Severity.WARNING, found, "locks and syncs of a remote file system are not to be relied on"
        )
    if free_bytes < _DISK_FREE_BYTES_MIN:
        return Finding("data directory", Severity.WARNING, found, "a full disk takes no records: make room")
    return Finding("data directory", Severity.OK, found)


def disk(place: Path, clock: Clock) -> Iterator[Finding]:
    """Check the time that the disk takes for a sync, which every commit waits for, and the clock of the disk."""
    try:
        took_us, skew_ms = _measure_syncs(place, clock)
    except OSError as error:
        yield Finding(
            "disk sync", Severity.PROBLEM, f"failed: {error}", "check the disk: a server would end itself here"
        )
        return
    median_us, longest_us = took_us[len(took_us) // 2], took_us[-1]
    found = f"median {median_us / 1000:.2f} ms, longest {longest_us / 1000:.2f} ms of {len(took_us)}"
    if median_us >= _VERY_SLOW_SYNC_US:
        yield Finding("disk sync", Severity.PROBLEM, found, "commits would time out: use another disk")
    elif median_us >= _SLOW_SYNC_US:
        yield Finding("disk sync", Severity.WARNING, found, "every commit waits for one sync: use a faster disk")
    elif median_us <= _INSTANT_SYNC_US:
        yield Finding("disk sync", Severity.WARNING, found, "too fast for a disk: what it calls durable may not be")
    else:
        yield Finding("disk sync", Severity.OK, found)
    if abs(skew_ms) > _CLOCK_SKEW_MS_MAX:
        yield Finding(
            "clock of the disk", Severity.WARNING, f"{skew_ms} ms away from this machine's", "synchronise both machines"
        )


def open_files() -> Finding:
    """Check the limit of open files. RocksDB keeps every file of its store open, and each connection takes one, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"{_limit(soft)} open files (at most {_limit(hard)})"
    if soft != resource.RLIM_INFINITY and soft < _OPEN_FILES_MIN:
        return Finding(
            "limits", Severity.WARNING, found, f"`ulimit -n {_OPEN_FILES_MIN}` or LimitNOFILE= before it starts"
        )
    return Finding("limits", Severity.OK, found)


def memory() -> Finding:
    """Check the memory available to a server, which needs about 200 MiB and more with the number of ids and
    partitions."""
    free_bytes = _available_memory()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if free_bytes is None:
        return Finding("memory", Severity.OK, f"{cores} processors; the system does not say what is available")
    found = f"{free_bytes >> 20:,} MiB available, {cores} processors"
    if free_bytes < _MEMORY_BYTES_MIN:
        return Finding(
            "memory", Severity.WARNING, found, "make room, or lower write_buffer_bytes and block_cache_bytes"
        )
    return Finding("memory", Severity.OK, found)


def java() -> Finding:
    """Check the Java runtime that Spark would start. Only Spark needs it."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"for Spark: install a Java {_JAVA_MIN} runtime or set JAVA_HOME"
    if program is None:
        return Finding("java", Severity.WARNING, "none", advice)
    try:
        answer = subprocess.run(
            [program, "-version"], capture_output=True, text=True, check=False, timeout=_PROBE_MS_MAX / 1000
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        return Finding("java", Severity.WARNING, f"{program} does not start ({failure})", advice)
    # Java 8 and older report their version as 1.8.
    version = re.search(r'version "(?:1\.)?(\d+)([^"]*)"', answer.stderr + answer.stdout)
    if version is None:
        return Finding("java", Severity.WARNING, f"{program} does not tell its version", advice)
    if int(version[1]) < _JAVA_MIN:
        return Finding("java", Severity.WARNING, f"{program} is Java {version[1]}", advice)
    return Finding("java", Severity.OK, f"{version[1]}{version[2]} ({program})")


def _measure_syncs(place: Path, clock: Clock) -> tuple[list[int], int]:
    """Return the times of several syncs in microseconds, ascending, and the difference of file times from the wall
    clock (ms). Raises OSError."""
    sync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
    took_us = []
    with tempfile.NamedTemporaryFile(dir=place, prefix="txnctl-doctor-") as file:
        block = b"\0" * SYNC_BYTES
        for _ in range(SYNCS):
            # Appended, as a log is: then the new size of the file has to become durable, too.
            os.write(file.fileno(), block)
            began_us = clock.monotonic_us()
            sync(file.fileno())
            took_us.append(clock.monotonic_us() - began_us)
        skew_ms = os.fstat(file.fileno()).st_mtime_ns // 1_000_000 - clock.wall_ms()
    return sorted(took_us), skew_ms


def _existing(path: Path) -> Path:
    """Return the directory, or its nearest parent that exists and that this user may look into."""
    path = path.absolute()
    while not _is_directory(path):
        path = path.parent
    return path


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except PermissionError:  # The path lies below a directory that this user may not enter.
        return False


def _file_system_kind(place: Path) -> str | None:
    """Return the type of the mount that holds the directory; None if the system does not report mounts."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return None
    found: tuple[int, str] | None = None
    for _device, point, kind, *_ in mounts:
        # Spaces in mount points are written as octal escapes.
        mounted = Path(point.encode().decode("unicode_escape"))
        if place.resolve().is_relative_to(mounted) and (found is None or len(mounted.parts) >= found[0]):
            found = (len(mounted.parts), kind)
    return None if found is None else found[1]


def _available_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


_CLOCK_UNSYNCHRONISED: Final = 5
_TIMEX_BYTES: Final = 512
"""Larger than the structure on any system. A structure of zeros only queries the state and sets nothing."""


def _kernel_clock_state() -> int | None:
    """Return the result of adjtimex, where 5 means an unsynchronised clock. None if it cannot be called."""
    try:
        ask = ctypes.CDLL(None).adjtimex
    except (OSError, AttributeError):
        return None
    state = ask(ctypes.create_string_buffer(_TIMEX_BYTES))
    return state if isinstance(state, int) and state >= 0 else None


def _floors() -> dict[str, str]:
    """Return the oldest supported version of each library that this distribution requires."""
    try:
        wanted = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return {}
    found = (re.match(r"([\w.-]+)[^;]*?>=\s*([\w.]+)", requirement) for requirement in wanted)
    return {match[1]: match[2] for match in found if match is not None}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:4])


def _limit(number: int) -> str:
    return "unlimited" if number == resource.RLIM_INFINITY else f"{number:,}"
