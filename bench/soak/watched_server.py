"""Our server with a thread that reports its allocated memory: `python -m bench.soak.watched_server serve ...`.

The kernel only reports resident memory, and a server keeps freed memory for a while (`MemoryKeeper`). So this thread
distinguishes allocated from free memory from inside, every two seconds, in the file that BENCH_ALLOCATED names.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Final, NamedTuple

from txnctl.cli import main

FILE_VARIABLE: Final = "BENCH_ALLOCATED"
_INTERVAL_S: Final = 2.0
_MIB: Final = 1 << 20


class Allocated(NamedTuple):
    """Memory that is allocated in a server, and not only kept for later."""

    outside_python_mib: float
    """Memory of C and Rust, including RocksDB's write buffers and block cache."""
    python_blocks: int
    """Number of memory blocks of Python's objects."""


class _Numbers(ctypes.Structure):
    """Result of glibc's `mallinfo2`, of which `hblkhd` and `uordblks` are used here."""

    _fields_ = (
        ("others", ctypes.c_size_t * 4),
        ("mapped_bytes", ctypes.c_size_t),
        ("unused", ctypes.c_size_t * 2),
        ("used_bytes", ctypes.c_size_t),
        ("free", ctypes.c_size_t * 2),
    )


_numbers_of = getattr(ctypes.CDLL(None), "mallinfo2", None)
"""The function, or None if the C library is not glibc.

It is looked up once. Each look-up leaves a class behind until garbage is collected, which showed as a rise in these
measurements."""
if _numbers_of is not None:
    _numbers_of.restype = _Numbers


def allocated() -> Allocated:
    """Return the memory that is allocated in this process. Without glibc, the memory of C and Rust is reported as 0."""
    outside_bytes = 0
    if _numbers_of is not None:
        numbers = _numbers_of()
        outside_bytes = numbers.used_bytes + numbers.mapped_bytes
    return Allocated(outside_python_mib=outside_bytes / _MIB, python_blocks=sys.getallocatedblocks())


def _tell(file: Path) -> None:
    unfinished = file.with_suffix(".unfinished")
    while True:
        unfinished.write_text(json.dumps(allocated()._asdict()))
        unfinished.rename(file)
        time.sleep(_INTERVAL_S)


if __name__ == "__main__":
    threading.Thread(target=_tell, args=(Path(os.environ[FILE_VARIABLE]),), name="watching", daemon=True).start()
    main()
