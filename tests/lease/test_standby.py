"""What an owner knows of the server that waits."""

from __future__ import annotations

import msgspec

from coordinator_runtime.slate.lease import Node
from coordinator_runtime.slate.standby import Standby, known_standby, seen_again

TTL_MS = 9_000
OWNER = Node(1, "run-a", "a:1")
WAITS = Node(2, "run-b", "b:1", ("b:9092",))


def content(counter: int, node: Node = WAITS) -> bytes:
    return msgspec.json.encode(Standby(node, counter))


def test_a_server_that_says_again_and_again_that_it_waits_is_known() -> None:
    seen = seen_again(None, content(1), 1_000)
    seen = seen_again(seen, content(2), 20_000)
    assert known_standby(seen, OWNER, TTL_MS, 20_000 + 3 * TTL_MS - 1) == WAITS


def test_a_server_that_is_silent_for_three_times_to_live_is_gone() -> None:
    seen = seen_again(None, content(1), 1_000)
    seen = seen_again(seen, content(1), 20_000)
    assert known_standby(seen, OWNER, TTL_MS, 1_000 + 3 * TTL_MS) is None


def test_an_owner_does_not_take_its_own_object_for_another_server() -> None:
    own = msgspec.structs.replace(OWNER, run="former-run")
    assert known_standby(seen_again(None, content(1, own), 1_000), OWNER, TTL_MS, 1_000) is None


def test_no_object_or_a_damaged_one_is_no_server() -> None:
    assert known_standby(seen_again(None, None, 1_000), OWNER, TTL_MS, 1_000) is None
    assert seen_again(None, b"{", 1_000) is None
