"""Backups of a server that runs: asked for, by the clock, one at a time, and none half."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.backups import BackupStanding, BackupState
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.backups import Manifest, backups_in
from coordinator_runtime.backups.of_rocks import make_rocks_backup
from coordinator_runtime.backups.order import BackupOrder
from coordinator_runtime.identity import uuid_text
from coordinator_runtime.rocks import RocksStore, open_store
from coordinator_runtime.store import CommitGroup, Family, StoreUnreadable
from coordinator_server.backups import RETRY_MS, BackupSettings, ServerBackups
from coordinator_server.metrics.instruments import Readings
from coordinator_server.settings.config import Config
from tests.harness.manual_clock import LoopOnClock, ManualClock
from tests.harness.patience import until

MINUTE_MS = 60_000


class ScheduledBackups:
    """A store, and what makes backups of it, on a loop whose timers go by hand."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock(wall_ms=1_790_000_000_000)
        self.shelf = path / "backups"
        self.store: RocksStore = open_store(path / "data", shard_count=4)
        self.gate = threading.Event()
        self.gate.set()
        self.refusal: StoreUnreadable | None = None
        self.backups: ServerBackups

    def make_backup(self, order: BackupOrder) -> Manifest:
        self.gate.wait()
        if self.refusal is not None:
            raise self.refusal
        return make_rocks_backup(self.store, order)

    def run(self, work: Callable[[], Coroutine[Any, Any, None]], *, interval_ms: int = 0, kept: int = 24) -> None:
        async def all_of_it() -> None:
            settings = BackupSettings(self.shelf, interval_ms, kept)
            store_id = uuid_text(self.store.identity.store_id)
            self.backups = ServerBackups(self.make_backup, store_id, settings, self.clock)
            await work()
            self.backups.stop()
            self.gate.set()
            await self.backups.stopped()

        with asyncio.Runner(loop_factory=partial(LoopOnClock, self.clock)) as runner:
            runner.run(all_of_it())
        self.store.close()

    def write(self) -> None:
        version = self.store.version() + 1
        self.store.write([CommitGroup(version, [(Family.PRODUCERS, bytes([version]), b"row")])])
        self.store.sync()

    @property
    def names(self) -> list[str]:
        return [kept.path.name for kept in backups_in(self.shelf)] if self.shelf.exists() else []

    def value(self, name: str, *labels: str) -> object:
        readings: Readings = self.backups.readings()
        return readings[name][labels]

    async def standings(self) -> Sequence[BackupStanding]:
        return await self.backups.standings()


@pytest.fixture
def scheduled(tmp_path: Path) -> ScheduledBackups:
    return ScheduledBackups(tmp_path)


def test_the_answer_comes_with_the_version_and_the_files_follow(scheduled: ScheduledBackups) -> None:
    async def work() -> None:
        scheduled.write()
        begun = await scheduled.backups.create(b"1", is_independent=False)
        assert (begun.state, begun.version) == (BackupState.COPYING, 1)
        await until(lambda: scheduled.value("txn_backups_total", "made") == 1)
        (complete,) = await scheduled.standings()
        assert (complete.name, complete.state, complete.version) == (begun.name, BackupState.COMPLETE, 1)
        assert complete.done_bytes == complete.size_bytes == scheduled.value("txn_backup_size_bytes")

    scheduled.run(work)
    assert not (scheduled.store.directory / "checkpoint").exists()


def test_only_one_is_made_at_a_time_and_a_repeat_gets_the_first_answer(scheduled: ScheduledBackups) -> None:
    async def work() -> None:
        scheduled.gate.clear()
        first = scheduled.backups.create(b"1", is_independent=False)
        assert scheduled.backups.create(b"1", is_independent=False) is first
        with pytest.raises(Refused, match="is being made") as refused:
            scheduled.backups.create(b"2", is_independent=False)
        assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert [each.state for each in await scheduled.standings()] == [BackupState.COPYING]
        scheduled.gate.set()
        await first
        await until(lambda: scheduled.value("txn_backups_total", "made") == 1)
        assert scheduled.backups.create(b"1", is_independent=False) is first

    scheduled.run(work)
    assert len(scheduled.names) == 1


