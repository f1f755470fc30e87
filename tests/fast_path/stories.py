"""Histories that chance seldom finds."""

from __future__ import annotations

from typing import Final

from coordinator_protocol.acls import Acl, Permission, PermissionType, ResourceType
from coordinator_runtime.runtime import RuntimeLimits
from tests.fast_path.calls import IDS, REBALANCING, STRANGER, Call
from tests.fast_path.side import CALLERS
from tests.fast_path.twins import Step
from tests.harness.guarded import Guarded
from tests.harness.inside import WorldOptions
from txn_coordinator.config import TwoPhase


def message(*calls: Call) -> Step:
    return Step("message", (0, calls))


def deny(permission: Permission, resource: ResourceType, name: str) -> Acl:
    """To the caller of the first session."""
    return Acl(
        principal=CALLERS[0],
        resource_type=resource,
        resource_name=name,
        operation=permission,
        permission_type=PermissionType.DENY,
    )


STORIES: Final[dict[str, tuple[WorldOptions, tuple[Step, ...]]]] = {
    # A call waits for the end of a transaction that took two phases, because a shard was away. The end is staged and
    # not durable, so the call still waits, and the id has nothing open any more.
    "behind those that wait": (
        WorldOptions(two_phase=TwoPhase.FUSED),
        (
            message(Call("Produce")),
            Step("settle"),
            Step("unload", ("t-0",)),
            Step("settle"),
            message(Call("EndTxn")),
            Step("flush"),
            message(Call("Produce", partitions=("t-1",))),
            Step("load", ("t-0",)),
            Step("tick", (1_000,)),
            Step("flush", (1,)),
            message(Call("Transact", partitions=("t-2",))),
            Step("settle"),
        ),
    ),
    "the same id twice, and partitions that many write to": (
        WorldOptions(),
        (
            message(*(Call("Transact", name, ("t-0", "t-1"), ("g",)) for name in IDS)),
            Step("settle"),
            message(*(Call("Transact", name, ("t-0", "t-1"), ("g",)) for name in (*IDS, *IDS))),
            Step("settle"),
        ),
    ),
    "batches of Kafka's, of which the first begins a feature of the store": (
        WorldOptions(),
        (
            message(*(Call("Transact", name, ("t-0", "t-1"), damage="of Kafka") for name in IDS)),
            Step("settle"),
            message(*(Call("Transact", name, ("t-0",), damage="of Kafka") for name in IDS)),
            Step("settle"),
            message(*(Call("Produce", name, ("t-0",), damage="of Kafka") for name in IDS)),
            message(*(Call("EndTxn", name) for name in IDS)),
            Step("crash", (1,)),
            message(Call("Transact", partitions=("t-1",), damage="of Kafka")),
            Step("settle"),
        ),
    ),
    "new ids, known ones, and the same one again": (
        WorldOptions(),
        (
            message(*(Call("InitProducerId", name) for name in ("new-0", "a", "new-1", "a", "new-0"))),
            Step("settle"),
            message(
                Call("InitProducerId", "new-2"),
                Call("Produce", "a"),
                Call("InitProducerId", "a"),
                Call("InitProducerId", "b", repeats=True),
                Call("InitProducerId", "c", sequence=1),
            ),
            Step("crash", (1,)),
            message(*(Call("InitProducerId", name) for name in ("new-3", "a", "new-4"))),
            Step("settle"),
        ),
    ),
    "a first request that comes again": (
        WorldOptions(),
        (
            message(Call("InitProducerId", "a"), Call("InitProducerId", "new-0")),
            Step("settle"),
            message(Call("InitProducerId", "a", repeats=True), Call("InitProducerId", "new-0", repeats=True)),
            Step("settle"),
            message(*(Call("Transact", name) for name in IDS)),
            Step("settle"),
        ),
    ),
    "a producer id that has no epoch left": (
        WorldOptions(producer_epoch_max=4),
        (
            *[message(*(Call("InitProducerId", name) for name in (*IDS, "new-0"))), Step("settle")] * 6,
            message(*(Call("Transact", name) for name in IDS)),
            Step("settle"),
        ),
    ),
    "a partition with two names": (
        WorldOptions(),
        (
            message(Call("Transact", "a"), Call("Transact", "b", damage="topic by id"), Call("Transact", "c")),
            Step("settle"),
            message(Call("Transact", "a", damage="topic by id"), Call("Transact", "b")),
            Step("settle"),
        ),
    ),
    "two callers in one message": (
        WorldOptions(),
        (
            message(Call("Transact", "a"), Call("Transact", "b", damage="client id"), Call("Transact", "c")),
            Step("settle"),
        ),
    ),
    "a refusal in the middle": (
        WorldOptions(),
        (
            message(
                Call("Transact", "a"),
                Call("Transact", "b", damage="payload"),
                Call("Transact", "c"),
                Call("Transact", "b", damage="crc"),
                Call("Transact", "b", sequence=1),
                Call("Transact", "a", epoch=-1),
                Call("Transact", "b"),
            ),
            Step("settle"),
            message(*(Call("Transact", name) for name in IDS)),
            Step("settle"),
        ),
    ),
    "a right that is taken away between two messages": (
        Guarded(),
        (
            message(*(Call("Transact", name) for name in IDS)),
            Step("settle"),
            Step("allow", (deny(Permission.WRITE, ResourceType.TRANSACTIONAL_ID, "b"),)),
            message(*(Call("Transact", name) for name in IDS)),
            Step("settle"),
            Step("allow", (deny(Permission.WRITE, ResourceType.TOPIC, "words"),)),
            message(
                *(Call("Transact", name, (where,)) for name, where in zip(IDS, ("t-0", "words-0", "t-1"), strict=True))
            ),
            Step("settle"),
        ),
    ),
    "offsets of a group that may not be read any more": (
        Guarded(),
        (
            message(*(Call("Transact", name, groups=("g",)) for name in IDS)),
            Step("settle"),
            Step("allow", (deny(Permission.READ, ResourceType.GROUP, "g"),)),
            Step("settle"),
            message(*(Call("Transact", name, groups=("g",)) for name in IDS)),
            Step("settle"),
            Step("allow", (deny(Permission.READ, ResourceType.TOPIC, "t"),)),
            Step("settle"),
            message(*(Call("Transact", name, groups=("g",)) for name in IDS)),
            Step("settle"),
        ),
    ),
    "a caller who is not in the group": (
        WorldOptions(),
        (
            message(Call("ConsumerGroupHeartbeat", member="m")),
            Step("settle"),
            message(*(Call("Transact", name, groups=(REBALANCING,), member="m") for name in IDS)),
            Step("settle"),
            message(
                Call("Transact", "a", groups=(REBALANCING,), member=STRANGER),
                Call("ConsumerGroupHeartbeat", member="m", committed=False),
                Call("Transact", "b", groups=(REBALANCING,), member="m"),
                Call("Transact", "c"),
            ),
            Step("settle"),
        ),
    ),
    # A second batch of a partition follows the first; one more partition is added; one comes twice.
    "transactions that grow, and end": (
        WorldOptions(),
        (
            message(*(Call("Produce", name, ("t-0", "t-1")) for name in IDS)),
            message(*(Call("Produce", name, ("t-1", "t-2")) for name in IDS)),
            Step("settle"),
            message(Call("EndTxn", "b", committed=False), Call("Fetch"), Call("EndTxn", "a"), Call("EndTxn", "c")),
            Step("settle"),
            message(
                Call("Produce", "a"),
                Call("Produce", "a", repeats=True),
                Call("Produce", "b", damage="topic by id"),
                Call("Produce", "c", ("t-0", "t-9")),
                Call("Produce", "b", damage="payload"),
                Call("EndTxn", "a"),
            ),
            Step("settle"),
            message(*(Call("Produce", name, ("t-0", "words-0")) for name in IDS)),
            message(Call("Fetch"), Call("Transact", "a"), Call("EndTxn", "b"), Call("InitProducerId", "c")),
            Step("settle"),
        ),
    ),
    # The epoch stays, and so the sequence numbers go on. The last Produce names a partition outside the transaction.
    "clients of version 1": (
        WorldOptions(),
        (
            *[
                step
                for partitions in (("t-0", "words-0"), ("t-0", "t-1"))
                for kind in ("AddPartitionsToTxn", "Produce", "Produce", "EndTxn")
                for step in (message(*(Call(kind, name, partitions, version=1) for name in IDS)), Step("flush"))
            ],
            message(
                *(Call("AddPartitionsToTxn", name, version=1) for name in IDS),
                Call("AddPartitionsToTxn", "a", version=1),
                Call("AddPartitionsToTxn", "b", ("t-0", "t-1"), version=1),
                *(Call("Produce", name, version=1) for name in IDS),
                Call("Produce", "c", ("t-0", "t-1"), version=1),
                Call("EndTxn", "a", committed=False, version=1),
                *(Call("EndTxn", name, version=1) for name in IDS),
                *(Call("EndTxn", name, repeats=True) for name in IDS),
            ),
            Step("settle"),
            message(*(Call("AddPartitionsToTxn", name, version=1) for name in IDS)),
            Step("crash", (0,)),
            message(*(Call("Produce", name, version=1) for name in IDS)),
            Step("settle"),
        ),
    ),
    # Batches of an aborted transaction have their sequences again, one with other bounds; then the batch that follows,
    # and the first ones once more. Late ones come while nothing is open, and while another partition is in the
    # transaction.
    "sequences of an aborted transaction": (
        WorldOptions(),
        (
            message(*(Call("AddPartitionsToTxn", name, version=1) for name in IDS)),
            *[message(*(Call("Produce", name, version=1) for name in IDS))] * 3,
            message(*(Call("EndTxn", name, committed=False, version=1) for name in IDS)),
            Step("settle"),
            message(*(Call("Produce", name, sequence=-1, version=1) for name in IDS)),
            message(*(Call("AddPartitionsToTxn", name, ("t-1",), version=1) for name in IDS)),
            message(*(Call("Produce", name, sequence=-2, version=1) for name in IDS)),
            Step("settle"),
            message(*(Call("AddPartitionsToTxn", name, version=1) for name in IDS)),
            *[
                message(*(Call("Produce", name, sequence=sequence, version=1) for name in IDS))
                for sequence in (-3, -2, -1, 0, -4, -2, -1)
            ],
            Step("crash", (1,)),
            message(*(Call("Produce", name, sequence=-2, version=version) for version in (1, 2) for name in IDS)),
            message(*(Call("EndTxn", name, version=1) for name in IDS)),
            Step("settle"),
        ),
    ),
    "versions that change within a transaction": (
        WorldOptions(),
        (
            *[
                step
                for versions in ((1, 2, 1), (2, 1, 2), (1, 1, 2), (2, 2, 1))
                for kind, version in zip(("AddPartitionsToTxn", "Produce", "EndTxn"), versions, strict=True)
                for step in (
                    message(
                        Call(kind, "a", version=version), Call(kind, "b", ("t-0", "t-1")), Call(kind, "c", version=1)
                    ),
                    Step("flush"),
                )
            ],
            Step("settle"),
            message(*(Call("Produce", name, version=number % 2 + 1) for number, name in enumerate(IDS))),
            message(*(Call("TxnOffsetCommit", name, groups=("g",)) for name in IDS)),
            message(*(Call("EndTxn", name, version=1) for name in IDS)),
            Step("settle"),
            message(*(Call("Transact", name) for name in IDS)),
            Step("settle"),
        ),
    ),
    "additions that are none": (
        Guarded(),
        (
            message(
                Call("AddPartitionsToTxn", "a", epoch=-1),
                Call("AddPartitionsToTxn", "b", ("t-0", "t-9"), version=1),
                Call("AddPartitionsToTxn", "c", (), version=1),
                *(
                    Call("AddPartitionsToTxn", name, ("t-0", "t-1"), damage=damage)
                    for damage in ("added twice", "also a batch", "only verifies", "partition by both names")
                    for name in IDS
                ),
            ),
            Step("settle"),
            message(*(Call("AddPartitionsToTxn", name, ("t-2",), epoch=1) for name in IDS)),
            message(*(Call("AddPartitionsToTxn", name, ("t-2",), damage="topic by id", version=1) for name in IDS)),
            message(Call("PrepareTransaction", "a"), Call("AddPartitionsToTxn", "a", ("words-0",), version=1)),
            message(Call("EndTxn", "b", version=1), Call("AddPartitionsToTxn", "b", ("t-1",)), Call("EndTxn", "c")),
            Step("fail_disk", (0,)),
            message(*(Call("AddPartitionsToTxn", name, ("t-2",), version=1) for name in IDS)),
            Step("fail_disk", (0,)),
            message(*(Call("AddPartitionsToTxn", name, version=1) for name in IDS)),
            Step("settle"),
            Step("allow", (deny(Permission.WRITE, ResourceType.TOPIC, "words"),)),
            Step("settle"),
            message(*(Call("AddPartitionsToTxn", name, ("words-0",), version=1) for name in IDS)),
            Step("allow", (deny(Permission.WRITE, ResourceType.TRANSACTIONAL_ID, "b"),)),
            Step("settle"),
            message(*(Call("AddPartitionsToTxn", name, ("t-1",), version=1) for name in IDS)),
            Step("tick", (6_000,)),
            Step("settle"),
        ),
    ),
    # The newest offset counts, in any order of ends: b's, then c's.
    "offsets that open transactions hold": (
        WorldOptions(),
        (
            message(*(Call("TxnOffsetCommit", name, groups=("g",)) for name in ("a", "c", "b"))),
            message(Call("TxnOffsetCommit", "a", groups=("h",)), Call("Produce", "a"), Call("Produce", "b")),
            Step("settle"),
            message(Call("EndTxn", "b"), Call("EndTxn", "a"), Call("EndTxn", "c")),
            Step("settle"),
            message(*(Call("TxnOffsetCommit", name, groups=("g",)) for name in ("b", "a", "c"))),
            message(Call("EndTxn", "c"), Call("EndTxn", "b", committed=False), Call("EndTxn", "a")),
            Step("crash", (0,)),
            message(*(Call("EndTxn", name, repeats=True) for name in IDS)),
            Step("settle"),
        ),
    ),
    "what the log must hold": (
        Guarded(),
        (
            message(*(Call("Produce", name, ("t-0", "words-0")) for name in IDS)),
            message(
                Call("EndTxn", "a", ("t-0", "words-0")),
                Call("EndTxn", "b", ("t-0", "t-1")),
                Call("EndTxn", "c", ("t-0", "t-9")),
                Call("EndTxn", "c", ("words-0",), sequence=-1),
            ),
            Step("settle"),
            message(*(Call("Produce", name, ("t-0", "words-0")) for name in IDS)),
            Step("settle"),
            Step("allow", (deny(Permission.DESCRIBE, ResourceType.TOPIC, "words"),)),
            Step("settle"),
            message(*(Call("EndTxn", name, ("t-0", "words-0")) for name in IDS)),
            Step("settle"),
        ),
    ),
    "ends that are none": (
        WorldOptions(),
        (
            message(*(Call("Produce", name, ("t-0", "words-0", "t-1")) for name in IDS)),
            Step("settle"),
            message(
                Call("EndTxn", "a", sequence=1),
                Call("EndTxn", "b", epoch=-1),
                Call("EndTxn", "c", epoch=1),
                Call("EndTxn", "b", damage="version 1"),
            ),
            Step("unload", ("words-0",)),
            message(Call("EndTxn", "a"), Call("EndTxn", "c", committed=False)),
            Step("settle"),
            Step("load", ("words-0",)),
            Step("settle"),
            message(*(Call("EndTxn", name, repeats=True) for name in IDS), *(Call("EndTxn", name) for name in IDS)),
            Step("settle"),
        ),
    ),
    "ends of what is prepared, deleted or away": (
        WorldOptions(producer_epoch_max=5),
        (
            message(*(Call("Produce", name, ("gone-0", "t-0")) for name in IDS)),
            message(Call("PrepareTransaction", "a"), Call("DeleteTopics"), Call("EndTxn", "a"), Call("EndTxn", "b")),
            Step("settle"),
            *[
                step
                for _ in range(3)
                for step in (
                    message(*(Call("Produce", name) for name in IDS), *(Call("EndTxn", name) for name in IDS)),
                    Step("flush"),
                )
            ],
            Step("settle"),
        ),
    ),
    "abandoned transactions": (
        WorldOptions(),
        (
            message(*(Call("Produce", name) for name in IDS)),
            Step("tick", (900,)),
            Step("flush"),
            Step("tick", (900,)),
            message(Call("Produce", "b", ("t-1",)), Call("EndTxn", "c")),
            Step("tick", (6_000,)),
            Step("settle"),
            message(*(Call("Produce", name, ("t-0", "t-1")) for name in IDS)),
            Step("settle"),
        ),
    ),
    "appended, and lost": (
        WorldOptions(),
        (
            message(*(Call("Produce", name, ("t-0", "t-1"), damage="topic by id") for name in IDS)),
            Step("fail_disk", (0,)),
            message(*(Call("Produce", name, repeats=True) for name in IDS)),
            Step("crash", (1,)),
            message(*(Call("Produce", name, repeats=True) for name in IDS), Call("EndTxn", "a")),
            Step("settle"),
        ),
    ),
    "a right to append that is taken away": (
        Guarded(),
        (
            message(*(Call("Produce", name, ("t-0", "words-0")) for name in IDS)),
            Step("settle"),
            Step("allow", (deny(Permission.WRITE, ResourceType.TRANSACTIONAL_ID, "b"),)),
            Step("settle"),
            message(*(Call("Produce", name, ("t-0",)) for name in IDS)),
            Step("settle"),
            Step("allow", (deny(Permission.WRITE, ResourceType.TOPIC, "words"),)),
            Step("settle"),
            message(*(Call("Produce", name, ("t-0", "words-0")) for name in IDS)),
            Step("settle"),
        ),
    ),
    "what is prepared, or was written by another version": (
        WorldOptions(),
        (
            message(*(Call("Produce", name) for name in IDS)),
            message(Call("PrepareTransaction", "a"), Call("Produce", "a"), Call("Produce", "a", ("t-1",))),
            message(Call("Produce", "b", damage="version 1"), Call("Produce", "c", epoch=1), Call("Produce", "c")),
            Step("settle"),
            message(Call("Produce", "b", ("t-1",), damage="version 1"), Call("Produce", "c", ("t-1",))),
            Step("settle"),
        ),
    ),
    "a full disk": (
        WorldOptions(),
        (
            Step("fill_disk", (True,)),
            message(*(Call("Transact", name) for name in IDS)),
            Step("settle"),
            Step("fill_disk", (False,)),
            message(*(Call("Transact", name) for name in IDS)),
            Step("settle"),
        ),
    ),
    "more than may wait for the disk": (
        WorldOptions(runtime_limits=RuntimeLimits(group_bytes_max=4_000, undurable_bytes_max=6_000)),
        (*[message(*(Call("Transact", name, ("t-0", "t-1")) for name in IDS))] * 8, Step("settle")),
    ),
    "timestamps from the future": (
        WorldOptions(),
        (
            message(Call("Transact", "a"), Call("Transact", "b", damage="from the future"), Call("Transact", "c")),
            Step("settle"),
            message(Call("Produce", "a"), Call("Produce", "b", damage="from the future"), Call("Produce", "c")),
            Step("settle"),
            message(*(Call("EndTxn", name) for name in IDS)),
            Step("settle"),
            message(Call("Transact", "b", ("gone-0",), damage="from the future"), Call("Fetch")),
            Step("settle"),
        ),
    ),
    "batches that are too large for their topic": (
        WorldOptions(),
        (
            message(Call("Transact", "a"), Call("Transact", "b", damage="too large"), Call("Transact", "c")),
            Step("settle"),
            message(Call("Produce", "a"), Call("Produce", "b", damage="too large"), Call("Produce", "c")),
            Step("settle"),
            message(*(Call("EndTxn", name) for name in IDS)),
            Step("settle"),
            message(Call("Transact", "b", ("gone-0",), damage="too large"), Call("Fetch")),
            Step("settle"),
        ),
    ),
    "an open transaction in the way of committed readers": (
        WorldOptions(),
        (
            message(Call("Produce", "a")),
            Step("settle"),
            message(Call("Transact", "b"), Call("Transact", "c", ("t-0", "words-0"))),
            Step("settle"),
            message(Call("EndTxn", "a", committed=False), Call("Fetch"), Call("Transact", "b")),
            Step("settle"),
            message(Call("Fetch")),
            Step("settle"),
        ),
    ),
    "answers that were lost": (
        WorldOptions(producer_epoch_max=5),
        (
            *[message(Call("Transact", "a"), Call("Transact", "a", repeats=True), Call("Transact", "b"))] * 3,
            Step("crash", (1,)),
            message(Call("Transact", "a", repeats=True), Call("Transact", "a")),
            Step("fail_disk", (0,)),
            message(Call("Transact", "a", repeats=True), Call("Transact", "a")),
            Step("settle"),
        ),
    ),
}
