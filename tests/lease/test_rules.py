"""The rules of the lease, step by step, on clocks that the test moves."""

from __future__ import annotations

import pytest

from coordinator_runtime.slate import lease as rules
from coordinator_runtime.slate.lease import LeaseState, Node, OwnerLease, ReadLease, Request, Standing, WriteLease
from coordinator_runtime.store import StoreRefused

TTL_MS = 9_000
A = Node(1, "run-a", "a:1")
B = Node(2, "run-b", "b:1")


class Bucket:
    """One object, whose tag is its content."""

    def __init__(self) -> None:
        self.found: tuple[OwnerLease, str] | None = None

    def put(self, lease: OwnerLease) -> str:
        self.found = lease, repr(lease)
        return self.found[1]

    def done(self, state: LeaseState, request: Request | None, now_ms: int) -> LeaseState:
        """A request that is sent, done and answered at this time."""
        assert request is not None
        state = rules.sending(state, request, now_ms)
        if isinstance(request, ReadLease):
            return rules.was_read(state, self.found, now_ms)
        if request.e_tag != (None if self.found is None else self.found[1]):
            return rules.was_refused(state)
        return rules.was_written(state, request, self.put(request.lease), now_ms)

    def next(self, state: LeaseState, now_ms: int) -> LeaseState:
        """What is due at this time, done."""
        return self.done(state, rules.next_request(state, now_ms), now_ms)


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def held(bucket: Bucket) -> LeaseState:
    """A holds the lease since 1,000."""
    return bucket.next(bucket.next(LeaseState(A, TTL_MS), 1_000), 1_000)


def watching(bucket: Bucket, now_ms: int) -> LeaseState:
    """B has seen the lease at this time for the first time."""
    return bucket.next(LeaseState(B, TTL_MS), now_ms)


def test_the_first_server_claims_a_lease_without_an_owner(bucket: Bucket, held: LeaseState) -> None:
    assert held.standing is Standing.HOLDING
    assert bucket.found is not None
    assert bucket.found[0] == OwnerLease(A, term=1, ttl_ms=TTL_MS, counter=1)


def test_a_holder_is_valid_for_nine_tenths_from_before_it_sent_the_write(held: LeaseState) -> None:
    assert held.is_valid(1_000 + 8_099)
    assert not held.is_valid(1_000 + 8_100)


def test_the_answer_of_a_write_that_came_late_gives_less_time(bucket: Bucket, held: LeaseState) -> None:
    request = rules.next_request(held, 4_000)
    assert isinstance(request, WriteLease)
    sent = rules.sending(held, request, 4_000)
    state = rules.was_written(sent, request, bucket.put(request.lease), 6_000)
    assert state.valid_until_ms == 4_000 + 8_100


def test_a_renewal_is_due_three_times_in_a_time_to_live_and_no_two_are_alike(bucket: Bucket, held: LeaseState) -> None:
    assert rules.next_request(held, 3_999) is None
    renewed = bucket.next(held, 4_000)
    assert bucket.found is not None
    assert bucket.found[0].counter == 2
    assert rules.wake_ms(renewed, 4_000) == 7_000


def test_another_server_takes_the_lease_only_after_it_was_unchanged_for_a_whole_time(
    bucket: Bucket, held: LeaseState
) -> None:
    state = watching(bucket, 5_000)
    assert isinstance(rules.next_request(state, 5_000 + TTL_MS - 1), ReadLease)
    state = bucket.next(state, 5_000 + TTL_MS)
    assert state.standing is Standing.HOLDING
    assert bucket.found is not None
    assert bucket.found[0].term == 2
    # By the time of the claim the former holder has long not been valid.
    assert not held.is_valid(5_000 + TTL_MS)


def test_a_renewal_begins_the_count_of_a_watcher_again(bucket: Bucket, held: LeaseState) -> None:
    state = watching(bucket, 3_900)
    bucket.next(held, 4_000)
    state = bucket.next(state, 12_000)
    assert not rules.is_claimable(state, 3_900 + TTL_MS)


