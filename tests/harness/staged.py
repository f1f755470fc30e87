"""Staged rows, looked at one by one."""

from __future__ import annotations

from coordinator_runtime.rows import STEP_BYTES, StagedRows


def counted_bytes(staged: StagedRows) -> int:
    """The bytes of all rows, for comparison with the count made while staging."""
    kept = [(key, value) for _family, key, value in staged.added]
    kept += [(key, value or b"") for (_family, key), value in staged.newest.items()]
    kept += [(key, b"") for _family, key in staged.encoded_later]
    kept += [(key, bytes(told) + bytes(STEP_BYTES)) for _history, (_type, key, _at, _whom, told) in staged.steps]
    return sum(len(key) + len(value) for key, value in kept)
