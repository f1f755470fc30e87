"""ShareFetch and what happens around it: restores, retention, full answers, lost permissions, conversions."""

from __future__ import annotations

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.ports import AllowAll, CallContext, Connection, NoAnswerLimit, Permission, ResourceType
from partition_log.catalog.settings import Retention
from tests.groups.share_partitions.pictures import picture
from tests.harness.group_world import group_world
from tests.harness.groups import GROUP, OK, code
from tests.harness.share_consumers import ACCEPT, RELEASE, ShareConsumer, alter_shares, response_of, share_consumer
from tests.harness.share_partitions import Shares
from tests.harness.world import World


def reading(*names: str, **options: object) -> tuple[World, list[ShareConsumer]]:
    world = group_world(topics={"t": 1}, **options)
    alter_shares(world, auto_offset_reset="earliest")
    return world, [share_consumer(world, name, "t") for name in names]


def test_after_a_restore_log_and_outcomes_are_of_one_moment() -> None:
    world, (a,) = reading("a")
    shares = Shares(world, "t-0", GROUP)
    shares.produce(4)
    a.fetch()
    assert a.acknowledge("t-0", (0, 0, ACCEPT), (2, 2, RELEASE)) is OK
    backup = world.back_up()
    assert a.acknowledge("t-0", (1, 1, ACCEPT)) is OK
    shares.produce(3)
    world.restore(backup)
    world.settle()
    b = share_consumer(world, "b", "t")
    assert b.fetch() == {"t-0": [1, 2, 3]}
    assert b.counts() == {1: 1, 2: 2, 3: 1}
    assert code(a.asks()) is ErrorCode.SHARE_SESSION_NOT_FOUND
    Shares(world, "t-0", GROUP).produce(2)
    assert b.fetch() == {"t-0": [4, 5]}
    assert b.acknowledge("t-0", (1, 5, ACCEPT)) is OK
    state = Shares(world, "t-0", GROUP).state
    assert (state.start_offset, state.leader_epoch) == (6, shares.head.leadership.epoch)
    assert state.leader_epoch > 0
    world.check_replay()
    world.check_stored()


def test_what_retention_removes_is_not_handed_out() -> None:
    world, (a,) = reading("a", retention=Retention(1_000, -1), removal_interval_ms=500)
    shares = Shares(world, "t-0", GROUP)
    shares.produce(3)
    assert a.fetch() == {"t-0": [0, 1, 2]}
    assert a.acknowledge("t-0", (1, 2, RELEASE)) is OK
    world.pass_time(2_000)
    shares.produce(2)
    world.pass_time(600)
    assert shares.head.log_start_offset == 3
    assert a.fetch() == {"t-0": [3, 4]}
    assert shares.state.start_offset == 3
    assert a.acknowledge("t-0", (0, 0, ACCEPT), (3, 4, ACCEPT)) is OK
    assert picture(shares.state) == "5:"


class _Full(NoAnswerLimit):
    """No answer may be made."""

    def check(self, _connection: Connection) -> None:
        raise Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "full")


class _Counting(NoAnswerLimit):
    """Counts what waits for the disk."""

    def __init__(self) -> None:
        self.held = 0
        self.most = 0

    def hold(self, _connection: Connection, size_bytes: int) -> None:
        self.held += size_bytes
        self.most = max(self.most, self.held)

    def release(self, _connection: Connection, size_bytes: int) -> None:
        self.held -= size_bytes


def test_a_fetch_that_is_woken_without_capacity_acquires_nothing() -> None:
    world, (a,) = reading("a")
    asked = a.fetching(max_wait_ms=10_000)
    world.settle()
    world.inside.log.fetcher.answer_limit = _Full()
    Shares(world, "t-0", GROUP).produce(1)
    assert a.acquired(response_of(asked)) == {}
    world.inside.log.fetcher.answer_limit = NoAnswerLimit()
    assert a.fetch() == {"t-0": [0]}


def test_batches_that_wait_for_the_disk_count_as_an_answer() -> None:
    world, (a,) = reading("a")
    shares = Shares(world, "t-0", GROUP)
    shares.produce(1, 200)
    a.fetch(max_records=1)
    world.inside.log.fetcher.answer_limit = limit = _Counting()
    asked = a.fetching({"t-0": [(0, 0, ACCEPT)]})
    assert not asked.is_settled
    assert limit.held > 200
    world.settle()
    assert (limit.held, limit.most > 200) == (0, True)


class _Rights(AllowAll):
    """Everything is allowed but, at times, to read topics."""

    may_read = True

    def is_allowed(self, _context: CallContext, permission: Permission, resource: ResourceType, _name: str) -> bool:
        return self.may_read or (permission, resource) != (Permission.READ, ResourceType.TOPIC)


def test_who_may_not_read_any_more_gets_nothing() -> None:
    rights = _Rights()
    world, (a,) = reading("a", authorizer=rights)
    first = a.fetching(max_wait_ms=10_000)
    world.settle()
    rights.may_read = False
    Shares(world, "t-0", GROUP).produce(1)
    assert [code(each) for each in response_of(first).results] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    rights.may_read = True
    second = a.fetching(partitions=["t-0"], max_wait_ms=10_000)
    world.settle()
    assert a.acquired(response_of(second)) == {"t-0": [0]}
