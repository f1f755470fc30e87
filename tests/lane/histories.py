"""Random histories for two servers to live through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import structlog
from hypothesis import strategies as st

from coordinator_protocol.limits import EPOCH_MAX
from coordinator_runtime.ports import ALLOW_ALL, CallContext, Permission, ResourceType
from coordinator_runtime.runtime import RuntimeLimits
from coordinator_server.admission import AdmissionLimits
from tests.harness.world import WorldOptions
from tests.lane.calls import ABSENT, DAMAGES, GROUPS, IDS, PARTITIONS, Call
from tests.lane.twins import Step
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

GOOD_TRANSACT = st.builds(
    Call,
    kind=st.just("Transact"),
    name=st.sampled_from(IDS),
    partitions=_GOOD_PARTITIONS,
    groups=often((), *((group,) for group in GROUPS), times=3),
)
ODD_TRANSACT = st.builds(
    Call,
    kind=st.just("Transact"),
    name=st.sampled_from(IDS),
    partitions=_GOOD_PARTITIONS,
    damage=st.sampled_from((*DAMAGES,)),
)
"""One thing is wrong with it, and nothing hides that."""
ANY_CALL = st.builds(
    Call,
    kind=st.sampled_from(
        ("Transact",) * 4
        + ("Produce",) * 4
        + ("EndTxn",) * 4
        + ("InitProducerId",) * 2
        + ("TxnOffsetCommit", "AddPartitionsToTxn", "PrepareTransaction", "Fetch", "DeleteTopics", "CreateTopics")
    ),
    name=st.sampled_from(IDS),
    partitions=mixed({_GOOD_PARTITIONS: 8, _ANY_PARTITIONS: 1}),
    groups=often((), *((group,) for group in GROUPS), GROUPS, times=4),
    committed=often(True, False, times=4),
    epoch=often(0, -1, 1, times=12),
    sequence=often(0, 1, -1, times=14),
    repeats=often(False, True),
    damage=often("", *DAMAGES, times=3 * len(DAMAGES)),
    timeout_ms=often(0, 20, times=6),
)
MESSAGE = st.builds(
    lambda session, calls, cancels: Step("message", (session, tuple(calls), tuple(cancels))),
    st.integers(0, 1),
    st.lists(mixed({GOOD_TRANSACT: 6, ODD_TRANSACT: 1, ANY_CALL: 4}), min_size=1, max_size=8),
    often((), (0,), (1, 2), times=10),
)


def _step(kind: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(*arguments).map(lambda drawn: Step(kind, drawn))


_SHARDS = st.sampled_from((*IDS, "t-0", "t-1", "words-0", "group:g"))
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
    }
)
HISTORY = st.lists(STEP, min_size=4, max_size=40)


@dataclass(frozen=True, slots=True)
class Forbidding:
    """Lets nobody write to what has one of these names. Implements `coordinator_runtime.ports.Authorizer`."""

    names: frozenset[str]

    def is_allowed(self, _context: CallContext, permission: Permission, _resource: ResourceType, name: str) -> bool:
        return permission is not Permission.WRITE or name not in self.names

    def on_refused(self, _context: CallContext, permission: Permission, resource: ResourceType, name: str) -> None:
        structlog.get_logger("audit").info("refused", permission=permission, resource=resource, name=name)


OPTIONS = st.builds(
    WorldOptions,
    authorizer=often(ALLOW_ALL, Forbidding(frozenset({"words", "c"})), times=4),
    two_phase=often(TwoPhase.FUSED, TwoPhase.SPLIT, times=2),
    producer_epoch_max=st.sampled_from((4, EPOCH_MAX)),
    index_interval_batches=st.sampled_from((1, 3, 256)),
    runtime_limits=st.builds(
        RuntimeLimits,
        group_bytes_max=st.sampled_from((1 << 20, 5_000)),
        undurable_bytes_max=often(1 << 20, 20_000, times=3),
        parked_calls_max=often(10_000, 2, times=2),
    ),
)
ADMISSION = st.builds(AdmissionLimits, calls_in_work_max=often(4096, 3, times=3))
