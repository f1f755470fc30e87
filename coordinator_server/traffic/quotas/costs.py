"""What a call of each method counts as. Which of them are never refused, both ends agree on:
`coordinator_protocol.throttling`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from coordinator_protocol.errors import Method
from coordinator_protocol.throttling import FETCHING, NEVER_REFUSED, PRODUCING
from coordinator_runtime.ports import Level
from coordinator_server.traffic.admission import LONG_POLLS, MEMBER_WAITS, NEWS_WAITS
from coordinator_server.traffic.quotas.rules import Rate


class Cost(Struct, frozen=True):
    """What a call counts as."""

    level: Level
    """What it holds one of until it is answered."""
    rate: Rate | None
    """What it takes of, beside one request: bytes that it brings, or that its answer brings."""
    may_be_refused: bool


REQUEST_BYTES: Final = 1_000
"""A call that brings no records counts as one more request for so many bytes: a list of ten thousand names is as much
work as some thousand small calls."""


def requests_in(cost: Cost, size_bytes: int) -> int:
    """How many requests a call of so many bytes counts as."""
    return 1 if cost.rate is Rate.PRODUCE_BYTES else 1 + size_bytes // REQUEST_BYTES


def _cost(method: Method) -> Cost:
    level = Level.CALLS
    if method in LONG_POLLS:
        level = Level.LONG_POLLS
    elif method in NEWS_WAITS | MEMBER_WAITS:
        level = Level.GROUP_WAITS
    rate = Rate.PRODUCE_BYTES if method in PRODUCING else Rate.FETCH_BYTES if method in FETCHING else None
    return Cost(level, rate, method not in NEVER_REFUSED)


COSTS: Final[Mapping[str, Cost]] = {method: _cost(method) for method in Method}
