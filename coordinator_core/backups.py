"""What administrators ask of backups, and what must be there to make them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from coordinator_protocol.acls import CLUSTER_NAME, Permission, ResourceType
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import Authorizer, CallContext, require


class BackupState(StrEnum):
    """How far a backup has come."""

    COPYING = "copying"
    COMPLETE = "complete"
    FAILED = "failed"
    """It was begun, and nothing is left of it."""
    UNREADABLE = "unreadable"
    """It is there, and its manifest is damaged."""


class BackupStanding(Struct, frozen=True):
    """One backup, as far as it is known."""

    name: str
    state: BackupState
    created_ms: int = 0
    version: int = 0
    """0: not known yet."""
    store_id: str = ""
    incarnation: int = 0
    size_bytes: int = 0
    done_bytes: int = 0
    reason: str = ""
    """What made it fail, or unreadable."""


class BackupMaker(Protocol):
    """Makes backups of the store of this core."""

    @property
    def directory(self) -> str:
        """The directory that they lie in."""

    def create(self, request_id: bytes, *, is_independent: bool) -> Pending[BackupStanding]:
        """Begin one. The reply comes when its version is taken. A repeated `request_id` gets the answer of the first.

        Refused THROTTLING_QUOTA_EXCEEDED while another one is being made; UNKNOWN_SERVER_ERROR."""

    def standings(self) -> Pending[Sequence[BackupStanding]]:
        """The finished ones, the oldest first, and the one that is being made or failed last. Refused
        UNKNOWN_SERVER_ERROR."""


class BackupControl:
    """Use cases. Refuses whoever may not."""

    def __init__(self, maker: BackupMaker | None, authorizer: Authorizer) -> None:
        self._maker = maker
        self._authorizer = authorizer

    def create(self, request_id: bytes, context: CallContext, *, is_independent: bool) -> Pending[BackupStanding]:
        """Begin a backup, as `BackupMaker.create`. Raises Refused."""
        require(self._authorizer, context, Permission.BACKUP, ResourceType.CLUSTER, CLUSTER_NAME)
        return self._chosen().create(request_id, is_independent=is_independent)

    def list_backups(self, context: CallContext) -> tuple[str, Pending[Sequence[BackupStanding]]]:
        """The directory, and what is there. Raises Refused."""
        require(self._authorizer, context, Permission.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        maker = self._chosen()
        return maker.directory, maker.standings()

    def _chosen(self) -> BackupMaker:
        if self._maker is None:
            raise Refused(
                ErrorCode.INVALID_CONFIG,
                "this server has no backup directory: set backup_directory, and start it again",
            )
        return self._maker
