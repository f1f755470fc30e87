"""Settings of the C library's allocator: keep the memory that large messages used, and later give it back."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_TOP_PAD: Final = -2
_M_MMAP_THRESHOLD: Final = -3
_MEBIBYTE: Final = 1024 * 1024
_KEPT_BYTES: Final = 256 * _MEBIBYTE


def keep_freed_memory(bytes_max: int = _KEPT_BYTES) -> bool:
    """Let the allocator of the C library keep the memory that large messages used, up to `bytes_max` at a time.

    Otherwise it gives the memory back and asks for it again. Each new page costs a fault: for a message of 1 MiB more
    time than all other work on it.

    Return False if the C library is not glibc; then nothing is changed."""
    if not sys.platform.startswith("linux"):
        return False
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:
        return False
    options = {
        # The greatest value that every glibc accepts.
        _M_MMAP_THRESHOLD: 32 * _MEBIBYTE,
        _M_TRIM_THRESHOLD: bytes_max,
        _M_TOP_PAD: bytes_max // 16,
    }
    refused = [option for option, value in options.items() if set_option(option, value) != 1]
    return not refused


def give_back_freed_memory() -> bool:
    """Give kept and free memory back to the system, in all arenas, down to single pages in between.

    The free end of an arena of any thread but the first is not given back, and stays as large as it ever was. Takes 20
    to 30 ms for a heap of 300 MiB in small pieces; threads that allocate wait meanwhile.

    Return False if the C library is not glibc; then nothing is done."""
    if not sys.platform.startswith("linux"):
        return False
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        return False
    trim(0)
    return True
