"""The table of permissions: what each procedure asks, of which kind of resource, and the extent of a refusal.

Services ask the questions, and this table lists them, so one page tells an operator what to allow. An authorizer that
enforces ACLs refuses to answer any other question (`access.py`). A test checks that every question of a row is asked.
`docs/reference/permissions.md` shows the table.

Source: Kafka, `docs/security/authorization-and-acls.md`, where it has the procedure.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from coordinator_protocol.acls import Permission, ResourceType
from coordinator_protocol.methods import Method


class Extent(StrEnum):
    """Extent of a refusal: the part of the answer that a caller without the permission does not get."""

    REQUEST = "the request"
    ITEM = "that item"
    HIDDEN = "left out"
    """The item is left out of the answer, without a notice."""


class Ask(Struct, frozen=True):
    """One question of a procedure."""

    permission: Permission
    resource_type: ResourceType
    extent: Extent = Extent.REQUEST
    when: str = ""
    """Case in which it is asked, for people to read; empty means always."""


_P = Permission
_ITEM, _HIDDEN = Extent.ITEM, Extent.HIDDEN
_TOPIC, _GROUP, _ID, _CLUSTER = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.CLUSTER,
)
_WRITE_ID: Final = Ask(_P.WRITE, _ID)
_WRITE_SINK: Final = Ask(_P.WRITE, _ID, when="named as the sink")
_DECIDE_SINK: Final = Ask(_P.DECIDE, _ID, when="named as the sink")
_READ_GROUP: Final = Ask(_P.READ, _GROUP)
_LOOK: Final = Ask(_P.DESCRIBE, _CLUSTER)
_ADMINISTER: Final = Ask(_P.ALTER, _CLUSTER)
_LAST_SEQUENCES: Final = Ask(_P.DESCRIBE, _TOPIC, when="with last_sequences, of each topic")
_HOLD: Final = Ask(_P.SNAPSHOT, _TOPIC, when="of each topic of the snapshot")
_DESCRIBED: Final = (
    Ask(_P.DESCRIBE, _ID, _ITEM),
    Ask(_P.DESCRIBE, _TOPIC, _HIDDEN, "topics of the transaction"),
    Ask(_P.DESCRIBE, _GROUP, _HIDDEN, "groups of the transaction"),
)
_ENDED: Final = (
    Ask(_P.WRITE, _ID, _ITEM, "of each id that is named; others are left out"),
    Ask(_P.TWO_PHASE_COMMIT, _ID, _ITEM, "to end what awaits an outside decision"),
    Ask(_P.ALTER, _CLUSTER, _ITEM, "or instead of two_phase_commit"),
)

OF_BROKER: Final = "of a broker, by Kafka's protocol"
"""Case of questions that only Kafka's clients lead to: the SDK does not know brokers."""
PERMISSIONS: Final[Mapping[Method, tuple[Ask, ...]]] = {
    Method.FIND_COORDINATOR: (
        Ask(_P.DESCRIBE, _GROUP, _ITEM, "of a group"),
        Ask(_P.DESCRIBE, _ID, _ITEM, "of a transactional id"),
    ),
    Method.INIT_PRODUCER_ID: (
        Ask(_P.WRITE, _ID, when="with a transactional id"),
        Ask(_P.TWO_PHASE_COMMIT, _ID, when="with enable_2pc"),
        Ask(_P.IDEMPOTENT_WRITE, _CLUSTER, when="without a transactional id; write on any topic stands for it"),
    ),
    Method.ADD_PARTITIONS_TO_TXN: (
        Ask(_P.WRITE, _ID, when="of one transaction"),
        Ask(_P.WRITE, _TOPIC, _ITEM, "of one transaction"),
        Ask(_P.CLUSTER_ACTION, _CLUSTER, when="of a batch, which other servers send"),
    ),
    Method.ADD_OFFSETS_TO_TXN: (_WRITE_ID, _READ_GROUP),
    Method.END_TXN: (
        Ask(_P.WRITE, _ID, when="of a member of a batch, on the id named as the sink"),
        _LAST_SEQUENCES,
    ),
    Method.TRANSACT: (
        _WRITE_ID,
        Ask(_P.WRITE, _TOPIC),
        Ask(_P.READ, _GROUP, when="with offsets of groups, or acknowledgements of share groups"),
        Ask(_P.READ, _TOPIC, when="of each topic with such offsets or acknowledgements"),
    ),
    Method.PREPARE_TRANSACTION: (_WRITE_ID, Ask(_P.TWO_PHASE_COMMIT, _ID), _LAST_SEQUENCES),
    Method.DESCRIBE_TRANSACTIONS: _DESCRIBED,
    Method.LIST_TRANSACTIONS: (Ask(_P.DESCRIBE, _ID, _HIDDEN),),
    Method.JOIN_BATCH: (_WRITE_SINK,),
    Method.SEAL_MEMBER: (_WRITE_SINK, _LAST_SEQUENCES),
    Method.COMMIT_BATCH: (_DECIDE_SINK,),
    Method.ABORT_BATCH: (_DECIDE_SINK,),
    Method.DESCRIBE_SINKS: (
        Ask(_P.DESCRIBE, _ID, _ITEM, "named as the sink, of each that is named; others are left out"),
    ),
    Method.JOIN_GROUP: (_READ_GROUP,),
    Method.SYNC_GROUP: (_READ_GROUP,),
    Method.HEARTBEAT: (_READ_GROUP,),
    Method.LEAVE_GROUP: (_READ_GROUP,),
    Method.CONSUMER_GROUP_HEARTBEAT: (
        _READ_GROUP,
        Ask(
            _P.DESCRIBE,
            _TOPIC,
            when="of each topic that is named; others match no pattern",
        ),
    ),
    Method.CONSUMER_GROUP_DESCRIBE: (
        Ask(_P.DESCRIBE, _GROUP, _ITEM),
        Ask(_P.DESCRIBE, _TOPIC, _ITEM, "of all topics of all members"),
    ),
    Method.SHARE_GROUP_HEARTBEAT: (_READ_GROUP, Ask(_P.DESCRIBE, _TOPIC, when="of each topic that is named")),
    Method.SHARE_GROUP_DESCRIBE: (
        Ask(_P.DESCRIBE, _GROUP, _ITEM),
        Ask(_P.DESCRIBE, _TOPIC, _ITEM, "of all topics of all members"),
    ),
    Method.STREAMS_GROUP_HEARTBEAT: (
        _READ_GROUP,
        Ask(_P.DESCRIBE, _TOPIC, when="of each topic of the topology; missing ones are made as by CreateTopics"),
    ),
    Method.STREAMS_GROUP_DESCRIBE: (
        Ask(_P.DESCRIBE, _GROUP, _ITEM),
        Ask(_P.DESCRIBE, _TOPIC, _ITEM, "of all topics of the topology"),
    ),
    Method.SHARE_FETCH: (_READ_GROUP, Ask(_P.READ, _TOPIC, _ITEM)),
    Method.SHARE_ACKNOWLEDGE: (_READ_GROUP, Ask(_P.READ, _TOPIC, _ITEM)),
    Method.TXN_SHARE_ACKNOWLEDGE: (_WRITE_ID, _READ_GROUP, Ask(_P.READ, _TOPIC)),
    Method.DESCRIBE_SHARE_GROUP_OFFSETS: (
        Ask(_P.DESCRIBE, _GROUP),
        Ask(_P.DESCRIBE, _TOPIC, _ITEM, "of each topic that is named; others are left out"),
    ),
    Method.ALTER_SHARE_GROUP_OFFSETS: (_READ_GROUP, Ask(_P.READ, _TOPIC, _ITEM)),
    Method.DELETE_SHARE_GROUP_OFFSETS: (Ask(_P.DELETE, _GROUP), Ask(_P.READ, _TOPIC, _ITEM)),
    Method.DESCRIBE_GROUPS: (Ask(_P.DESCRIBE, _GROUP, _ITEM),),
    Method.LIST_GROUPS: (
        Ask(_P.DESCRIBE, _CLUSTER, _HIDDEN, "shows all groups"),
        Ask(_P.DESCRIBE, _GROUP, _HIDDEN, "otherwise, of each group"),
    ),
    Method.DELETE_GROUPS: (Ask(_P.DELETE, _GROUP, _ITEM),),
    Method.OFFSET_COMMIT: (_READ_GROUP, Ask(_P.READ, _TOPIC, _ITEM)),
    Method.OFFSET_FETCH: (
        Ask(_P.DESCRIBE, _GROUP, _ITEM),
        Ask(_P.DESCRIBE, _TOPIC, _ITEM, "of each topic that is named; others are left out"),
        Ask(_P.DESCRIBE, _ID, _HIDDEN, "transactional ids that an offset waits for"),
    ),
    Method.OFFSET_DELETE: (Ask(_P.DELETE, _GROUP), Ask(_P.READ, _TOPIC, _ITEM)),
    Method.TXN_OFFSET_COMMIT: (_WRITE_ID, _READ_GROUP, Ask(_P.READ, _TOPIC, _ITEM)),
    Method.DESCRIBE_GROUP_CONFIGS: (Ask(_P.DESCRIBE_CONFIGS, _GROUP),),
    Method.ALTER_GROUP_CONFIGS: (
        Ask(_P.ALTER_CONFIGS, _GROUP),
        Ask(_P.WRITE, _TOPIC, when="of share_dead_letter_topic, if it is set"),
    ),
    Method.CREATE_TOPICS: (
        Ask(_P.CREATE, _CLUSTER, _ITEM, "allows any topic"),
        Ask(_P.CREATE, _TOPIC, _ITEM, "otherwise"),
    ),
    Method.DELETE_TOPICS: (Ask(_P.DELETE, _TOPIC, _ITEM),),
    Method.DESCRIBE_TOPICS: (Ask(_P.DESCRIBE, _TOPIC, _ITEM, "of each topic that is named; others are left out"),),
    Method.CREATE_PARTITIONS: (Ask(_P.ALTER, _TOPIC, _ITEM),),
    Method.ALTER_TOPIC_CONFIGS: (
        Ask(_P.ALTER_CONFIGS, _TOPIC, _ITEM),
        Ask(_P.ALTER_CONFIGS, _CLUSTER, _ITEM, OF_BROKER),
    ),
    Method.DESCRIBE_TOPIC_CONFIGS: (
        Ask(_P.DESCRIBE_CONFIGS, _TOPIC, _ITEM, "of each topic that is named; others are left out"),
        Ask(_P.DESCRIBE_CONFIGS, _CLUSTER, _ITEM, OF_BROKER),
    ),
    Method.DELETE_RECORDS: (Ask(_P.DELETE, _TOPIC, _ITEM),),
    Method.PRODUCE: (
        Ask(_P.WRITE, _ID, when="in a transaction; for a member of a sink's batch, named as the sink"),
        Ask(_P.WRITE, _TOPIC, _ITEM),
    ),
    Method.FETCH: (Ask(_P.READ, _TOPIC, _ITEM),),
    Method.LIST_OFFSETS: (Ask(_P.DESCRIBE, _TOPIC, _ITEM),),
    Method.COUNT_RECORDS: (Ask(_P.DESCRIBE, _TOPIC, _ITEM),),
    Method.MEASURE_RECORDS: (Ask(_P.DESCRIBE, _TOPIC, _ITEM),),
    Method.LIST_COMMITTED_TRANSACTIONS: (Ask(_P.READ, _TOPIC, _ITEM),),
    Method.TAKE_SNAPSHOT: (Ask(_P.READ, _TOPIC), Ask(_P.SNAPSHOT, _TOPIC)),
    Method.RENEW_SNAPSHOT: (_HOLD,),
    Method.RELEASE_SNAPSHOT: (_HOLD,),
    Method.WRITE_TXN_MARKERS: (
        Ask(_P.ALTER, _CLUSTER, when="for people"),
        Ask(_P.CLUSTER_ACTION, _CLUSTER, when="otherwise, for servers"),
    ),
    Method.DESCRIBE_PRODUCERS: (Ask(_P.READ, _TOPIC, _ITEM),),
    Method.DESCRIBE_LIMITS: (),
    Method.ABORT_TRANSACTIONS: _ENDED,
    Method.FENCE_PRODUCERS: _ENDED,
    Method.EXPLAIN_PARTITION: (
        Ask(_P.DESCRIBE, _TOPIC),
        Ask(_P.READ, _TOPIC, _HIDDEN, "the producer"),
        Ask(_P.DESCRIBE, _ID, _HIDDEN, "the transactional id"),
        Ask(_P.DESCRIBE, _GROUP, _HIDDEN, "groups of the transaction"),
    ),
    Method.LIST_HANGING_TRANSACTIONS: (_LOOK,),
    Method.ABORT_HANGING_TRANSACTIONS: (_ADMINISTER,),
    Method.LIST_SHARDS: (_LOOK,),
    Method.LOAD_SHARD: (_ADMINISTER,),
    Method.UNLOAD_SHARD: (_ADMINISTER,),
    Method.CREATE_BACKUP: (Ask(_P.BACKUP, _CLUSTER),),
    Method.LIST_BACKUPS: (_LOOK,),
    Method.CREATE_ACLS: (_ADMINISTER,),
    Method.DELETE_ACLS: (_ADMINISTER,),
    Method.DESCRIBE_ACLS: (_LOOK,),
    Method.CHECK_PERMISSION: (Ask(_P.DESCRIBE, _CLUSTER, when="for another principal than the caller"),),
    Method.LIST_PARTITIONS: (
        Ask(_P.DESCRIBE, _TOPIC, _HIDDEN),
        Ask(_P.DESCRIBE, _ID, _HIDDEN, "the transactional id"),
    ),
    Method.DESCRIBE_RATES: (_LOOK,),
    Method.LIST_EVENTS: (_LOOK,),
    Method.DESCRIBE_SERVER_CONFIG: (Ask(_P.DESCRIBE_CONFIGS, _CLUSTER),),
    Method.DESCRIBE_QUOTAS: (_LOOK,),
    Method.LIST_SNAPSHOTS: (_LOOK,),
    Method.SESSION: (),
}
"""Questions by procedure, in the order in which they are asked. A caller that names a topic by its id alone, and may
not describe it, gets the same answer as for an unknown id."""


def _questions(asks: tuple[Ask, ...]) -> frozenset[tuple[Permission, ResourceType]]:
    asked = {(ask.permission, ask.resource_type) for ask in asks}
    by_id = {(_P.DESCRIBE, _TOPIC)} if any(ask.resource_type is _TOPIC for ask in asks) else set()
    return frozenset(asked | by_id)


QUESTIONS: Final[Mapping[Method, frozenset[tuple[Permission, ResourceType]]]] = {
    method: _questions(asks) for method, asks in PERMISSIONS.items()
}
"""All questions that a procedure may ask."""
