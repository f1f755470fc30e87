"""The codecs of Kafka's messages are what the generator makes, and the generator knows the notation of definitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.kafka_messages import __main__ as generator
from scripts.kafka_messages.definitions import NO_VERSIONS, Versions, snake_case, versions_of


def test_codecs_and_generator_changed_together() -> None:
    assert generator.stale_digests() == [], "run `make kafka-messages`"


def test_the_codecs_are_what_the_definitions_say() -> None:
    jar = generator.cached_jar()
    if jar is None:
        pytest.skip("the jar with Kafka's definitions was never fetched here: `make kafka-messages` does")
    assert generator.differences(jar) == []


def test_a_change_by_hand_is_noticed(tmp_path: Path) -> None:
    for path in generator.TARGET.glob("*.py"):
        (tmp_path / path.name).write_text(path.read_text())
    assert generator.stale_digests(tmp_path) == []
    (tmp_path / "tables.py").write_text("")
    assert generator.stale_digests(tmp_path) == ["a generated module of Kafka's messages was changed by hand"]


def test_another_jar_is_refused(tmp_path: Path) -> None:
    jar = tmp_path / "other.jar"
    jar.write_bytes(b"PK")
    with pytest.raises(generator.CannotGenerate, match="is not the kafka-clients"):
        generator.generated(jar)


@pytest.mark.parametrize(
    ("text", "versions"),
    [("0-3", Versions(0, 3)), ("4", Versions(4, 4)), ("2+", Versions(2, 32767)), ("none", NO_VERSIONS)],
)
def test_versions_are_read(text: str, versions: Versions) -> None:
    assert versions_of(text) == versions


@pytest.mark.parametrize(
    ("name", "snake"),
    [
        ("ThrottleTimeMs", "throttle_time_ms"),
        ("LastKnownElr", "last_known_elr"),
        ("SubscribedTopicRegex", "subscribed_topic_regex"),
        ("KRaftVersion", "k_raft_version"),
        ("From", "from_"),
    ],
)
def test_names_become_those_of_python(name: str, snake: str) -> None:
    assert snake_case(name) == snake
