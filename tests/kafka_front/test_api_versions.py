"""ApiVersions: a client that names its software gets the list of APIs."""

from __future__ import annotations

import struct

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_server.kafka_front.api_versions import answer_versions


def compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


def code(name: str, software_version: str, *, version: int = 3) -> int:
    """Return the error code of an answer, which it begins with."""
    body = compact(name) + compact(software_version) + b"\0" if version >= 3 else b""
    answer = b"".join(map(bytes, answer_versions(memoryview(body), version)))
    (found,) = struct.unpack_from(">h", answer)
    return int(found)


@pytest.mark.parametrize("names", [("apache-kafka-java", "4.3.1"), ("librdkafka", "2.16.1-dirty"), ("a", "1")])
def test_a_client_with_a_name_is_answered(names: tuple[str, str]) -> None:
    assert code(*names) == ErrorCode.NONE


@pytest.mark.parametrize("names", [("", ""), ("-kafka", "1"), ("kafka", "1."), ("my client", "1"), ("kafka", "")])
def test_a_client_without_a_proper_name_is_refused(names: tuple[str, str]) -> None:
    assert code(*names) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(3))
def test_older_versions_name_nobody(version: int) -> None:
    assert code("", "", version=version) == ErrorCode.NONE
