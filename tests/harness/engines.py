"""The engine below the worlds and servers of a run of tests: `pytest --engine slate` puts them all into a bucket.

Otherwise worlds keep their store in memory, and server processes on disk. A test that copies a store or lets its disk
fail is skipped in a bucket: `copies_store` marks such modules, and `World.back_up` skips by itself.
"""

from __future__ import annotations

import os
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

import pytest

from coordinator_runtime.engine import StoppedStore
from coordinator_runtime.rocks import open_read_only
from tests.harness.shelf import MemoryShelf, Shelf

if TYPE_CHECKING:
    from tests.harness.bucket_shelf import BucketShelf
    from tests.harness.object_store import ObjectServer

ENGINE_VARIABLE: Final = "COORDINATOR_TEST_ENGINE"
NATURAL: Final = "natural"
SLATE: Final = "slate"
ENGINES: Final = (NATURAL, SLATE)

_open: Final[list[BucketShelf]] = []


def is_in_bucket() -> bool:
    """Return whether the tests of this run use stores in object storage."""
    return os.environ.get(ENGINE_VARIABLE, NATURAL) == SLATE


def new_shelf() -> Shelf:
    """Return a new shelf for the store of a world whose test chooses none."""
    if not is_in_bucket():
        return MemoryShelf()
    from tests.harness.bucket_shelf import BucketShelf

    _open.append(BucketShelf())
    return _open[-1]


def close_shelves() -> None:
    """Close what the worlds of a test have left open."""
    while _open:
        _open.pop().close()


def skip_in_bucket(why: str) -> None:
    """Skip the test if its store is in a bucket."""
    if is_in_bucket():
        pytest.skip(f"a store in a bucket {why}")


def store_arguments(data_dir: Path) -> list[str]:
    """Return the arguments of a server process for its store: a place of its own in the bucket of this run, or
    nothing."""
    return ["--store", address_of(data_dir)] if is_in_bucket() else []


def store_environment() -> dict[str, str]:
    """The variables that lead server processes to the bucket."""
    return dict(bucket().environment()) if is_in_bucket() else {}


def address_of(data_dir: Path) -> str:
    """The address of the store that belongs to a directory."""
    return f"s3://tests/{sha256(str(data_dir).encode()).hexdigest()[:16]}"


def open_stopped(data_dir: Path) -> StoppedStore:
    """The store of a stopped server, for reading."""
    if not is_in_bucket():
        return open_read_only(data_dir)
    from coordinator_runtime.slate.location import parse_location
    from coordinator_runtime.slate.opening import open_slate_stopped

    with patch.dict(os.environ, store_environment()):
        return open_slate_stopped(parse_location(address_of(data_dir)))


@cache
def bucket() -> ObjectServer:
    """The object store of this run, which ends with the process."""
    from tests.harness.object_store import ObjectServer

    server = ObjectServer()
    server.__enter__()
    server.wall_seconds = None
    return server
