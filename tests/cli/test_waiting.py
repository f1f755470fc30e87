"""The messages of `txnctl --wait` while it waits, and its end, on a clock that only its pauses move."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from tests.harness.manual_clock import ManualClock
from txnctl.commands.waiting import look_for_work, wait_while


class PausingClock(ManualClock):
    """Time passes in pauses and in looks, and nowhere else."""

    __slots__ = ("pauses",)

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[int] = []

    def pause(self, wait_ms: int) -> None:
        self.pauses.append(wait_ms)
        self.advance(wait_ms)

    def take(self, *_unused: object) -> None:
        raise AssertionError("nothing is taken from an inbox")


def waited(*found: str | None, wait_ms: int = 60_000, look_takes_ms: int = 0) -> tuple[list[str], list[int], int]:
    """Wait for looks that find these, the last one again and again; return the messages, the pauses, and the total
    time."""
    clock, said, looks = PausingClock(), list[str](), list(found)
    began_ms = clock.monotonic_ms()

    def look(timeout_ms: int) -> str | None:
        assert 0 < timeout_ms <= wait_ms
        clock.advance(min(look_takes_ms, timeout_ms))
        return looks.pop(0) if len(looks) > 1 else looks[0]

    wait_while(look, wait_ms=wait_ms, clock=clock, note=said.append)
    return said, clock.pauses, clock.monotonic_ms() - began_ms


def test_a_server_that_takes_work_is_not_waited_for() -> None:
    assert waited(None) == ([], [], 0)


def test_each_change_is_said_once() -> None:
    said, pauses, _ = waited("no server", "no server", "loads", "loads", None)
    assert said == [
        "no server; waiting for at most 1m00s more",
        "loads; waiting for at most 59.9s more",
    ]
    assert pauses == [50, 100, 200, 400]


def test_a_long_wait_says_so_every_ten_seconds_and_ends_in_time() -> None:
    said, pauses, took_ms = waited("loads", wait_ms=35_000)
    assert said == [f"loads; waiting for at most {left} more" for left in ("35.0s", "24.8s", "14.8s", "4.8s")]
    assert max(pauses) == 500
    assert took_ms == 35_000


def test_looks_that_take_long_end_in_time_too() -> None:
    assert waited("silent", wait_ms=4_000, look_takes_ms=1_500)[2] == 4_000


class Failing(grpc.RpcError):
    """A health check that ended with a status of gRPC."""

    def __init__(self, status: grpc.StatusCode) -> None:
        self._status = status

    def code(self) -> grpc.StatusCode:
        return self._status


@pytest.mark.parametrize(
    ("status", "waits"),
    [
        (grpc.StatusCode.UNAVAILABLE, True),
        (grpc.StatusCode.DEADLINE_EXCEEDED, True),
        (grpc.StatusCode.UNIMPLEMENTED, False),
        (grpc.StatusCode.UNAUTHENTICATED, False),
    ],
)
def test_a_server_that_does_not_tell_its_health_yet_is_waited_for(status: grpc.StatusCode, *, waits: bool) -> None:
    def check(*_asked: object, **_how: object) -> Any:
        raise Failing(status)

    channel = cast("grpc.Channel", SimpleNamespace(unary_unary=lambda *_method, **_codec: check))
    look = look_for_work("here:7070", lambda _timeout_ms: None, channel)
    assert (look(1_000) is not None) is waits
