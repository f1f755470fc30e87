"""CRC-32C, the checksum of record batches; the only importer of the `crc32c` package."""

from __future__ import annotations

from typing import Final

import crc32c as _crc32c

KEEP_THE_GIL: Final = 0
"""Third argument of `crc32c` for bytes that may be more than 32 KiB, for which the library else lets go of the GIL. At
about 20 GB/s the largest batch takes 50 us, and a thread that lets go of the GIL may wait 5 ms to get it back."""

crc32c: Final = _crc32c.crc32c
"""Returns the CRC-32C (Castagnoli) of bytes; with a second argument, the checksum of the bytes that lie before them,
that of both. No argument is named in a call: that would take twice as long."""
