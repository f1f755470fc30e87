"""Single objects of a bucket, with conditional writes: the only module that imports obstore.

SlateDB's binding has no calls for single objects. The record of the owner and the check of the store need them.
"""

from __future__ import annotations

import os
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

_VARIABLES: Final = {"s3": "AWS", "gs": "GOOGLE", "az": "AZURE"}
"""First word of the environment variables of each kind of object store."""
_CLIENT_OPTIONS: Final = ("allow_http", "allow_invalid_certificates", "proxy_url", "proxy_ca_certificate")

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

    def __init__(self, location: StoreLocation, patience: timedelta | None = None) -> None:
        """Take the credentials from the environment. `patience`: longest time of one request, which then is not
        repeated; None for some seconds with repetitions. Raises ObjectsFailed."""
        self._prefix = location.prefix
        self._store = _store_of(location, patience)
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

    def put(self, name: str, content: bytes) -> None:
        """Write an object, whether it exists or not. Raises ObjectsFailed."""
        obstore.put(self._store, self._path(name), content)

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


def _client_options(scheme: str, patience: timedelta) -> Any:  # noqa: ANN401  a dictionary of many types
    """Return the options of the HTTP client. Given ones replace those of the environment, so these are read here."""
    given = {name: os.environ.get(f"{_VARIABLES[scheme]}_{name.upper()}") for name in _CLIENT_OPTIONS}
    known = {name: value for name, value in given.items() if value is not None}
    return {**known, "timeout": patience, "connect_timeout": patience}


def _store_of(location: StoreLocation, patience: timedelta | None) -> Any:  # noqa: ANN401  one class for each kind
    if location.scheme == "memory":
        return _in_memory.setdefault(location.bucket, MemoryStore())
    if location.scheme == "file":
        Path(location.bucket).mkdir(parents=True, exist_ok=True)
        return LocalStore(location.bucket)
    if patience is not None:
        return from_url(
            f"{location.scheme}://{location.bucket}",
            client_options=_client_options(location.scheme, patience),
            retry_config={"max_retries": 0, "retry_timeout": patience},
        )
    # Requests are repeated by the server that starts again, not for minutes by this one.
    return from_url(f"{location.scheme}://{location.bucket}", retry_config={"retry_timeout": _RETRY_TIMEOUT})
