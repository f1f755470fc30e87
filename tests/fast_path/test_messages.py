"""Messages of common calls, and what is unusual among them: the fast path takes what is for it, and leaves the same as
the general path."""

from __future__ import annotations

import pytest
from hypothesis import given

from coordinator_protocol.acls import Permission, ResourceType
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.ports import CallContext
from coordinator_runtime.runtime import RuntimeLimits
from tests.fast_path.calls import IDS, NEW_IDS, Call
from tests.fast_path.histories import HISTORY, OPTIONS
from tests.fast_path.side import CALLERS
from tests.fast_path.taking import Taken
from tests.fast_path.twins import Step, Twins
from tests.harness.entries import Reading
from tests.harness.inside import WorldOptions

OK = ErrorCode.NONE


def begun(options: WorldOptions | None = None) -> Twins:
    """Twins whose producers have just come."""
    twins = Twins(options or WorldOptions())
    twins.init(*IDS)
    return twins


def transact(name: str, *partitions: str, group: str = "", epoch: int = 0, damage: str = "") -> Call:
    groups = (group,) if group else ()
    return Call("Transact", name, partitions or ("t-0",), groups, epoch=epoch, damage=damage)


def read(twins: Twins) -> Reading:
    """Read the first partition as a committed reader, the same from either server."""
    one, other = [side.world.read("t-0") for side in twins.sides]
    assert one == other
    return one


def values(twins: Twins) -> list[str]:
    """The values that it is shown: id, and number of the call."""
    return list(read(twins).values)


def test_a_message_of_common_calls_is_taken_as_a_whole(taken: Taken) -> None:
    twins = begun()
    for _ in range(3):
        twins.send(*(transact(name, "t-0", "t-1") for name in IDS))
        twins.settle()
    assert taken.ids() == [*IDS] * 3
    assert values(twins) == [f"{name}{3 * turn + n + 1}" for turn in range(3) for n, name in enumerate(IDS)]


def test_offsets_of_a_group_are_committed_with_the_records(taken: Taken) -> None:
    twins = begun()
    for _ in range(2):
        twins.send(*(transact(name, group="g") for name in IDS))
        twins.settle()
    # The first of all makes the group, which is reported.
    assert taken.ids() == ["b", "c", *IDS]


def test_what_is_unusual_keeps_its_place(taken: Taken) -> None:
    twins = begun()
    twins.send(
        transact("a"),
        Call("Transact", "b", committed=False),
        transact("c"),
        transact("a"),
        transact("a", epoch=-2),
        transact("c", "t-0", "t-0"),
    )
    twins.settle()
    assert taken.ids() == ["a", "c", "a"]


def test_a_group_of_commits_is_as_large_as_without_a_fast_path(taken: Taken) -> None:
    twins = Twins(WorldOptions(runtime_limits=RuntimeLimits(group_bytes_max=9_000, undurable_bytes_max=90_000)))
    names = NEW_IDS[:15]
    twins.init(*names)
    for _ in range(12):
        twins.send(*(transact(name, "t-0", "t-1") for name in names))
    twins.compare()
    twins.settle()
    assert set(taken.ids()[:15]) < set(names), "some of a message fill the group"
    assert ErrorCode.THROTTLING_QUOTA_EXCEEDED in twins.clients.codes("Transact"), "some are throttled"


def test_a_zombie_is_fenced(taken: Taken) -> None:
    twins = begun()
    twins.send(transact("a"))
    twins.init("a")
    twins.send(transact("a", epoch=-1))
    twins.send(transact("a", epoch=-2))
    twins.send(transact("a", epoch=1))
    twins.send(transact("a"))
    twins.settle()
    assert taken.ids() == ["a", "a"]
    assert values(twins) == ["a1", "a5"]


