"""The RPCs of AdminService about backups: messages to values, the use case, its answer to a message."""

from __future__ import annotations

from coordinator_api.v1 import admin_pb2
from coordinator_core.backups import BackupControl, BackupStanding
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext


class BackupServicer:
    """One method per RPC."""

    def __init__(self, backups: BackupControl) -> None:
        self._backups = backups

    def CreateBackup(
        self, request: admin_pb2.CreateBackupRequest, context: CallContext
    ) -> Pending[admin_pb2.CreateBackupResponse]:
        begun = self._backups.create(request.header.request_id, context, is_independent=request.independent)
        return begun.map(lambda standing: admin_pb2.CreateBackupResponse(backup=_message(standing)))

    def ListBackups(
        self, request: admin_pb2.ListBackupsRequest, context: CallContext
    ) -> Pending[admin_pb2.ListBackupsResponse]:
        directory, standings = self._backups.list_backups(context)
        return standings.map(
            lambda found: admin_pb2.ListBackupsResponse(directory=directory, backups=map(_message, found))
        )


def _message(standing: BackupStanding) -> admin_pb2.BackupDescription:
    return admin_pb2.BackupDescription(
        name=standing.name,
        state=standing.state.value,
        created_ms=standing.created_ms,
        version=standing.version,
        store_id=standing.store_id,
        incarnation=standing.incarnation,
        size_bytes=standing.size_bytes,
        done_bytes=standing.done_bytes,
        reason=standing.reason,
    )
