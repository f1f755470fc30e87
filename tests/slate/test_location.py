"""Addresses of stores in object storage."""

from __future__ import annotations

import pytest

from coordinator_runtime.slate.location import StoreLocation, parse_location
from coordinator_runtime.store import StoreRefused


@pytest.mark.parametrize(
    ("address", "location"),
    [
        ("s3://bucket/prefix", StoreLocation("s3", "bucket", "prefix")),
        ("gs://my.bucket/a/b=1/c/", StoreLocation("gs", "my.bucket", "a/b=1/c")),
        ("az://container/p", StoreLocation("az", "container", "p")),
        ("memory:name", StoreLocation("memory", "name", "store")),
        ("file:/tmp/x", StoreLocation("file", "/tmp/x", "store")),
    ],
)
def test_an_address_names_bucket_and_prefix(address: str, location: StoreLocation) -> None:
    assert parse_location(address) == location
    assert parse_location(location.address) == location


@pytest.mark.parametrize(
    "address",
    ["", "s3", "s3:bucket/x", "http://bucket/x", "s3://bucket", "s3://bucket/", "s3:///x", "s3://b/a//c", "s3://b/ü"],
)
def test_anything_else_is_refused_with_the_right_form(address: str) -> None:
    with pytest.raises(StoreRefused, match=r"write s3://BUCKET/PREFIX"):
        parse_location(address)
