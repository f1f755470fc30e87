"""The watch of the disk: a real file system that fills and is emptied again, and one that cannot be looked at."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from coordinator_client import Abortable, Admin, Producer, TransactionError, read
from coordinator_runtime.disk_guard import DiskGuard
from coordinator_server.exits import ExitStatus
from coordinator_server.host import disk_watch
from coordinator_server.host.disk_watch import DiskWatch
from tests.harness.patience import looks
from tests.harness.server_process import ServerProcess

MIB = 1 << 20
DISK_MIB, LEAST_MIB, FILLED_MIB = 64, 16, 54


async def test_a_disk_that_cannot_be_seen_changes_nothing_and_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_watch, "LOOK_SECONDS", 0)
    found: list[int | OSError] = [1, OSError("gone"), OSError("gone"), 9, OSError("gone again")]
    refusals: list[bool] = []
    loop, is_over = asyncio.get_running_loop(), asyncio.Event()
    guard = DiskGuard(5)

    def free_bytes() -> int:
        refusals.append(guard.refusal is not None)
        if not found:
            loop.call_soon_threadsafe(is_over.set)
            return 9
        each = found.pop(0)
        if isinstance(each, OSError):
            raise each
        return each

    with structlog.testing.capture_logs() as lines:
        DiskWatch(guard, free_bytes).start()
        assert guard.refusal is not None, "the first look is before anybody is served"
        await is_over.wait()
    assert refusals[:5] == [False, True, True, True, False]
    told = [line["event"] for line in lines]
    assert told == ["disk_low", "disk_unseen", "disk_has_room", "disk_unseen"]


async def test_a_guard_that_is_off_looks_at_nothing() -> None:
    def free_bytes() -> int:
        raise AssertionError("an unexpected call")

    DiskWatch(DiskGuard(0), free_bytes).start()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few MiB; the test is skipped where none may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(place)]
    mounted = subprocess.run(command, check=False, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no small file system may be mounted here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.slow
def test_a_disk_that_fills_refuses_producers_and_serves_everybody_else(small_disk: Path) -> None:
    filling = small_disk / "filling"
    with _served(small_disk, LEAST_MIB * MIB) as server, Admin(server.address) as admin:
        admin.create_topic("t", 1)
        with Producer(server.address, transactional_id="a", delivery_timeout_ms=3_000) as producer:
            # Its abort, and all that follows, go on while the disk is full.
            with pytest.raises(Abortable, match=r"the disk of the server is nearly full.*disk_free_min_bytes"):
                _fill_within_a_transaction(producer, server, filling)
            admin.create_topic("other", 1)
            admin.delete_topic("other")
            filling.unlink()
            _wait_for_line(server, "disk_has_room")
            with producer.transaction() as txn:
                txn.send("t", b"after")
        assert [record.value for record in read("t", server.address)] == [b"after"]


@pytest.mark.long
@pytest.mark.slow
def test_without_the_guard_a_full_disk_ends_the_server_and_loses_nothing(small_disk: Path) -> None:
    filling = small_disk / "filling"
    with _served(small_disk, 0) as server, Admin(server.address) as admin:
        admin.create_topic("t", 1)
        with Producer(server.address) as producer:
            producer.send("t", b"kept")
            producer.flush()
        with filling.open("wb", buffering=0) as file:
            assert file.write(bytes(DISK_MIB * MIB)) < DISK_MIB * MIB
        with Producer(server.address, delivery_timeout_ms=10_000) as producer:
            producer.send("t", bytes(MIB // 4))
            with pytest.raises(TransactionError):
                producer.flush()
        assert server.wait() == ExitStatus.FAILED
        filling.unlink()
        server.start()
        assert [record.value for record in read("t", server.address)][:1] == [b"kept"]


def _fill_within_a_transaction(producer: Producer, server: ServerProcess, filling: Path) -> None:
    with producer.transaction() as txn:
        txn.send("t", b"before")
        txn.flush()
        filling.write_bytes(bytes(FILLED_MIB * MIB))
        _wait_for_line(server, "disk_low")
        txn.send("t", b"refused")
        txn.flush()


def _served(disk: Path, free_min_bytes: int) -> ServerProcess:
    environment = {"TXN_DISK_FREE_MIN_BYTES": str(free_min_bytes), "TXN_WAL_BYTES_MAX": str(MIB)}
    return ServerProcess(disk / "data", environment=environment)


def _wait_for_line(server: ServerProcess, event: str) -> None:
    for _ in looks(f"a line {event}"):
        if event in server.output:
            return
