"""The two modules that read a clock or draw random numbers, and the clock of the tests beside the real one."""

from __future__ import annotations

from base64 import urlsafe_b64decode

import pytest

from coordinator_runtime.clock import Clock, SystemClock
from coordinator_runtime.identity import new_uuid, uuid_text
from tests.harness.manual_clock import ManualClock

YEAR_2020_MS = 1_577_836_800_000
YEAR_2200_MS = 7_258_118_400_000


@pytest.mark.parametrize("clock", [SystemClock(), ManualClock()])
def test_clocks_count_milliseconds(clock: Clock) -> None:
    assert YEAR_2020_MS < clock.wall_ms() < YEAR_2200_MS
    assert 0 <= clock.monotonic_ms() <= clock.monotonic_ms()


def test_a_manual_clock_moves_only_by_hand() -> None:
    clock = ManualClock(wall_ms=1000, monotonic_ms=5)
    clock.advance(10)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1010, 15)
    clock.step_wall(-500)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (510, 15)
    with pytest.raises(AssertionError, match="time does not go back"):
        clock.advance(-1)


def test_new_uuids_differ_and_their_text_leads_back() -> None:
    made = {new_uuid() for _ in range(1000)}
    assert len(made) == 1000
    for value in made:
        text = uuid_text(value)
        assert len(text) == 22
        assert not text.startswith("-")
        assert urlsafe_b64decode(text + "==") == value


def test_uuid_text_is_what_kafka_prints() -> None:
    # Kafka's Uuid.ONE_UUID.
    assert uuid_text((1).to_bytes(16, "big")) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_text(b"\xff" * 16) == "_____________________w"
