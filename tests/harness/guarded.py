"""A server that goes by rules of access."""

from __future__ import annotations

from dataclasses import replace

from coordinator_core.config import CoreConfig
from tests.harness.inside import WorldOptions

SUPER_USER = "User:root"


class Guarded(WorldOptions):
    """Options of a server with authentication, and one superuser."""

    def core_config(self) -> CoreConfig:
        return replace(super().core_config(), enforces_acls=True, super_users=(SUPER_USER,))
