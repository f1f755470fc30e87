"""How the process handles its memory: when garbage is looked for, and what is given back to the system."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_YOUNG_OBJECTS_MAX: Final = 20_000
"""New objects after which the collector looks for cycles among them. A transaction makes dozens that live until the
next flush and are no garbage: at Python's 700 the collector took a tenth of the time of a busy server. At this number
it looks for about a millisecond at once."""
_MIDDLE_EVERY: Final = 50
_OLD_EVERY: Final = 100

_M_TRIM_THRESHOLD: Final = -1
_M_TOP_PAD: Final = -2
_M_MMAP_THRESHOLD: Final = -3
_MEBIBYTE: Final = 1024 * 1024


@contextmanager
def loading_for_good() -> Iterator[None]:
    """While state is read that lives as long as the process, and after it.

    Reading makes hundreds of thousands of objects and hardly any garbage. The collector would look through all of them
    again and again, which takes a third of the time of a load, and later holds up the loop for a quarter of a second at
    once. So it rests during the load, and never looks at what is there at its end."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(_YOUNG_OBJECTS_MAX, _MIDDLE_EVERY, _OLD_EVERY)
        gc.enable()


def keep_freed_memory() -> bool:
    """Let the allocator of the C library keep what large messages used, instead of giving it back and asking again:
    each page that comes back new costs a fault, for a message of 1 MiB more than all that is done with it.

    False where the C library is not glibc; then nothing is changed."""
    if not sys.platform.startswith("linux"):
        return False
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:
        return False
    options = {
        # The largest that every glibc takes.
        _M_MMAP_THRESHOLD: 32 * _MEBIBYTE,
        _M_TRIM_THRESHOLD: 256 * _MEBIBYTE,
        _M_TOP_PAD: 16 * _MEBIBYTE,
    }
    refused = [option for option, value in options.items() if set_option(option, value) != 1]
    return not refused
