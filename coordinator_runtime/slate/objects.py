"""Single objects of a bucket, with conditional writes: the only module that imports obstore.

SlateDB's binding has no calls for single objects. The record of the owner and the check of the store need them.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import obstore
from msgspec import Struct
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError
from obstore.store import LocalStore, MemoryStore, from_url

from coordinator_runtime.slate.location import StoreLocation

_in_memory: Final[dict[str, MemoryStore]] = {}

_RETRY_TIMEOUT: Final = timedelta(seconds=20)

ObjectsFailed = BaseError
"""Error of any call that the object store did not do."""


class FoundObject(Struct, frozen=True):
    """An object as it was read."""

    content: bytes
    e_tag: str
    modified: datetime
    """Time of its writing, by the clock of the object store."""


class Objects:
    """Objects beside a store in a bucket. Calls wait for the object store; any thread may call."""

    def __init__(self, location: StoreLocation) -> None:
        """Take the credentials from the environment. Raises ObjectsFailed."""
        self._prefix = location.prefix
        self._store = _store_of(location)
        self._can_replace = location.scheme != "file"

    def create(self, name: str, content: bytes) -> str | None:
        """Make an object that must not exist. Returns its tag; None if it exists. Raises ObjectsFailed."""
        try:
            return _tag(obstore.put(self._store, self._path(name), content, mode="create"))
        except (AlreadyExistsError, PreconditionError):
            return None

    def replace(self, name: str, content: bytes, e_tag: str) -> str | None:
        """Replace an object that must still have this tag. Returns its new tag; None if it has another. Raises
        ObjectsFailed."""
        if not self._can_replace:
            return _tag(obstore.put(self._store, self._path(name), content))
        try:
            return _tag(obstore.put(self._store, self._path(name), content, mode={"e_tag": e_tag}))
        except (AlreadyExistsError, NotFoundError, PreconditionError):
            return None

    def read(self, name: str) -> FoundObject | None:
        """Return an object; None if there is none. Raises ObjectsFailed."""
        try:
            found = obstore.get(self._store, self._path(name))
        except (FileNotFoundError, NotFoundError):
            return None
        meta = found.meta
        return FoundObject(bytes(found.bytes()), meta["e_tag"] or "", meta["last_modified"])

    def keeps_metadata(self, name: str) -> bool:
        """Return True if a user's metadata comes back with the object. Raises ObjectsFailed."""
        obstore.put(self._store, self._path(name), b"metadata", attributes={"probe": "kept"})
        found = obstore.get(self._store, self._path(name))
        return dict(found.attributes).get("probe") == "kept"

    def remove(self, name: str) -> None:
        """Remove an object. Raises ObjectsFailed."""
        obstore.delete(self._store, self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._prefix}/{name}"


def _tag(result: Any) -> str:  # noqa: ANN401  it has no type
    return str(result["e_tag"] or "")


def _store_of(location: StoreLocation) -> Any:  # noqa: ANN401  one class for each kind
    if location.scheme == "memory":
        return _in_memory.setdefault(location.bucket, MemoryStore())
    if location.scheme == "file":
        Path(location.bucket).mkdir(parents=True, exist_ok=True)
        return LocalStore(location.bucket)
    # Requests are repeated by the server that starts again, not for minutes by this one.
    return from_url(f"{location.scheme}://{location.bucket}", retry_config={"retry_timeout": _RETRY_TIMEOUT})
