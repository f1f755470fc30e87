"""The level that a call counts towards, and the rates that it takes from, by the row of its method."""

from __future__ import annotations

from typing import Final

from coordinator_protocol.methods import MethodRule, Waits
from coordinator_runtime.ports import Level
from coordinator_server.traffic.quotas.rules import Rate

REQUEST_BYTES: Final = 1_000
"""Bytes for which a call without records counts as one more request. A list of ten thousand names is as much work as
some thousand small calls."""

_LEVELS: Final = {
    Waits.NOTHING: Level.CALLS,
    Waits.RECORDS: Level.LONG_POLLS,
    Waits.NEWS: Level.GROUP_WAITS,
    Waits.MEMBERS: Level.GROUP_WAITS,
}


def level_of(rule: MethodRule) -> Level:
    """Return the level that a call counts towards until it is answered."""
    return _LEVELS[rule.waits]


def rate_of(rule: MethodRule) -> Rate | None:
    """Return the rate of bytes that a call takes from besides requests: those of the request or of the answer."""
    if rule.brings_records:
        return Rate.PRODUCE_BYTES
    return Rate.FETCH_BYTES if rule.answers_records else None


def requests_in(rule: MethodRule, size_bytes: int) -> int:
    """Return the number of requests that a call of this size counts as."""
    return 1 if rule.brings_records else 1 + size_bytes // REQUEST_BYTES
