"""Settings of share groups: numbers with bounds, words, and what the delivery of records is told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import ErrorCode
from group_coordinator.administration.settings import GroupSettings, ShareSettings
from group_coordinator.administration.words import EARLIEST, LATEST, OFFSET_RESETS, duration_ms, duration_text
from tests.harness.groups import GROUP, OK
from tests.harness.share_groups import ShareGroups, share_groups

VALUES: dict[str, tuple[Any, ...]] = {
    "share_session_timeout_ms": (60_000, 44_999, 60_001),
    "share_heartbeat_interval_ms": (15_000, 4_999, 15_001),
    "share_record_lock_duration_ms": (15_000, 14_999, 60_001),
    "share_delivery_count_limit": (10, 1, 11),
    "share_partition_max_record_locks": (100, 99, 4_001),
    "share_auto_offset_reset": ("earliest", "newest", "by_duration:P1Y", "by_duration:", "by_duration:-PT1S", 5),
    "share_isolation_level": ("read_committed", "committed", 1),
    "share_renew_acknowledge_enable": ("false", "yes", 1),
    "share_dead_letter_topic": ("foo", "no topic", "missing", "__of_the_system", 1),
}
"""A value that is allowed, and some that are not."""


def told(shares: ShareGroups) -> ShareSettings:
    inside = shares.world.inside
    settings: GroupSettings = inside.runtime.shard(inside.groups.router.shard_key(GROUP)).part(GroupSettings)
    return settings.of_shares(GROUP)


@pytest.mark.parametrize("name", VALUES)
def test_a_setting_has_bounds_or_words(name: str) -> None:
    shares = share_groups()
    good, *bad = VALUES[name]
    for value in (*bad, str(good) if isinstance(good, int) else 0):
        assert shares.alter(**{name: value}) is ErrorCode.INVALID_CONFIG
    assert shares.alter(**{name: good}) is OK
    shares.world.restart()
    (config,) = shares.world.ask(group_pb2.DescribeGroupConfigsRequest(group_id=GROUP)).configs
    assert (config.name, config.text if config.HasField("text") else config.value) == (name, good)
    assert config.HasField("text") == isinstance(good, str)


def test_what_the_delivery_of_records_is_told() -> None:
    shares = share_groups()
    assert told(shares) == ShareSettings(30_000, 5, 2_000, LATEST, is_read_committed=False, is_renew_enabled=True)
    for name, (good, *_bad) in VALUES.items():
        assert shares.alter(**{name: good}) is OK
    after = ShareSettings(15_000, 10, 100, EARLIEST, is_read_committed=True, is_renew_enabled=False)
    assert told(shares) == replace(after, dead_letter_topic="foo")
    shares.alter(share_auto_offset_reset="by_duration:PT1H0.5S")
    assert told(shares).auto_offset_reset == 3_600_500


def test_a_heartbeat_keeps_the_session_alive_or_is_refused() -> None:
    shares = share_groups(share_heartbeat_interval_ms_max=60_000)
    assert shares.alter(share_heartbeat_interval_ms=45_000) is ErrorCode.INVALID_CONFIG
    assert shares.alter(share_heartbeat_interval_ms=45_000, share_session_timeout_ms=45_001) is OK


DURATIONS = {
    "PT0S": 0,
    "P1D": 86_400_000,
    "P2DT3H4M5.006S": 2 * 86_400_000 + 3 * 3_600_000 + 4 * 60_000 + 5_006,
    "PT0.5S": 500,
    "P": None,
    "PT": None,
    "P1M": None,
    "PT1": None,
    "PT1.S": None,
    "1S": None,
    "pt1s": None,
}


@pytest.mark.parametrize("text", DURATIONS)
def test_durations(text: str) -> None:
    assert duration_ms(text) == DURATIONS[text]


@given(st.integers(0, 10**14))
def test_an_age_is_shown_as_it_is_read(length_ms: int) -> None:
    assert duration_ms(duration_text(length_ms)) == length_ms
    assert OFFSET_RESETS.read(OFFSET_RESETS.show(length_ms)) == length_ms
