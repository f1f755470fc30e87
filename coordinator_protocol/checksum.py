"""CRC-32C, the checksum of record batches; the only importer of the `crc32c` package."""

from __future__ import annotations

from typing import Final

import crc32c as _crc32c

KEEP_THE_GIL: Final = 0
"""Third argument of `crc32c` for bytes that may be more than 32 KiB, for which the library otherwise releases the GIL.
At about 20 GB/s the largest batch takes 50 us, and a thread that releases the GIL may wait 5 ms to get it back."""

crc32c: Final = _crc32c.crc32c
"""Function that returns the CRC-32C (Castagnoli) of bytes. With the checksum of the bytes before them as a second
argument, it returns that of both. Arguments are never passed by name: that would take twice as long."""
