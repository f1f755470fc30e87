"""Requests of administrators about backups, and the port to the code that makes them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct

from coordinator_protocol.acls import CLUSTER_NAME, Permission, ResourceType
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import Authorizer, CallContext, require


class BackupState(StrEnum):
    """Progress of a backup."""

    COPYING = "copying"
    COMPLETE = "complete"
    FAILED = "failed"
    """The backup was begun and did not succeed. Its files are removed."""
    UNREADABLE = "unreadable"
    """The backup exists, but its manifest is damaged."""


class BackupStanding(Struct, frozen=True):
    """Known facts about one backup."""

    name: str
    state: BackupState
    created_ms: int = 0
    version: int = 0
    """Version of the store in the backup; 0 if not known yet."""
    store_id: str = ""
    incarnation: int = 0
    size_bytes: int = 0
    done_bytes: int = 0
    reason: str = ""
    """Reason of a failure, or of an unreadable manifest."""


class BackupMaker(Protocol):
    """Makes backups of the store of this core."""

    @property
    def directory(self) -> str:
        """Directory of the backups."""

    def create(self, request_id: bytes, *, is_independent: bool) -> Pending[BackupStanding]:
        """Begin a backup. The reply comes once its version of the store is fixed. A repeated `request_id` gets the
        first answer again.

        Refused THROTTLING_QUOTA_EXCEEDED while another one is being made; UNKNOWN_SERVER_ERROR.
        """

    def standings(self) -> Pending[Sequence[BackupStanding]]:
        """Return the finished backups, oldest first, and the one that is being made or failed last. Refused
        UNKNOWN_SERVER_ERROR."""


NO_DIRECTORY: Final = "this server has no backup directory: set backup_directory, and start it again"
"""Advice of a server that makes no backups."""


class BackupControl:
    """Use cases of backups. Refuses callers without the permission."""

    def __init__(self, maker: BackupMaker | None, advice: str, authorizer: Authorizer) -> None:
        """`advice`: the refusal of a server without a maker."""
        self._maker = maker
        self._advice = advice
        self._authorizer = authorizer

    def create(self, request_id: bytes, context: CallContext, *, is_independent: bool) -> Pending[BackupStanding]:
        """Begin a backup, as `BackupMaker.create`. Raises Refused."""
        require(self._authorizer, context, Permission.BACKUP, ResourceType.CLUSTER, CLUSTER_NAME)
        return self._chosen().create(request_id, is_independent=is_independent)

    def list_backups(self, context: CallContext) -> tuple[str, Pending[Sequence[BackupStanding]]]:
        """Return the directory and the backups. Raises Refused."""
        require(self._authorizer, context, Permission.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        maker = self._chosen()
        return maker.directory, maker.standings()

    def _chosen(self) -> BackupMaker:
        if self._maker is None:
            raise Refused(ErrorCode.INVALID_CONFIG, self._advice)
        return self._maker