def test_a_lost_answer_is_read_back_and_counts_from_the_write(bucket: Bucket, held: LeaseState) -> None:
    request = rules.next_request(held, 4_000)
    assert isinstance(request, WriteLease)
    bucket.put(request.lease)
    state = rules.was_lost(rules.sending(held, request, 4_000), 7_000)
    assert state.valid_until_ms == held.valid_until_ms
    assert rules.next_request(state, 7_000) is None
    state = bucket.next(state, 7_050)
    assert state.valid_until_ms == 4_000 + 8_100


def test_after_a_lost_renewal_that_was_not_done_the_next_is_due_at_once(bucket: Bucket, held: LeaseState) -> None:
    renewal = rules.next_request(held, 4_000)
    assert renewal is not None
    state = rules.was_lost(rules.sending(held, renewal, 4_000), 7_000)
    state = bucket.next(bucket.next(state, 7_050), 7_050)
    assert state.valid_until_ms == 7_050 + 8_100


def test_of_two_lost_renewals_the_one_that_was_done_counts(bucket: Bucket, held: LeaseState) -> None:
    first = rules.next_request(held, 4_000)
    assert isinstance(first, WriteLease)
    state = rules.was_lost(rules.sending(held, first, 4_000), 4_500)
    state = bucket.next(state, 4_550)
    second = rules.next_request(state, 4_550)
    assert isinstance(second, WriteLease)
    bucket.put(second.lease)
    state = rules.was_lost(rules.sending(state, second, 4_550), 6_000)
    assert bucket.next(state, 6_050).valid_until_ms == 4_550 + 8_100


def test_a_write_that_is_done_after_all_is_told_from_the_later_one(bucket: Bucket, held: LeaseState) -> None:
    """The first write has no answer, the look finds it not done, and it is done before the second."""
    first = rules.next_request(held, 4_000)
    assert isinstance(first, WriteLease)
    state = rules.was_lost(rules.sending(held, first, 4_000), 7_000)
    state = bucket.next(state, 7_050)
    second = rules.next_request(state, 8_000)
    assert isinstance(second, WriteLease)
    assert second.lease != first.lease
    state = rules.sending(state, second, 8_000)
    bucket.put(first.lease)
    state = bucket.next(rules.was_refused(state), 8_100)
    assert state.standing is Standing.HOLDING
    assert state.valid_until_ms == 4_000 + 8_100


def test_a_write_that_is_done_twice_is_not_taken_for_that_of_another(bucket: Bucket, held: LeaseState) -> None:
    request = rules.next_request(held, 4_000)
    assert isinstance(request, WriteLease)
    bucket.put(request.lease)
    state = rules.was_refused(rules.sending(held, request, 4_000))
    state = bucket.next(state, 4_100)
    assert state.standing is Standing.HOLDING


def test_a_holder_whose_time_is_over_has_ended_for_good(bucket: Bucket, held: LeaseState) -> None:
    state = rules.at(held, held.valid_until_ms)
    assert state.standing is Standing.ENDED
    assert rules.next_request(state, 1_000_000) is None
    renewal = rules.next_request(held, 4_000)
    assert isinstance(renewal, WriteLease)
    late = rules.sending(held, renewal, 4_000)
    state = rules.was_written(late, renewal, bucket.put(renewal.lease), held.valid_until_ms)
    assert state.standing is Standing.ENDED


def test_a_holder_that_finds_the_lease_of_another_has_ended(bucket: Bucket, held: LeaseState) -> None:
    bucket.put(OwnerLease(B, term=2, ttl_ms=TTL_MS, counter=2))
    state = bucket.next(rules.was_lost(rules.sending(held, ReadLease(), 2_000), 2_000), 2_050)
    assert state.standing is Standing.ENDED


def test_a_holder_whose_lease_was_removed_has_ended(bucket: Bucket, held: LeaseState) -> None:
    bucket.found = None
    state = bucket.next(rules.was_lost(rules.sending(held, ReadLease(), 2_000), 2_000), 2_050)
    assert state.standing is Standing.ENDED


def test_a_hand_over_ends_the_time_of_the_holder_before_it_is_written(bucket: Bucket, held: LeaseState) -> None:
    """The next server may hold the lease before the answer comes."""
    leaving = rules.hand_over(held)
    assert not leaving.is_valid(1_001)
    leaving = bucket.next(leaving, 1_100)
    assert leaving.standing is Standing.RELEASED
    state = watching(bucket, 1_200)
    state = bucket.next(state, 1_200)
    assert (state.standing, state.seen and state.seen.lease.term) == (Standing.HOLDING, 2)


