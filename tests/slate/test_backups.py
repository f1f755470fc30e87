"""Backups of a store in a bucket: refused, with the way to export."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_core.backups import BackupControl
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.ports import ALLOW_ALL
from coordinator_runtime.store import StoreRefused
from coordinator_server.engines import open_bucket_store
from coordinator_server.settings.config import Config
from tests.harness.group_calls import ANYBODY
from tests.harness.object_store import ObjectServer


def test_a_request_for_one_is_refused_with_the_way_to_export(
    tmp_path: Path, server: ObjectServer, address: str
) -> None:
    server.wall_seconds = None
    opened = open_bucket_store(Config(data_dir=tmp_path / "cache", store=address))
    opened.store.close()
    assert opened.make_backup is None
    assert opened.backup_advice is not None
    with pytest.raises(Refused, match=f"txnctl migrate {address} DIR") as refusal:
        BackupControl(None, opened.backup_advice, ALLOW_ALL).create(b"id", ANYBODY, is_independent=False)
    assert refusal.value.code is ErrorCode.INVALID_CONFIG
    assert "\n" not in refusal.value.message


def test_a_start_with_a_backup_directory_is_refused_and_makes_no_store(
    tmp_path: Path, server: ObjectServer, address: str
) -> None:
    config = Config(data_dir=tmp_path / "cache", store=address, backup_directory=tmp_path / "backups")
    with pytest.raises(StoreRefused, match="backup_directory is set, and there will be no backups: the store is in ob"):
        open_bucket_store(config)
    assert not server.objects
    assert not (tmp_path / "cache").exists()
