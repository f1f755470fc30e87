"""A server that goes by ACLs without authentication: every caller is User:ANONYMOUS, and a superuser or not as the
environment says. `ServerProcess(directory, module="tests.harness.guarded_server", environment={SUPER_USERS: ...})`."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Final

from coordinator_core.config import CoreConfig
from coordinator_server import engines
from coordinator_server.settings.config import Config
from tests.harness.special_server import serve

SUPER_USERS: Final = "TEST_SUPER_USERS"


class GuardedConfig(Config):
    """The configuration of a server whose callers have no names."""

    def core_config(self) -> CoreConfig:
        return replace(super().core_config(), enforces_acls=True, super_users=tuple(os.environ[SUPER_USERS].split(";")))


if __name__ == "__main__":
    serve(engines.open_rocks_store, GuardedConfig)
