"""A cache whose disk is full: it keeps less, and nothing is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from coordinator_runtime.store import StoreRefused
from coordinator_server.engines import open_bucket_store
from coordinator_server.settings.config import Config
from tests.harness.object_store import ObjectServer
from tests.harness.patience import DEADLINE_SECONDS
from tests.harness.server_process import ROOT
from tests.server.test_refused_start import small_disk

ROWS: Final = 48
PROGRAM: Final = f"""
import sys
from pathlib import Path
from coordinator_runtime.slate.location import parse_location
from coordinator_runtime.slate.opening import SlateOptions, open_slate_store
from coordinator_runtime.store import CommitGroup, Family

options = SlateOptions(Path(sys.argv[2]), 64 << 20)
def opened():
    return open_slate_store(parse_location(sys.argv[1]), shard_count=4, options=options)
store = opened()
for number in range({ROWS}):
    store.write([CommitGroup(number + 1, [(Family.LOG, b"%04d" % number, b"%d" % (number % 10) * 100_000)])])
    store.sync()
store.close()
store = opened()
rows = list(store.scan(Family.LOG, b"", b"z"))
assert [value[:1] for _key, value in rows] == [b"%d" % (number % 10) for number in range({ROWS})]
store.close()
print("read back", len(rows))
"""


@pytest.mark.slow
def test_a_disk_that_is_full_loses_nothing(tmp_path: Path, server: ObjectServer, address: str) -> None:
    server.wall_seconds = None
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        [*small_disk(disk, "1024k", "true", "exit $status"), sys.executable, "-c", PROGRAM, address, disk / "cache"],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'proto'}"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.stdout == f"read back {ROWS}\n", done.stderr


def test_a_cache_that_cannot_be_made_is_refused_in_one_line_and_makes_no_store(
    tmp_path: Path, server: ObjectServer, address: str
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreRefused, match=r"the directory .*/file/cache cannot be made or used") as refusal:
        open_bucket_store(Config(data_dir=tmp_path / "file", store=address))
    assert "\n" not in str(refusal.value)
    assert not server.objects
