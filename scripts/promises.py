"""From which version on the wire and the stored form keep what they promised (docs/compatibility.md)."""

from __future__ import annotations


def keeps_promises(version: str) -> bool:
    """Whether the version is 1.0.0 or a later one. Earlier ones may break what they promise, and say why."""
    return int(version.partition(".")[0]) >= 1
