"""ApiVersions: a client that names its software gets the list of APIs, which is in a file of its own."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_server.kafka_front.api_versions import answer_versions
from coordinator_server.kafka_front.apis import APIS, FEATURES, ApiKey
from coordinator_server.kafka_front.endpoints import handlers
from tests.harness.kafka_caller import SETTINGS
from tests.harness.kio_requests import response_of
from tests.harness.world import World

LISTED: Final = Path(__file__).parent / "api_versions.txt"


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
def test_older_versions_name_no_client(version: int) -> None:
    assert code("", "", version=version) == ErrorCode.NONE


def listed() -> str:
    """Return the list that clients get, a line for each API and feature, as kio reads it."""
    body = b"".join(map(bytes, answer_versions(memoryview(compact("kio") + compact("1") + b"\0"), 4)))
    response = response_of(ApiKey.API_VERSIONS, 4, body)
    assert {feature.name for feature in response.finalized_features} == set(FEATURES)
    apis = [f"{ApiKey(each.api_key).name} {each.min_version}-{each.max_version}" for each in response.api_keys]
    features = [f"{each.name} {each.min_version}-{each.max_version}" for each in response.supported_features]
    return "\n".join([*apis, *features]) + "\n"


def test_the_list_of_apis_is_the_one_that_was_decided() -> None:
    """Clients choose their versions by it: a change is a decision, and stands in the file."""
    assert listed() == LISTED.read_text()


def test_every_api_of_the_list_is_served_and_no_other() -> None:
    served = dict(handlers(World().inside.core, SETTINGS))
    assert served.keys() == {key for key, api in APIS.items() if api.method is not None}
