"""First version from which the wire and the stored form keep their promises (docs/compatibility.md)."""

from __future__ import annotations


def keeps_promises(version: str) -> bool:
    """True for version 1.0.0 and later ones. Earlier versions may break promises, and say why."""
    return int(version.partition(".")[0]) >= 1
