"""Backups of a store that serves, on request or on a schedule. They are made on a thread, one at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import structlog

from coordinator_core.backups import BackupStanding, BackupState
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.backups import BackupRefused, Manifest, StoredBackup, backups_in, prune
from coordinator_runtime.backups.creation import backup_name
from coordinator_runtime.backups.files import CopyProgress
from coordinator_runtime.backups.order import BackupOrder, MakeBackup
from coordinator_runtime.clock import Clock
from coordinator_runtime.pending import Pending
from coordinator_runtime.store import StoreFailed, StoreRefused, StoreUnreadable
from coordinator_server.metrics.instruments import MS, Readings, by_label, counts, single

RETRY_MS: Final = 60_000
"""Delay of a scheduled backup after a failed one, or while another is being made. At most the interval applies."""

ResultT = TypeVar("ResultT")

_log = structlog.get_logger("backups")

_EXPECTED: Final = (BackupRefused, StoreUnreadable, StoreRefused, StoreFailed)


class _Stopped(Exception):
    """The server stops, and the backup under way ends with it."""


@dataclass(frozen=True, slots=True)
class BackupSettings:
    """Settings of backups: directory, interval and number."""

    directory: Path
    interval_ms: int
    """Time between scheduled backups; 0 if backups are made on request only."""
    kept: int


@dataclass(slots=True, eq=False)
class _Work:
    """A backup that this process makes or made."""

    created_ms: int
    request_id: bytes
    is_independent: bool
    is_scheduled: bool
    progress: CopyProgress
    taken: Pending[BackupStanding] = field(default_factory=Pending)
    version: int = 0
    failure: str = ""
    manifest: Manifest | None = None
    """Set once the backup is complete."""

    def standing(self) -> BackupStanding:
        if self.manifest is not None:
            return _complete(self.manifest)
        return BackupStanding(
            name=backup_name(self.created_ms),
            state=BackupState.FAILED if self.failure else BackupState.COPYING,
            created_ms=self.created_ms,
            version=self.version,
            size_bytes=self.progress.total_bytes,
            done_bytes=self.progress.done_bytes,
            reason=self.failure,
        )


class ServerBackups:
    """Implements `BackupMaker`. On the loop thread, except where a method says otherwise."""

    def __init__(self, make_backup: MakeBackup, store_id: str, settings: BackupSettings, clock: Clock) -> None:
        """Hold the settings; `start` begins the work. `make_backup` is the engine's way to make one."""
        self._make_backup = make_backup
        self._store_id = store_id
        self._settings = settings
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._work: _Work | None = None
        self._is_stopping = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._newest: Manifest | None = None
        self._due_from_ms = clock.wall_ms()
        """Origin for the age of the newest backup while there is none."""
        self._results = counts("made", "failed")
        self._elapsed_ms = 0

    @property
    def directory(self) -> str:
        """Directory of the backups."""
        return str(self._settings.directory)

    def start(self) -> None:
        """Look for the newest backup, and schedule the next ones if an interval is set."""
        self._found().on_settled(self._on_looked)

    def _on_looked(self, found: Pending[Sequence[StoredBackup]]) -> None:
        try:
            made = [each.manifest for each in found.result() if each.manifest is not None]
        except Refused as refusal:
            _log.warning("backups_unreadable", reason=refusal.message)
            made = []
        ours = [manifest for manifest in made if manifest.store_id == self._store_id]
        self._newest = ours[-1] if ours else None
        self._arm(0 if self._newest is None else self._newest.created_ms + self._settings.interval_ms)

    def _arm(self, due_ms: int) -> None:
        """Schedule the next backup for this wall time, at most one interval ahead. Otherwise a wall clock that was set
        back would delay it for long."""
        if self._settings.interval_ms and not self._is_stopping:
            delay_ms = min(max(0, due_ms - self._clock.wall_ms()), self._settings.interval_ms)
            self._loop.call_later(delay_ms / MS, self._on_due)

    def _on_due(self) -> None:
        if self._is_stopping:
            return
        if self._work_under_way() is None:
            self._begin(b"", is_independent=False, is_scheduled=True)
        else:
            self._arm(self._clock.wall_ms() + RETRY_MS)

    def create(self, request_id: bytes, *, is_independent: bool) -> Pending[BackupStanding]:
        """Begin a backup, as `BackupMaker.create`."""
        work = self._work
        if work is not None and request_id and work.request_id == request_id:
            return work.taken
        under_way = self._work_under_way()
        if under_way is not None:
            raise Refused(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"the backup {backup_name(under_way.created_ms)} is being made: try again when it is complete",
            )
        if self._is_stopping:
            raise Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the server stops: try again when it is back")
        return self._begin(request_id, is_independent=is_independent, is_scheduled=False)

    def _work_under_way(self) -> _Work | None:
        return None if self._idle.is_set() else self._work

    def _begin(self, request_id: bytes, *, is_independent: bool, is_scheduled: bool) -> Pending[BackupStanding]:
        work = _Work(self._clock.wall_ms(), request_id, is_independent, is_scheduled, CopyProgress(self._go_on))
        self._work = work
        self._idle.clear()
        began_ms = self._clock.monotonic_ms()
        _log.info("backup_begins", name=backup_name(work.created_ms), directory=self.directory, scheduled=is_scheduled)

        def on_made(made: Pending[Manifest]) -> None:
            self._idle.set()
            self._elapsed_ms = self._clock.monotonic_ms() - began_ms
            self._on_made(work, made)

        self._on_thread(partial(self._make, work)).on_settled(on_made)
        return work.taken

    def _go_on(self, _progress: CopyProgress) -> None:
        """Stop the copy if the server stops. Called on the thread of the backup, after every piece."""
        if self._is_stopping:
            raise _Stopped

    def _make(self, work: _Work) -> Manifest:
        """Make the backup, on its own thread."""

        def on_version(version: int) -> None:
            work.version = version
            self._loop.call_soon_threadsafe(lambda: work.taken.succeed(work.standing()))

        order = BackupOrder(
            self._settings.directory, work.created_ms, work.is_independent, work.progress, on_version=on_version
        )
        manifest = self._make_backup(order)
        if work.is_scheduled:
            prune(self._settings.directory, self._settings.kept)
        return manifest

    def _on_made(self, work: _Work, made: Pending[Manifest]) -> None:
        try:
            manifest = made.result()
        except _EXPECTED as refusal:
            self._on_failed(work, str(refusal))
        except _Stopped:
            self._on_failed(work, "the server stopped meanwhile")
        except Exception as defect:  # noqa: BLE001  an unreported failure would look like a backup
            _log.error("defect", exc_info=defect)
            self._on_failed(work, f"this is a defect of the server: {defect!r}")
        else:
            self._newest = work.manifest = manifest
            self._results["made"] += 1
            _log.info(
                "backup_made",
                name=manifest.name,
                version=manifest.version,
                size_bytes=manifest.size_bytes,
                elapsed_ms=self._elapsed_ms,
            )
            if work.is_scheduled:
                self._arm(work.created_ms + self._settings.interval_ms)

    def _on_failed(self, work: _Work, reason: str) -> None:
        work.failure = reason
        work.taken.fail(Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"no backup was made: {reason}"))
        self._results["failed"] += 1
        _log.error("backup_failed", name=backup_name(work.created_ms), reason=reason, elapsed_ms=self._elapsed_ms)
        if work.is_scheduled:
            self._arm(self._clock.wall_ms() + RETRY_MS)

    def standings(self) -> Pending[Sequence[BackupStanding]]:
        """Return the backups, as `BackupMaker.standings`."""

        # Read before the directory is: a backup that completes after the listing would be missing from both.
        work = None if self._work is None or self._work.manifest is not None else self._work

        def with_newest(found: Sequence[StoredBackup]) -> Sequence[BackupStanding]:
            standings = [*map(_standing, found)]
            if work is not None and backup_name(work.created_ms) not in (each.name for each in standings):
                standings.append(work.standing())
            return standings

        return self._found().map(with_newest)

    def _found(self) -> Pending[Sequence[StoredBackup]]:
        """List the backups in the directory. Refused UNKNOWN_SERVER_ERROR."""

        def look() -> Sequence[StoredBackup]:
            return backups_in(self._settings.directory) if self._settings.directory.exists() else ()

        def refused(error: Exception) -> Sequence[StoredBackup]:
            if isinstance(error, BackupRefused):
                raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
            raise error

        return self._on_thread(look).map(lambda found: found, refused)

    def _on_thread(self, act: Callable[[], ResultT]) -> Pending[ResultT]:
        """Run `act` on a thread and return its result or error. File access is slow, and the loop must not wait for
        it."""
        answer: Pending[ResultT] = Pending()

        def run() -> None:
            try:
                result = act()
            except Exception as error:  # noqa: BLE001  it is the answer
                self._tell(partial(answer.fail, error))
            else:
                self._tell(partial(answer.succeed, result))

        # A daemon, because the process must be able to end while a disk hangs.
        threading.Thread(target=run, name="backup", daemon=True).start()  # noqa: TID251  only files are touched there
        return answer

    def _tell(self, settle: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(settle)

    def stop(self) -> None:
        """Begin no further backup. The one under way ends after its current piece, and its files are removed.
        Idempotent."""
        self._is_stopping = True

    async def stopped(self) -> None:
        """Wait until no thread uses the store's files any more. Call it after `stop`."""
        await self._idle.wait()

    def readings(self) -> Readings:
        """Return the metrics of backups."""
        newest, now_ms = self._newest, self._clock.wall_ms()
        work = self._work_under_way()
        return {
            "txn_config_backup_interval_seconds": single(self._settings.interval_ms / MS),
            "txn_backup_age_seconds": single(
                max(0, now_ms - (self._due_from_ms if newest is None else newest.created_ms)) / MS
            ),
            "txn_backup_size_bytes": single(0 if newest is None else newest.size_bytes),
            "txn_backups_total": by_label(self._results),
            "txn_backup_copied_bytes": single(0 if work is None else work.progress.done_bytes),
            "txn_backup_elapsed_seconds": single(self._elapsed_ms / MS),
        }


def _standing(kept: StoredBackup) -> BackupStanding:
    manifest = kept.manifest
    if manifest is None:
        return BackupStanding(kept.path.name, BackupState.UNREADABLE, reason=kept.problem)
    return _complete(manifest)


def _complete(manifest: Manifest) -> BackupStanding:
    return BackupStanding(
        name=manifest.name,
        state=BackupState.COMPLETE,
        created_ms=manifest.created_ms,
        version=manifest.version,
        store_id=manifest.store_id,
        incarnation=manifest.incarnation,
        size_bytes=manifest.size_bytes,
        done_bytes=manifest.size_bytes,
    )
