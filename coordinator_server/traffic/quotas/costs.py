"""The level that a call holds one of, and the rates that it takes of, from the row of its method."""

from __future__ import annotations

from typing import Final

from coordinator_protocol.methods import MethodRule, Waits
from coordinator_runtime.ports import Level
from coordinator_server.traffic.quotas.rules import Rate

REQUEST_BYTES: Final = 1_000
"""A call that brings no records counts as one more request for so many bytes: a list of ten thousand names is as much
work as some thousand small calls."""

_LEVELS: Final = {
    Waits.NOTHING: Level.CALLS,
    Waits.RECORDS: Level.LONG_POLLS,
    Waits.NEWS: Level.GROUP_WAITS,
    Waits.MEMBERS: Level.GROUP_WAITS,
}


def level_of(rule: MethodRule) -> Level:
    """The level that a call holds one of until it is answered."""
    return _LEVELS[rule.waits]


def rate_of(rule: MethodRule) -> Rate | None:
    """The rate that a call takes of beside one request: bytes that it brings, or that its answer brings."""
    if rule.brings_records:
        return Rate.PRODUCE_BYTES
    return Rate.FETCH_BYTES if rule.answers_records else None


def requests_in(rule: MethodRule, size_bytes: int) -> int:
    """The number of requests that a call of so many bytes counts as."""
    return 1 if rule.brings_records else 1 + size_bytes // REQUEST_BYTES