def test_a_hand_over_beside_a_late_renewal_is_written_again(bucket: Bucket, held: LeaseState) -> None:
    renewal = rules.next_request(held, 4_000)
    assert isinstance(renewal, WriteLease)
    state = rules.hand_over(rules.was_lost(rules.sending(held, renewal, 4_000), 4_100))
    state = bucket.next(state, 4_150)
    free = rules.next_request(state, 4_150)
    bucket.put(renewal.lease)
    state = bucket.done(state, free, 4_200)
    state = bucket.next(bucket.next(state, 4_300), 4_400)
    assert state.standing is Standing.RELEASED
    assert bucket.found is not None
    assert bucket.found[0].is_free


def test_a_claim_that_is_known_too_late_is_made_again(bucket: Bucket) -> None:
    state = bucket.next(LeaseState(A, TTL_MS), 1_000)
    claim = rules.next_request(state, 1_000)
    assert isinstance(claim, WriteLease)
    state = rules.was_lost(rules.sending(state, claim, 1_000), 4_000)
    bucket.put(claim.lease)
    state = bucket.next(state, 1_000 + TTL_MS)
    assert state.standing is Standing.WAITING
    state = bucket.next(state, 1_000 + TTL_MS)
    assert (state.standing, state.seen and state.seen.lease.term) == (Standing.HOLDING, 2)


def test_of_two_that_claim_the_same_lease_one_gets_it(bucket: Bucket, held: LeaseState) -> None:
    others = [watching(bucket, 2_000), bucket.next(LeaseState(Node(3, "run-c", "c:1"), TTL_MS), 2_000)]
    now_ms = 2_000 + TTL_MS
    requests = [rules.next_request(each, now_ms) for each in others]
    done = [bucket.done(each, request, now_ms) for each, request in zip(others, requests, strict=True)]
    assert [each.standing for each in done] == [Standing.HOLDING, Standing.WAITING]


def test_a_server_that_waits_notices_a_living_one_with_its_number(bucket: Bucket, held: LeaseState) -> None:
    twin = Node(1, "run-t", "t:1")
    state = bucket.next(LeaseState(twin, TTL_MS), 2_000)
    # A lease alone may be that of its own former run.
    assert state.rival is None
    bucket.next(held, 4_000)
    state = bucket.next(state, 5_000)
    assert state.rival == A


def test_a_damaged_lease_is_refused_with_the_remedy() -> None:
    with pytest.raises(StoreRefused, match="owner/lease, cannot be read"):
        rules.decode_lease(b"{")


def test_a_server_that_waits_names_the_holder_until_the_lease_may_be_over(bucket: Bucket, held: LeaseState) -> None:
    waits = watching(bucket, 2_000)
    assert rules.owner_of(waits, 2_000 + TTL_MS - 1) == A
    assert rules.owner_of(waits, 2_000 + TTL_MS) is None
    # The holder renews it at 4,000, and the next look sees that.
    bucket.next(held, 4_000)
    assert rules.owner_of(bucket.next(waits, 5_000), 5_000 + TTL_MS - 1) == A


def test_no_owner_is_named_without_a_lease_or_after_a_hand_over(bucket: Bucket, held: LeaseState) -> None:
    assert rules.owner_of(LeaseState(B, TTL_MS), 0) is None
    waits = watching(bucket, 2_000)
    bucket.next(rules.hand_over(held), 3_000)
    assert rules.owner_of(bucket.next(waits, 3_500), 3_500) is None


def test_a_server_does_not_name_itself(held: LeaseState) -> None:
    # It holds the lease, and has not loaded its state yet.
    assert rules.owner_of(held, 1_000) is None


def test_passing_time_makes_no_server_an_owner(held: LeaseState) -> None:
    """The simulation rests on it: it compares the servers only after a state has changed."""
    for standing in Standing:
        state = rules.replace(held, standing=standing)
        valid = [state.is_valid(now_ms) for now_ms in range(0, 3 * TTL_MS, 100)]
        assert valid == sorted(valid, reverse=True)
