"""The soak's server does not count the memory of its own reports in them."""

from __future__ import annotations

import gc
import sys

from bench.soak.watched_server import allocated


def test_looking_takes_no_memory() -> None:
    """Each look left a class of ctypes behind: 690 blocks a minute, which the soak called a rise."""
    allocated()
    gc.disable()
    try:
        before = sys.getallocatedblocks()
        for _ in range(100):
            allocated()
        assert sys.getallocatedblocks() - before < 100
    finally:
        gc.enable()


def test_what_is_allocated_is_counted() -> None:
    before = allocated()
    kept = [bytes(1 << 20) for _ in range(8)]
    after = allocated()
    assert after.python_blocks >= before.python_blocks
    assert after.outside_python_mib - before.outside_python_mib >= len(kept) - 1 or not before.outside_python_mib
