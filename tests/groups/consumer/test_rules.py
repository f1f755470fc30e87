"""The rules of a consumer group as tables: epochs, commits, and the steps of a member towards its target.

Partitions of one topic; "01" are partitions 0 and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pytest
from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.ports import Committer
from group_coordinator.administration.requests import AlterGroupConfig
from group_coordinator.administration.settings import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS, altered
from group_coordinator.config import GroupConfig
from group_coordinator.consumer.rules import (
    Destination,
    away,
    check_commit,
    check_epoch,
    check_fetch,
    group_state,
    is_repetition,
    reconcile,
)
from group_coordinator.consumer.state import (
    ClassicMetadata,
    ConsumerMember,
    CurrentAssignment,
    Held,
    MemberState,
    Owned,
)
from group_coordinator.members import Epochs

OK = ErrorCode.NONE
TOPIC = b"t" * 16
STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED


def code_of(check: Callable[[], object]) -> ErrorCode:
    """Return the code of the refusal by a check, or OK."""
    try:
        check()
    except Refused as refused:
        return refused.code
    return OK


def held(numbers: str, epoch: int = 5) -> Held:
    return {TOPIC: {int(number): epoch for number in numbers}} if numbers else {}


def owned(numbers: str | None) -> Owned | None:
    return None if numbers is None else {TOPIC: frozenset(map(int, numbers))} if numbers else {}


def at(state: MemberState, epoch: int, assigned: str = "", revoke: str = "") -> CurrentAssignment:
    return CurrentAssignment(epoch, epoch - 1, state, held(assigned), held(revoke))


STEPS = [
    # current, target at epoch 10, held by others, owned -> state, epoch, assigned, to give up
    (at(STABLE, 10, "01"), "01", "", None, (STABLE, 10, "01", "")),
    (at(STABLE, 9, "01"), "01", "", None, (STABLE, 10, "01", "")),
    (at(STABLE, 9, "01"), "0123", "", None, (STABLE, 10, "0123", "")),
    (at(STABLE, 9, "01"), "0123", "3", None, (UNRELEASED, 10, "012", "")),
    (at(STABLE, 9, "01"), "0123", "23", None, (UNRELEASED, 10, "01", "")),
    (at(STABLE, 9, "01"), "0", "", None, (UNREVOKED, 9, "0", "1")),
    (at(STABLE, 9, "01"), "0", "", "01", (UNREVOKED, 9, "0", "1")),
    (at(STABLE, 9, "01"), "0", "", "0", (STABLE, 10, "0", "")),
    (at(STABLE, 9, "01"), "23", "", None, (UNREVOKED, 9, "", "01")),
    (at(STABLE, 9, "01"), "23", "", "", (STABLE, 10, "23", "")),
    (at(STABLE, 9, "01"), "", "", None, (UNREVOKED, 9, "", "01")),
    (at(UNREVOKED, 9, "0", "1"), "0", "", None, (UNREVOKED, 9, "0", "1")),
    (at(UNREVOKED, 9, "0", "1"), "0", "", "01", (UNREVOKED, 9, "0", "1")),
    (at(UNREVOKED, 9, "0", "1"), "02", "", "0", (STABLE, 10, "02", "")),
    (at(UNREVOKED, 9, "0", "1"), "02", "2", "0", (UNRELEASED, 10, "0", "")),
    (at(UNREVOKED, 9, "01", "2"), "0", "", "01", (UNREVOKED, 9, "0", "1")),
    # It gets back the partitions that it gave up and is meant to have after all: no other member had them meanwhile.
    (at(UNREVOKED, 9, "0", "1"), "01", "", "0", (STABLE, 10, "01", "")),
    (at(UNRELEASED, 10, "0"), "01", "1", None, (UNRELEASED, 10, "0", "")),
    (at(UNRELEASED, 10, "0"), "01", "", None, (STABLE, 10, "01", "")),
    (at(UNRELEASED, 9, "01"), "0", "", None, (UNREVOKED, 9, "0", "1")),
    (at(STABLE, 0), "01", "", "", (STABLE, 10, "01", "")),
    (at(STABLE, 0, "0"), "01", "", "", (STABLE, 10, "01", "")),
]


def destination(target: str, others: str, *, subscribed: bool = True) -> Destination:
    return Destination(
        epoch=10,
        share={TOPIC: tuple(map(int, target))} if target else {},
        is_free=lambda _topic, number: str(number) not in others,
        is_subscribed=lambda _topic: subscribed,
    )


def shown(assignment: CurrentAssignment) -> tuple[MemberState, int, str, str]:
    assigned, revoke = (
        "".join(map(str, sorted(each.get(TOPIC, ())))) for each in (assignment.assigned, assignment.pending_revocation)
    )
    return assignment.state, assignment.member_epoch, assigned, revoke


@pytest.mark.parametrize(("current", "target", "others", "said", "expected"), STEPS)
def test_a_step_towards_the_target(
    current: CurrentAssignment,
    target: str,
    others: str,
    said: str | None,
    expected: tuple[MemberState, int, str, str],
) -> None:
    after = reconcile(current, destination(target, others), owned(said))
    assert shown(after) == expected
    assert after is current or after.previous_member_epoch == current.member_epoch
    # Newly given partitions carry the epoch of the target, kept ones that of then.
    for number, epoch in after.assigned.get(TOPIC, {}).items():
        assert epoch == (5 if number in current.assigned.get(TOPIC, {}) else 10)


def test_a_second_step_without_anything_new_is_none() -> None:
    for current, target, others, said, _expected in STEPS:
        once = reconcile(current, destination(target, others), owned(said))
        again = reconcile(once, destination(target, others), None)
        assert again is reconcile(again, destination(target, others), None)


def test_who_must_give_up_and_drops_its_topic_gives_up_all_of_it() -> None:
    current = at(UNREVOKED, 9, "0", "1")
    after = reconcile(current, destination("", "", subscribed=False), None, is_subscription_new=True)
    assert shown(after) == (UNREVOKED, 9, "", "01")


CURRENT = CurrentAssignment(10, 9, STABLE, held("01", epoch=8), {})


@pytest.mark.parametrize(
    ("epoch", "said", "is_fenced"),
    [
        (10, None, False),
        (0, "", False),
        (11, None, True),
        (9, "01", False),
        (9, "0", False),
        (9, "", False),
        (9, None, True),
        (9, "02", True),
        (8, "0", True),
        (1, None, True),
    ],
)
def test_which_epochs_may_go_on(epoch: int, said: str | None, is_fenced: bool) -> None:
    expected = ErrorCode.FENCED_MEMBER_EPOCH if is_fenced else OK
    assert code_of(lambda: check_epoch(CURRENT, epoch, owned(said))) is expected


@pytest.mark.parametrize(
    ("epoch", "said", "is_fenced"), [(9, None, False), (9, "02", True), (8, None, True), (11, None, True)]
)
def test_one_that_crosses_the_new_epoch_need_not_say_what_it_owns(
    epoch: int, said: str | None, is_fenced: bool
) -> None:
    expected = ErrorCode.FENCED_MEMBER_EPOCH if is_fenced else OK
    assert code_of(lambda: check_epoch(CURRENT, epoch, owned(said), crosses=True)) is expected


@pytest.mark.parametrize(("epoch", "repeats"), [(10, False), (9, True), (0, False)])
def test_the_epoch_before_makes_it_a_repetition(epoch: int, repeats: bool) -> None:
    assert is_repetition(CURRENT, epoch) is repeats
    assert not is_repetition(replace(CURRENT, state=MemberState.UNKNOWN), epoch)


def why_fenced(current: CurrentAssignment, member_epoch: int) -> str:
    with pytest.raises(Refused) as refused:
        check_epoch(current, member_epoch, None)
    assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    return refused.value.message


def test_a_static_member_that_left_is_told_that_it_did() -> None:
    """It was at the epoch that it names, so nothing else may be said of it."""
    message = why_fenced(away(CURRENT), CURRENT.member_epoch)
    assert message.startswith("the static member said that it goes for a moment")
    with pytest.raises(Refused, match="said that it goes for a moment"):
        check_fetch(CONSUMER, away(CURRENT), Committer("m", CURRENT.member_epoch))


def test_of_another_epoch_nothing_is_said_but_where_it_lies() -> None:
    """A group that was deleted and made again begins with small epochs: a member may have been at a larger one."""
    assert "says it is at 11, which is ahead of that" in why_fenced(CURRENT, 11)
    assert "says it is at 3, which is too long ago" in why_fenced(CURRENT, 3)


CONSUMER = ConsumerMember(member_id="m")
CLASSIC = ConsumerMember(member_id="m", classic=ClassicMetadata(5_000, ()))


@pytest.mark.parametrize(
    ("member", "epoch", "number", "is_transactional", "expected"),
    [
        (None, 10, 0, False, ErrorCode.UNKNOWN_MEMBER_ID),
        (CONSUMER, 10, 0, False, OK),
        (CONSUMER, 10, 7, False, OK),
        (CONSUMER, 11, 0, False, ErrorCode.STALE_MEMBER_EPOCH),
        (CONSUMER, 9, 0, False, OK),
        (CONSUMER, 8, 0, False, OK),
        (CONSUMER, 7, 0, False, ErrorCode.STALE_MEMBER_EPOCH),
        (CONSUMER, 9, 7, False, ErrorCode.STALE_MEMBER_EPOCH),
        (CONSUMER, 9, 7, True, ErrorCode.ILLEGAL_GENERATION),
        (CONSUMER, 9, 0, True, OK),
        (CLASSIC, 10, 0, False, OK),
        (CLASSIC, 9, 0, False, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_an_older_epoch_may_commit_what_it_has_held_since(
    member: ConsumerMember | None, epoch: int, number: int, is_transactional: bool, expected: ErrorCode
) -> None:
    committer, partitions = Committer("m", epoch), [(TOPIC, number)]
    said = code_of(lambda: check_commit(member, CURRENT, committer, partitions, is_transactional=is_transactional))
    assert said is expected


@pytest.mark.parametrize(
    ("member", "epoch", "expected"),
    [
        (None, 10, ErrorCode.UNKNOWN_MEMBER_ID),
        (CONSUMER, 10, OK),
        (CONSUMER, 9, ErrorCode.STALE_MEMBER_EPOCH),
        (CLASSIC, 9, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_who_reads_offsets_is_at_its_epoch(member: ConsumerMember | None, epoch: int, expected: ErrorCode) -> None:
    assert code_of(lambda: check_fetch(member, CURRENT, Committer("m", epoch))) is expected


@pytest.mark.parametrize(
    ("epochs", "members", "expected"),
    [
        (Epochs(3, 0, 3), [], "Empty"),
        (Epochs(4, 0, 3), [at(STABLE, 3)], "Assigning"),
        (Epochs(3, 0, 3), [at(STABLE, 3), at(STABLE, 2)], "Reconciling"),
        (Epochs(3, 0, 3), [at(STABLE, 3), at(UNRELEASED, 3)], "Reconciling"),
        (Epochs(3, 0, 3), [at(STABLE, 3), at(STABLE, 3)], "Stable"),
    ],
)
def test_the_state_follows_from_the_epochs(epochs: Epochs, members: list[CurrentAssignment], expected: str) -> None:
    assert group_state(epochs, members) == expected


def after(before: Mapping[str, int], wanted: Mapping[str, int], unset: Iterable[str] = ()) -> Mapping[str, int]:
    command = AlterGroupConfig(group_id="g", wanted=tuple(wanted.items()), unset=frozenset(unset))
    return altered(before, command, GroupConfig())


@pytest.mark.parametrize(
    ("wanted", "unset"),
    [
        ({SESSION_TIMEOUT_MS: 44_999}, ()),
        ({SESSION_TIMEOUT_MS: 60_001}, ()),
        ({HEARTBEAT_INTERVAL_MS: 4_999}, ()),
        ({SESSION_TIMEOUT_MS: 50_000}, (SESSION_TIMEOUT_MS,)),
        ({"queue_session_timeout_ms": 50_000}, ()),
        ({}, ("nonsense",)),
    ],
)
def test_settings_of_a_group_stay_within_those_of_the_server(wanted: dict[str, int], unset: tuple[str, ...]) -> None:
    before = {SESSION_TIMEOUT_MS: 60_000}
    assert code_of(lambda: after(before, wanted, unset)) is ErrorCode.INVALID_CONFIG


def test_settings_of_a_group_are_replaced_one_by_one() -> None:
    before = {SESSION_TIMEOUT_MS: 60_000}
    both = {**before, HEARTBEAT_INTERVAL_MS: 15_000}
    assert after(before, {SESSION_TIMEOUT_MS: 50_000}) == {SESSION_TIMEOUT_MS: 50_000}
    assert after(before, {HEARTBEAT_INTERVAL_MS: 15_000}) == both
    assert after(both, {}, (SESSION_TIMEOUT_MS,)) == {HEARTBEAT_INTERVAL_MS: 15_000}
