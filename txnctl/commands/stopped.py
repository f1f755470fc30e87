"""Access of a command to the directory of a stopped server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coordinator_protocol.errors import Refused
from coordinator_runtime.engine import StoppedStore
from coordinator_runtime.store import StoreFailed, StoreRefused, StoreUnreadable
from coordinator_runtime.unknown_rows import UnknownRow
from coordinator_server.engines import ROCKS
from coordinator_server.exits import CommandFailed, ExitStatus


@contextmanager
def opened(data_dir: Path) -> Iterator[StoppedStore]:
    """Open the store in the directory for reading, and close it at the end. Errors inside the block are raised as
    CommandFailed."""
    _may_be_entered(data_dir)
    try:
        store = ROCKS.open_stopped(str(data_dir))
    except StoreRefused as refusal:
        raise CommandFailed(ExitStatus.STORE_REFUSED, _advised(data_dir, str(refusal))) from refusal
    try:
        yield store
    except (StoreFailed, StoreRefused, StoreUnreadable) as failure:
        raise CommandFailed(
            ExitStatus.STORE_REFUSED, f"{failure}\nthe files are damaged: restore the directory from a backup"
        ) from failure
    except (Refused, UnknownRow) as damage:
        words = damage.message if isinstance(damage, Refused) else str(damage)
        raise CommandFailed(
            ExitStatus.STORE_REFUSED, f"{data_dir}: {words}\n`txnctl store verify {data_dir}` names all that is wrong"
        ) from damage
    finally:
        store.close()


def _may_be_entered(data_dir: Path) -> None:
    """Raise CommandFailed for a directory that this user may not enter, not even to see if it exists."""
    try:
        data_dir.stat()
    except PermissionError as refusal:
        raise CommandFailed(
            ExitStatus.STORE_REFUSED,
            f"{data_dir} cannot be looked at ({refusal.strerror}); run this as the user that runs the server",
        ) from refusal
    except OSError:
        return  # Other problems are reported when the store is opened.


def _advised(data_dir: Path, refusal: str) -> str:
    """Return the refusal with advice on how to resolve it."""
    if not data_dir.exists():
        return f"there is no directory {data_dir}; name the one that `txnctl serve --data-dir` was given"
    if not data_dir.is_dir():
        return f"{data_dir} is no directory; name the one that `txnctl serve --data-dir` was given"
    if "there is no" in refusal:
        return f"{refusal}; name the directory that `txnctl serve --data-dir` was given"
    if "(pid " in refusal:
        return f"{refusal}. Of a running server, `txnctl log dump TOPIC --server HOST:PORT` shows the logs"
    return refusal
