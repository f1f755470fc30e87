"""The address of a store in a bucket: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX`.

`memory:NAME` and `file:DIRECTORY` are for tests. The first is gone with its process, and the second syncs nothing to
the disk.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from coordinator_runtime.store import StoreRefused

SCHEMES: Final = ("s3", "gs", "az")
TEST_SCHEMES: Final = ("memory", "file")
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PREFIX: Final = re.compile(r"[A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*")


class StoreLocation(Struct, frozen=True):
    """Place of a store in object storage."""

    scheme: str
    bucket: str
    """Bucket or container; of `memory` a name within the process, of `file` a directory."""
    prefix: str
    """Path within the bucket. SlateDB takes it as its name, because a path in the address of a bucket is lost."""

    @property
    def address(self) -> str:
        """The address as it was given."""
        if self.scheme in TEST_SCHEMES:
            return f"{self.scheme}:{self.bucket}"
        return f"{self.scheme}://{self.bucket}/{self.prefix}"

    @property
    def is_for_tests(self) -> bool:
        return self.scheme in TEST_SCHEMES


def parse_location(address: str) -> StoreLocation:
    """Return the place that an address names. Raises StoreRefused."""
    scheme, separator, rest = address.partition(":")
    if scheme in TEST_SCHEMES and separator and rest and not rest.startswith("//"):
        return StoreLocation(scheme, rest, "store")
    bucket, _, prefix = rest.removeprefix("//").partition("/")
    prefix = prefix.rstrip("/")
    if scheme not in SCHEMES or not rest.startswith("//"):
        raise StoreRefused(
            f"{address!r} names no store: write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
        )
    if not _BUCKET.fullmatch(bucket) or not _PREFIX.fullmatch(prefix):
        raise StoreRefused(
            f"{address!r} needs a bucket and a prefix of letters, digits and the characters . _ - = between slashes:"
            f" write {scheme}://BUCKET/PREFIX"
        )
    return StoreLocation(scheme, bucket, prefix)
