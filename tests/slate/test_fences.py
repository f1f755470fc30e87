"""A former owner that writes late, and the bug that would let its write be acknowledged: a fence that was collected."""

from __future__ import annotations

import json
import threading

import pytest

from coordinator_runtime.slate import binding, opening
from coordinator_runtime.slate.store import SlateStore
from coordinator_runtime.store import Family, StoreFailed
from tests.harness.object_store import ObjectServer
from tests.harness.patience import DEADLINE_SECONDS
from tests.slate.test_opening import opened, put


@pytest.fixture(autouse=True)
def _looks_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no server learn of another by a look at the manifest, as one that stood still: only the fence tells it."""
    settings_of = opening._settings

    def patient(options: opening.SlateOptions) -> binding.Handle:
        values = json.loads(settings_of(options).to_json_string())
        values["manifest_poll_interval"] = "3600s"
        return binding.Settings.from_json_string(json.dumps(values))

    monkeypatch.setattr(opening, "_settings", patient)


class LateWrite:
    """The former owner writes once more, on a thread of its own: without its fence it may never be answered."""

    def __init__(self, former: SlateStore) -> None:
        self._former = former
        self.is_acknowledged = False
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        try:
            put(self._former, b"late")
        except StoreFailed:
            return
        self.is_acknowledged = True

    def end(self) -> None:
        self._thread.join(DEADLINE_SECONDS)


def lost_after_a_late_write(server: ObjectServer, address: str, *, is_fence_collected: bool) -> bool:
    """Let another server open the store, and its former owner write. Returns True if a write was acknowledged that the
    new owner has not."""
    former = opened(address)
    put(former, b"a")
    before = set(server.objects)
    owner = opened(address)
    fences = [name for name in set(server.objects) - before if "/wal/" in name]
    assert len(fences) == 1
    if is_fence_collected:
        del server.objects[fences[0]]
    late = LateWrite(former)
    late.end()
    found = owner.get(Family.LOG, b"late")
    owner.close()
    return late.is_acknowledged and found is None


def test_a_late_write_of_a_former_owner_is_not_acknowledged(server: ObjectServer, address: str) -> None:
    assert not lost_after_a_late_write(server, address, is_fence_collected=False)


@pytest.mark.slow
def test_a_collector_of_fences_would_be_caught(server: ObjectServer, address: str) -> None:
    """The mutant: without its fence the former owner is told that its write is durable."""
    assert lost_after_a_late_write(server, address, is_fence_collected=True)
