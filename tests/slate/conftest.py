"""Fixtures of the engine on object storage."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.object_store import BUCKET, ObjectServer

pytest.importorskip("slatedb", reason="the extra objectstore is not installed")
pytest.importorskip("obstore", reason="the extra objectstore is not installed")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    """An object store, with the variables that lead clients in this process to it."""
    with ObjectServer() as made:
        for name, value in made.environment().items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture
def address(server: ObjectServer) -> str:
    """Address of a store in it."""
    return f"s3://{BUCKET}/some/prefix"
