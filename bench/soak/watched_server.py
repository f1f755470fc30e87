"""Our server with a thread that tells what is allocated in it: `python -m bench.soak.watched_server serve ...`.

The kernel only says which memory is resident, and a server keeps what it freed for a while (`MemoryKeeper`). So what
grows in it and what lies free are told apart from inside, every two seconds, in the file that BENCH_ALLOCATED names.
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
    """What is allocated in a server, and not only kept for later."""

    outside_python_mib: float
    """Memory of C and Rust: RocksDB's write buffers and block cache are in it."""
    python_blocks: int
    """How many pieces of memory Python's objects have."""


class _Numbers(ctypes.Structure):
    """What glibc's `mallinfo2` returns: `hblkhd` and `uordblks` are what counts here."""

    _fields_ = (
        ("others", ctypes.c_size_t * 4),
        ("mapped_bytes", ctypes.c_size_t),
        ("unused", ctypes.c_size_t * 2),
        ("used_bytes", ctypes.c_size_t),
        ("free", ctypes.c_size_t * 2),
    )


_numbers_of = getattr(ctypes.CDLL(None), "mallinfo2", None)
"""None where the C library is not glibc. It is looked up once: each time leaves a class behind until Python looks for
garbage, which was a rise in what is measured here."""
if _numbers_of is not None:
    _numbers_of.restype = _Numbers


def allocated() -> Allocated:
    """What is allocated in this process. Of what C and Rust have it knows nothing where the C library is not glibc."""
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
