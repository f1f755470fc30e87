"""Random histories for two servers to live through."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import structlog
from hypothesis import strategies as st

from coordinator_protocol.acls import Acl, Permission, PermissionType, ResourceType
from coordinator_protocol.limits import EPOCH_MAX
from coordinator_runtime.ports import ALLOW_ALL, CallContext
from coordinator_runtime.runtime import RuntimeLimits
from coordinator_server.traffic.admission import AdmissionLimits
from tests.fast_path.calls import (
    ABSENT,
    GROUPS,
    IDS,
    MEMBERS,
    NEW_IDS,
    PARTITIONS,
    REBALANCING,
    STRANGER,
    Call,
)
from tests.fast_path.damages import DAMAGES, INIT_DAMAGES
from tests.fast_path.side import CALLERS
from tests.fast_path.twins import Step
from tests.harness.guarded import Guarded
from tests.harness.inside import WorldOptions
from txn_coordinator.config import TwoPhase


def often(usual: Any, *seldom: Any, times: int = 8) -> st.SearchStrategy[Any]:
    """One value many times as often as each of the others."""
    return st.sampled_from((usual,) * times + seldom)


def mixed(weights: dict[st.SearchStrategy[Any], int]) -> st.SearchStrategy[Any]:
    """One of several, as often as its weight says. (`st.one_of` takes what it is given twice for one.)"""
    return st.sampled_from([strategy for strategy, weight in weights.items() for _ in range(weight)]).flatmap(
        lambda strategy: strategy
    )


_GOOD_PARTITIONS = st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=3, unique=True).map(tuple)
_ANY_PARTITIONS = st.lists(st.sampled_from((*PARTITIONS, *ABSENT)), max_size=4).map(tuple)

_MEMBER = st.sampled_from((*MEMBERS * 3, STRANGER))
_ONE_GROUP = often((), *((group,) for group in (*GROUPS, REBALANCING)), times=3)
GOOD_TRANSACT = st.builds(
    Call,
    kind=st.just("Transact"),
    name=st.sampled_from(IDS),
    partitions=_GOOD_PARTITIONS,
    groups=_ONE_GROUP,
    member=_MEMBER,
)
ODD_TRANSACT = st.builds(
    Call,
    kind=st.just("Transact"),
    name=st.sampled_from(IDS),
    partitions=_GOOD_PARTITIONS,
    damage=st.sampled_from((*DAMAGES,)),
)
"""One thing is wrong with it, and nothing hides that."""
ODD_PRODUCE, ODD_ADD = (
    st.builds(
        Call,
        kind=st.just(kind),
        name=st.sampled_from(IDS),
        partitions=_GOOD_PARTITIONS,
        damage=st.sampled_from((*DAMAGES,)),
        version=st.sampled_from((1, 2)),
    )
    for kind in ("Produce", "AddPartitionsToTxn")
)
INIT = st.builds(
    Call,
    kind=st.just("InitProducerId"),
    name=st.sampled_from((*IDS, *NEW_IDS)),
    sequence=often(0, 1, times=10),
    repeats=often(False, True, times=5),
    damage=often("", "version 1", "no request id", *INIT_DAMAGES, times=4 * len(INIT_DAMAGES)),
)
"""Most are such as a fast path takes."""
ANY_CALL = st.builds(
    Call,
    kind=st.sampled_from(
        ("Transact",) * 4
        + ("Produce",) * 4
        + ("EndTxn",) * 4
        + ("InitProducerId",) * 2
        + (
            "ConsumerGroupHeartbeat",
            "TxnOffsetCommit",
            *("AddPartitionsToTxn",) * 2,
            "PrepareTransaction",
            "Fetch",
            "DeleteTopics",
            "CreateTopics",
        )
    ),
    name=st.sampled_from(IDS),
    partitions=mixed({_GOOD_PARTITIONS: 8, _ANY_PARTITIONS: 1}),
    groups=often((), *((group,) for group in (*GROUPS, REBALANCING)), GROUPS, times=4),
    committed=often(True, False, times=4),
    member=st.sampled_from(MEMBERS),
    epoch=often(0, -1, 1, times=12),
    sequence=often(0, 1, -1, times=14),
    repeats=often(False, True),
    damage=often("", *DAMAGES, times=3 * len(DAMAGES)),
    timeout_ms=often(0, 20, times=6),
    version=often(2, 1, times=3),
)
MESSAGE = st.builds(
    lambda session, calls, cancels: Step("message", (session, tuple(calls), tuple(cancels))),
    st.integers(0, 1),
    st.lists(mixed({GOOD_TRANSACT: 6, ODD_TRANSACT: 1, INIT: 2, ANY_CALL: 4}), min_size=1, max_size=8),
    often((), (0,), (1, 2), times=10),
)


def _step(kind: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(*arguments).map(lambda drawn: Step(kind, drawn))


_DENIED: Final = tuple(
    Acl(
        principal=principal,
        resource_type=resource,
        resource_name=name,
        operation=permission,
        permission_type=PermissionType.DENY,
    )
    for principal in CALLERS
    for permission, resource, name in (
        (Permission.WRITE, ResourceType.TOPIC, "words" if principal == CALLERS[0] else "t"),
        (Permission.READ, ResourceType.TOPIC, "t"),
        (Permission.DESCRIBE, ResourceType.TOPIC, "t"),
        (Permission.READ, ResourceType.GROUP, "g"),
        (Permission.READ, ResourceType.GROUP, REBALANCING),
        (Permission.WRITE, ResourceType.TRANSACTIONAL_ID, "c"),
    )
)
_SHARDS = st.sampled_from((*IDS, "t-0", "t-1", "words-0", "group:g"))
_ALLOW = st.lists(st.sampled_from(_DENIED), max_size=2).map(lambda denied: Step("allow", tuple(denied)))
STEP = mixed(
    {
        MESSAGE: 40,
        _step("flush"): 8,
        _step("flush", st.just(1)): 3,
        _step("seal"): 3,
        _step("settle"): 10,
        _step("tick", st.sampled_from((1, 1, 10, 900, 6_000))): 5,
        _step("set_clock", st.sampled_from((-5_000, 5_000))): 1,
        _step("hold_checks", st.booleans()): 2,
        _step("unload", _SHARDS): 1,
        _step("load", _SHARDS): 3,
        _step("crash", st.integers(0, 2)): 1,
        _step("fail_disk", st.integers(0, 1)): 1,
        _step("fill_disk", st.booleans()): 1,
        _ALLOW: 1,
    }
)
HISTORY = st.lists(STEP, min_size=4, max_size=40)


_BEAT = st.builds(
    Call,
    kind=st.just("ConsumerGroupHeartbeat"),
    member=st.sampled_from(MEMBERS),
    committed=often(True, False, times=4),
)


@st.composite
def _busy_message(draw: st.DrawFn) -> Step:
    """Every id commits a whole transaction, with other operations among them."""
    calls = [
        Call("Transact", name, draw(_GOOD_PARTITIONS), draw(_ONE_GROUP), member=draw(_MEMBER))
        for name in draw(st.permutations(IDS))
    ]
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 2)))):
        calls.insert(draw(st.integers(0, len(calls))), draw(mixed({ODD_TRANSACT: 2, INIT: 2, ANY_CALL: 2, _BEAT: 1})))
    return Step("message", (draw(st.integers(0, 1)), tuple(calls)))


_SOME_IDS = st.lists(st.sampled_from(IDS), unique=True)


@st.composite
def _split_messages(draw: st.DrawFn) -> tuple[Step, ...]:
    """Every id appends to its transaction, once or more, and all or some of them end it. Clients of version 1 add the
    partitions before, and may become such of version 2 in between."""
    old = draw(st.sampled_from((frozenset(), frozenset(IDS[:1]), frozenset(IDS))))
    is_changed = draw(often(False, True, times=5))
    appends = [
        Call("Produce", name, draw(_GOOD_PARTITIONS), version=1 if name in old else 2)
        for _ in range(draw(st.sampled_from((1, 1, 2))))
        for name in draw(st.permutations(IDS))
    ]
    adds = [replace(call, kind="AddPartitionsToTxn") for call in appends if call.version == 1]
    said = {call.name: (("t-0",), call.partitions) for call in appends}
    if draw(st.booleans()):
        appends += [Call("TxnOffsetCommit", name, groups=(draw(st.sampled_from(GROUPS)),)) for name in draw(_SOME_IDS)]
    ends = [
        Call(
            "EndTxn",
            name,
            draw(st.sampled_from(said[name])),
            committed=draw(often(True, False, times=4)),
            version=1 if (name in old) is not is_changed else 2,
        )
        for name in draw(st.permutations(IDS))[draw(often(0, 1, 3)) :]
    ]
    for calls in (adds, appends, ends):
        for _ in range(draw(st.sampled_from((0, 0, 0, 1))) if calls else 0):
            odd = ODD_ADD if calls is adds else ODD_PRODUCE if calls is appends else ANY_CALL
            calls.insert(draw(st.integers(0, len(calls))), draw(mixed({odd: 2, ANY_CALL: 1})))
    session, between = draw(st.integers(0, 1)), draw(st.sampled_from(("settle", "flush", "")))
    if not between:
        return (Step("message", (session, (*adds, *appends, *ends))),)
    messages = [Step("message", (session, tuple(calls))) for calls in (adds, appends, ends) if calls]
    return messages[0], *(step for each in messages[1:] for step in (Step(between), each))


_BEATS = st.lists(_BEAT, min_size=1, max_size=2).map(lambda calls: Step("message", (0, tuple(calls))))
_CALM = mixed(
    {
        _busy_message().map(lambda step: (step,)): 12,
        _split_messages(): 6,
        **{
            each.map(lambda step: (step,)): weight
            for each, weight in (
                (_BEATS, 2),
                (_ALLOW, 1),
                (_step("settle"), 6),
                (_step("flush"), 3),
                (_step("flush", st.just(1)), 1),
            )
        },
    }
)
_RECOVERY = (
    Step("hold_checks", (False,)),
    Step("fill_disk", (False,)),
    Step("allow"),
    *(Step("load", (shard,)) for shard in (*IDS, *PARTITIONS, *(f"group:{group}" for group in (*GROUPS, REBALANCING)))),
    Step("settle"),
    *(Step("message", (session, tuple(Call("InitProducerId", name) for name in IDS))) for session in range(2)),
    Step("settle"),
)
"""After it nothing is in the way of common calls."""
_EPISODE = st.builds(
    lambda unusual, calm: (*unusual, *_RECOVERY, *chain.from_iterable(calm)),
    st.lists(STEP, max_size=3),
    st.lists(_CALM, min_size=3, max_size=8),
)
BUSY_HISTORY = st.lists(_EPISODE, min_size=1, max_size=4).map(lambda episodes: [*chain.from_iterable(episodes)])
"""Most of its calls are such as a fast path takes, and whatever may come comes between them."""


@dataclass(frozen=True, slots=True)
class Forbidding:
    """Refuses writes to resources with one of these names. Implements `coordinator_runtime.ports.Authorizer`."""

    names: frozenset[str]

    def is_allowed(self, _context: CallContext, permission: Permission, _resource: ResourceType, name: str) -> bool:
        return permission is not Permission.WRITE or name not in self.names

    def on_refused(self, _context: CallContext, permission: Permission, resource: ResourceType, name: str) -> None:
        structlog.get_logger("audit").info("refused", permission=permission, resource=resource, name=name)


_OPTIONS: Final[dict[str, Any]] = {
    "two_phase": often(TwoPhase.FUSED, TwoPhase.SPLIT, times=2),
    "producer_epoch_max": st.sampled_from((4, EPOCH_MAX)),
    "index_interval_batches": st.sampled_from((1, 3, 256)),
    "runtime_limits": st.builds(
        RuntimeLimits,
        group_bytes_max=st.sampled_from((1 << 20, 5_000)),
        undurable_bytes_max=often(1 << 20, 20_000, times=3),
        parked_calls_max=often(10_000, 2, times=2),
    ),
}
_LIMITS = RuntimeLimits()
_BUSY: Final[dict[str, Any]] = _OPTIONS | {
    "two_phase": often(TwoPhase.FUSED, TwoPhase.SPLIT, times=20),
    "producer_epoch_max": often(EPOCH_MAX, 6, times=4),
    "runtime_limits": often(_LIMITS, replace(_LIMITS, group_bytes_max=20_000, undurable_bytes_max=40_000), times=5),
}
_AUTHORIZER = often(ALLOW_ALL, Forbidding(frozenset({"words", "c"})), times=4)
OPTIONS = mixed({st.builds(WorldOptions, authorizer=_AUTHORIZER, **_OPTIONS): 2, st.builds(Guarded, **_OPTIONS): 1})
BUSY_OPTIONS = mixed({st.builds(WorldOptions, **_BUSY): 1, st.builds(Guarded, **_BUSY): 1})
ADMISSION = st.builds(AdmissionLimits, calls_in_work_max=often(4096, 3, times=3))
