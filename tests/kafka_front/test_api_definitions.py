"""The table of APIs says of each what its definitions say."""

from __future__ import annotations

import subprocess
import sys

from coordinator_server.kafka_front.messages.tables import API_DEFINITIONS


def test_each_api_has_its_codecs() -> None:
    for key, api in API_DEFINITIONS.items():
        assert api.key == key
        assert callable(api.decoder())
        assert callable(api.encoder())


def test_the_versions_are_those_of_kafka() -> None:
    named = {api.name: api for api in API_DEFINITIONS.values()}
    produce, handshake = named["Produce"], named["SaslHandshake"]
    assert (produce.key, produce.version_min, produce.version_max, produce.flexible_from) == (0, 3, 13, 9)
    assert [produce.is_flexible(version) for version in (8, 9, 13)] == [False, True, True]
    assert not handshake.is_flexible(handshake.version_max)
    assert [name for name, api in named.items() if api.is_latest_unstable] == ["InitProducerId"]


def test_the_answer_that_tells_the_versions_has_the_oldest_header() -> None:
    versions = next(api for api in API_DEFINITIONS.values() if api.name == "ApiVersions")
    assert versions.is_flexible(3)


def test_the_table_alone_imports_no_codec() -> None:
    """A server whose clients use few APIs has only their codecs in memory."""
    program = "import sys, coordinator_server.kafka_front.messages.tables; print(*sys.modules, sep='\\n')"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = [name for name in ran.stdout.split() if name.startswith("coordinator_server.kafka_front.messages.")]
    assert loaded == ["coordinator_server.kafka_front.messages.tables"]
