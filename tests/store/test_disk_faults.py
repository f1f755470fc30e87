"""A real process on RocksDB meets a disk that is full, broken or slow: it stops, and nothing it reported is missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator_runtime.rocks import RocksStore, StoreOptions, open_store
from coordinator_runtime.store import CommitGroup, Family
from tests.harness import forked
from tests.harness.patience import DEADLINE_SECONDS
from tests.store.test_rocks_recovery import FAMILIES, SHARDS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DURABLE_BEFORE_FAULT = 42

# Submits groups, at most 8 of them not yet durable, until it hears of a failure; prints what it heard. The fault comes
# once group 50 is submitted.
SERVER = """
import json, sys, threading
from pathlib import Path
from coordinator_runtime.clock import SystemClock
from coordinator_runtime.commit_groups import CommitThread
from coordinator_runtime.rocks import open_store
from coordinator_runtime.store import CommitGroup, Family

directory, fault, groups_max = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = open_store(directory, shard_count=64)
durable, failures, progress = [0], [], threading.Semaphore(8)

def on_durable(version):
    progress.release(version - durable[-1])
    durable.append(version)

def on_failure(error):
    failures.append(error)
    progress.release()

def set_in():
    if fault == "full":
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, resource.RLIM_INFINITY))
    elif fault != "none":
        Path(fault).touch()

thread = CommitThread(
    store, SystemClock(), on_durable=on_durable, on_failure=on_failure, mark_durable=store.mark_durable
)
thread.start()
version = 0
while not failures and version < groups_max:
    progress.acquire()
    version += 1
    row = version.to_bytes(8, "big")
    families = [family for family in Family if family is not Family.META]
    thread.submit(CommitGroup(version, [(family, row, bytes(1000)) for family in families]))
    if version == 50:
        set_in()
thread.close()
store.close()
print(json.dumps([durable[-1], [str(failure) for failure in failures]]))
"""


def run_server(directory: Path, fault: str, groups_max: int = 100_000, **environment: str) -> tuple[int, list[str]]:
    """The version reported durable last, and the failures reported."""
    done = forked.run(
        [sys.executable, "-c", SERVER, str(directory), fault, str(groups_max)],
        stdout=subprocess.PIPE,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        timeout=DEADLINE_SECONDS,
    )
    durable, failures = json.loads(done.stdout)
    return durable, failures


def assert_prefix(store: RocksStore, *, at_least: int) -> None:
    """Everything reported durable is there, in every family, and nothing has holes."""
    version = store.version()
    assert version >= at_least
    expected = [number.to_bytes(8, "big") for number in range(1, version + 1)]
    for family in FAMILIES:
        assert [key for key, _ in store.scan(family, b"", b"\xff" * 9)] == expected, family


@pytest.fixture(scope="module")
def faulty_sync(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here to build tests/harness/faulty_sync.c")
    library = tmp_path_factory.mktemp("shim") / "faulty_sync.so"
    source = ROOT / "tests" / "harness" / "faulty_sync.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True, timeout=DEADLINE_SECONDS)
    return str(library)


def test_a_full_disk_stops_the_server_and_loses_nothing_reported(tmp_path: Path) -> None:
    durable, [failure] = run_server(tmp_path, "full")
    assert "File too large" in failure
    assert durable >= DURABLE_BEFORE_FAULT
    store = open_store(tmp_path, shard_count=SHARDS)
    assert_prefix(store, at_least=durable)
    store.close()


def test_a_broken_disk_stops_the_server_and_loses_nothing_reported(tmp_path: Path, faulty_sync: str) -> None:
    switch = tmp_path / "broken"
    durable, [failure] = run_server(
        tmp_path / "store", str(switch), LD_PRELOAD=faulty_sync, SYNC_FAILS_WHILE=str(switch)
    )
    assert "Input/output error" in failure
    assert durable >= DURABLE_BEFORE_FAULT
    store = open_store(tmp_path / "store", shard_count=SHARDS)
    assert_prefix(store, at_least=durable)
    store.close()


def test_a_slow_disk_is_only_slow(tmp_path: Path, faulty_sync: str) -> None:
    reported = run_server(tmp_path, "none", groups_max=200, LD_PRELOAD=faulty_sync, SYNC_DELAY_US="2000")
    assert reported == (200, [])
    store = open_store(tmp_path, shard_count=SHARDS)
    assert_prefix(store, at_least=200)
    store.close()


def test_a_stalled_store_waits_and_loses_nothing(tmp_path: Path) -> None:
    # Memory for so little that sorted files cannot be written as fast as groups arrive.
    store = open_store(tmp_path, shard_count=SHARDS, options=StoreOptions(write_buffer_bytes=256 * 1024))
    payload = bytes(range(256)) * 200
    version = 0
    while store.statistics().write_stalls == 0:
        assert version < 20_000, "the store never stalled"
        batch = range(version + 1, version + 51)
        for version in batch:
            store.write([CommitGroup(version, [(Family.LOG, version.to_bytes(8, "big"), payload)])])
    store.sync()
    keys = [key for key, _ in store.scan(Family.LOG, b"", b"\xff" * 9)]
    assert keys == [number.to_bytes(8, "big") for number in range(1, version + 1)]
    store.close()
