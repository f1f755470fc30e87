"""Settings of a store in object storage."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from coordinator_protocol.limits import MEBI
from coordinator_server.settings.access_config import AccessConfig

_GIBI: Final = 1024 * MEBI


class StoreConfig(AccessConfig):
    """The part of `Config` that is about the place of the store."""

    store: str | None = None
    """Address of a store in object storage: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX. `data_dir`
    then holds only a cache. Needs `txn-coordinator[objectstore]`. Not set: the store lies in `data_dir`."""

    store_cache_bytes_max: Annotated[int, Field(ge=0)] = _GIBI
    """Size of the cache on the local disk for a store in object storage. 0: none. Too small: old records are fetched
    from the bucket again and again."""

    lease: bool = False
    """Serve only while this server holds the lease of its store, and wait for it until then. Set it for all servers of
    a store in object storage, so that one of them takes over when the owner ends (docs/scale-out.md)."""

    lease_ttl_ms: Annotated[int, Field(ge=500, le=600_000)] = 10_000
    """Time without a renewal after which another server takes the lease. An owner that cannot renew it ends itself a
    little earlier. Too small: a slow object store ends a healthy owner; ten seconds outlast one whose p99.9 is a
    second, with pauses of two. Too large: clients wait longer after a crash."""
