"""What an owner knows of the server that waits."""

from __future__ import annotations

import msgspec

from coordinator_runtime.slate.lease import LeaseState, Node, OwnerLease, was_read
from coordinator_runtime.slate.standby import Standby, other_server, seen_again
from coordinator_server.store_lease import address_at_listener

TTL_MS = 9_000
OWNER = Node(1, "run-a", "a:1")
WAITS = Node(2, "run-b", "b:1", ("b:9092",))
FORMER = Node(3, "run-c", "c:1")
LEASE = LeaseState(OWNER, TTL_MS)


def content(counter: int, node: Node = WAITS) -> bytes:
    return msgspec.json.encode(Standby(node, counter))


def test_a_server_that_says_again_and_again_that_it_waits_is_known() -> None:
    seen = seen_again(None, content(1), 1_000)
    seen = seen_again(seen, content(2), 20_000)
    assert other_server(seen, LEASE, 20_000 + 3 * TTL_MS - 1) == WAITS


def test_a_server_that_is_silent_for_three_times_to_live_is_gone() -> None:
    seen = seen_again(None, content(1), 1_000)
    seen = seen_again(seen, content(1), 20_000)
    assert other_server(seen, LEASE, 1_000 + 3 * TTL_MS) is None


def test_an_owner_does_not_take_its_own_object_for_another_server() -> None:
    own = msgspec.structs.replace(OWNER, run="former-run")
    assert other_server(seen_again(None, content(1, own), 1_000), LEASE, 1_000) is None


def test_no_object_or_a_damaged_one_is_no_server() -> None:
    assert other_server(seen_again(None, None, 1_000), LEASE, 1_000) is None
    assert seen_again(None, b"{", 1_000) is None


def test_a_new_owner_names_the_former_one_until_another_server_waits() -> None:
    lease = was_read(LEASE, (OwnerLease(FORMER, 1, TTL_MS, 1), "tag-1"), 1_000)
    lease = was_read(lease, (OwnerLease(OWNER, 2, TTL_MS, 2), "tag-2"), 20_000)
    assert other_server(None, lease, 20_000) == FORMER
    seen = seen_again(None, content(1, OWNER), 20_000)
    assert other_server(seen, lease, 20_000) == FORMER, "its own object says nothing"
    assert other_server(seen_again(seen, content(1), 21_000), lease, 21_000) == WAITS


def test_an_earlier_run_of_the_owner_is_no_other_server() -> None:
    lease = was_read(LEASE, (OwnerLease(msgspec.structs.replace(OWNER, run="run-0"), 1, TTL_MS, 1), "tag"), 1_000)
    assert other_server(None, lease, 1_000) is None


def test_listeners_of_two_servers_correspond_by_their_order() -> None:
    me = msgspec.structs.replace(OWNER, kafka_addresses=("a:9092", "a:9093"))
    assert address_at_listener(me, "a:9092", WAITS) == "b:9092"
    assert address_at_listener(me, "a:9093", WAITS) is None, "the other server has one listener"
    assert address_at_listener(me, "a:9094", WAITS) is None, "this server has no such listener"