class Wardens:
    """Keeps one principal from a topic and an id, and notes each refusal."""

    def __init__(self) -> None:
        self.refused: list[tuple[str, str]] = []

    def is_allowed(self, context: CallContext, _permission: Permission, resource: ResourceType, name: str) -> bool:
        return context.principal != CALLERS[1] or name not in ("t", "a")

    def on_refused(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> None:
        self.refused.append((context.principal, name))


def test_who_may_not_is_told_so_once(taken: Taken) -> None:
    wardens = Wardens()
    twins = begun(WorldOptions(authorizer=wardens))
    twins.send_mixed((0, transact("a")), (1, transact("b", "gone-0")))
    twins.settle()
    twins.send_mixed(
        (1, transact("c", "gone-0")), (1, transact("b")), (1, transact("c", "gone-0")), (1, transact("a", "gone-0"))
    )
    twins.settle()
    # Another caller than that of the calls before begins a message of his own.
    assert taken.ids() == ["a", "b", "c", "c"]
    q = CALLERS[1]
    assert sorted(wardens.refused) == [(q, "a"), (q, "a"), (q, "t"), (q, "t")], "by either server, once"


@pytest.mark.parametrize("said", ["no request id", "version 1", "client id"])
def test_what_a_header_says_counts(said: str) -> None:
    twins = begun()
    for _ in range(2):
        twins.send(transact("a"), transact("b"))
        twins.settle()
    twins.send(transact("a"), transact("b", damage=said))
    twins.settle()


def test_offsets_of_no_topic_refuse_all_of_it(taken: Taken) -> None:
    twins = begun()
    twins.send(transact("a", group="g"))
    twins.send(
        transact("a", group="g", damage="offset of no topic"), transact("b", group="g", damage="offset of no partition")
    )
    twins.settle()
    assert taken.ids() == []
    assert values(twins) == ["a1"]


def test_readers_wait_for_earlier_calls(taken: Taken) -> None:
    twins = begun()
    twins.send(transact("b", "t-0", "t-1"))
    twins.send(Call("Produce", "a"))
    twins.send(transact("b", "t-0", "t-1"), transact("c", "t-1", "t-0"))
    twins.settle()
    assert taken.ids() == ["b", "b", "c"]
    assert read(twins).last_stable_offset == 2
    twins.send(Call("EndTxn", "a"))
    twins.settle()
    assert values(twins) == ["b1", "a2", "b3", "c4"]


def test_what_a_partition_refuses_is_refused(taken: Taken) -> None:
    twins = begun()
    of_another = Marker(
        producer_id=twins.clients.identities["b"][0],
        txn_epoch=0,
        next_epoch=0,
        coordinator_shard=twins.with_lane.shard_of("b").number,
        coordinator_epoch=99,
        outcome=Outcome.ABORT,
        csn=1,
    )
    twins.do(lambda world: world.send_marker("t-1", of_another))
    twins.settle()
    twins.send(Call("Transact", "a", sequence=1), transact("b", "t-0", "t-1"), transact("c"))
    twins.settle()
    assert taken.ids() == ["c"]
    assert values(twins) == ["c3"]


def test_one_id_ends_one_transaction_at_a_time(taken: Taken) -> None:
    twins = begun()
    twins.send(transact("a"), transact("a", epoch=-1), transact("a", "t-1"))
    twins.settle()
    # The last one follows on the first, by the general path or behind it.
    assert taken.ids()[0] == "a"
    assert [code is OK for code in twins.clients.codes("Transact")] == [True, False, True]


def test_a_partition_may_be_named_in_two_ways(taken: Taken) -> None:
    twins = begun()
    twins.send(
        transact("a", "t-0", "t-1"),
        transact("b", "t-1", "t-0", damage="topic by id"),
        transact("c", "t-1", damage="partition by both names"),
    )
    twins.settle()
    assert taken.ids() == ["a", "b"]


def test_no_call_overtakes_a_payload_that_is_checked_elsewhere(taken: Taken) -> None:
    twins = begun()
    twins.live(Step("hold_checks", (True,)))
    twins.send(
        transact("a", damage="many records"),
        transact("a", "words-0"),
        transact("b", damage="payload"),
        transact("b", "words-0"),
    )
    twins.settle()
    twins.live(Step("hold_checks", (False,)))
    twins.settle()
    assert taken.ids() == ["b"]
    assert [code is OK for code in twins.clients.codes("Transact")] == [False, True, False, True]


@given(OPTIONS, HISTORY)
def test_random_histories_come_to_the_same(options: WorldOptions, history: list[Step]) -> None:
    """After every step, and the store rebuilds it in the end."""
    twins = begun(options)
    for step in history:
        twins.live(step)
        twins.compare()
    twins.settle()
    twins.with_lane.check_replay()
    twins.with_lane.check_stored()