def test_a_backup_that_failed_is_told_and_nothing_is_left(scheduled: ScheduledBackups) -> None:
    async def work() -> None:
        scheduled.refusal = StoreUnreadable("no copy of the store can be made: the disk is full")
        with pytest.raises(Refused, match="the disk is full"):
            await scheduled.backups.create(b"1", is_independent=False)
        (failed,) = await scheduled.standings()
        assert (failed.state, failed.reason) == (BackupState.FAILED, str(scheduled.refusal))
        assert scheduled.value("txn_backups_total", "failed") == 1
        scheduled.refusal = None
        await scheduled.backups.create(b"2", is_independent=False)
        await until(lambda: scheduled.value("txn_backups_total", "made") == 1)
        assert [each.state for each in await scheduled.standings()] == [BackupState.COMPLETE]

    scheduled.run(work)


def test_by_the_clock_counted_from_the_newest_one(scheduled: ScheduledBackups) -> None:
    """It counts over a restart, too: a server that starts often must not make a backup with each start."""

    async def made(count: int) -> None:
        await until(lambda: len(scheduled.names) == count and scheduled.backups._idle.is_set())

    async def first_run() -> None:
        scheduled.backups.start()
        await made(1)
        scheduled.clock.advance(MINUTE_MS)
        await made(2)
        assert scheduled.value("txn_backup_age_seconds") == 0
        scheduled.clock.advance(MINUTE_MS // 2)
        assert scheduled.value("txn_backup_age_seconds") == 30

    async def second_run() -> None:
        scheduled.backups.start()
        await until(lambda: scheduled.value("txn_backup_age_seconds") == 30)
        scheduled.clock.advance(MINUTE_MS // 2)
        await made(3)

    scheduled.run(first_run, interval_ms=MINUTE_MS)
    scheduled.store = open_store(scheduled.store.directory, shard_count=4)
    scheduled.run(second_run, interval_ms=MINUTE_MS)


def test_those_made_by_the_clock_push_old_ones_out_and_those_asked_for_do_not(scheduled: ScheduledBackups) -> None:
    async def work() -> None:
        for number in range(3):
            scheduled.clock.advance(1)
            await scheduled.backups.create(bytes([number]), is_independent=False)
            await until(lambda number=number: scheduled.value("txn_backups_total", "made") == number + 1)  # type: ignore[misc]
        assert len(scheduled.names) == 3
        newest = scheduled.names[-1]
        scheduled.backups.start()
        await until(lambda: scheduled.value("txn_backup_age_seconds") == 0)
        await asyncio.sleep(0)
        scheduled.clock.advance(MINUTE_MS)
        await until(lambda: scheduled.value("txn_backups_total", "made") == 4)
        assert len(scheduled.names) == 2
        assert scheduled.names[0] == newest

    scheduled.run(work, interval_ms=MINUTE_MS, kept=2)


def test_one_by_the_clock_that_failed_is_tried_again_soon(scheduled: ScheduledBackups) -> None:
    async def work() -> None:
        scheduled.refusal = StoreUnreadable("the disk is full")
        scheduled.backups.start()
        await until(lambda: scheduled.value("txn_backups_total", "failed") == 1)
        scheduled.refusal = None
        scheduled.clock.advance(RETRY_MS)
        await until(lambda: scheduled.value("txn_backups_total", "made") == 1)

    scheduled.run(work, interval_ms=60 * MINUTE_MS)


def test_a_server_that_stops_leaves_no_half_backup(scheduled: ScheduledBackups) -> None:
    async def work() -> None:
        scheduled.write()
        scheduled.gate.clear()
        pending = scheduled.backups.create(b"1", is_independent=False)
        scheduled.backups.stop()
        scheduled.gate.set()
        await scheduled.backups.stopped()
        await pending
        with pytest.raises(Refused, match="the server stops"):
            scheduled.backups.create(b"2", is_independent=False)

    scheduled.run(work)
    assert scheduled.names == []
    assert [path.name for path in scheduled.shelf.iterdir()] == [".lock"]
    assert not (scheduled.store.directory / "checkpoint").exists()


def test_a_directory_that_cannot_be_read_is_told(scheduled: ScheduledBackups) -> None:
    async def work() -> None:
        scheduled.shelf.write_text("no directory")
        with pytest.raises(Refused, match=os.strerror(errno.ENOTDIR)) as refused:
            await scheduled.standings()
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        scheduled.backups.start()

    scheduled.run(work)


def test_an_interval_without_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="set backup_directory, too"):
        Config.model_validate({"data_dir": tmp_path, "backup_interval_ms": 1_000})
