"""The APIs of Kafka's protocol that this front serves, and the versions of each.

A version is advertised only if every request of it gets the answer that Kafka gives, or an error that the protocol has
for it. The lowest version is Kafka's own, because clients fail where ranges do not overlap.

Source: `kafka-clients` 4.3.1, whose definitions the codecs are generated from; KIP-584 (features), KIP-890.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from coordinator_protocol.methods import Method
from coordinator_server.kafka_front.messages.tables import API_DEFINITIONS


class ApiKey(IntEnum):
    """Kafka's numbers of its APIs, as far as this front has them."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class Api(Struct, frozen=True):
    """One API: its versions, and the method of the core that bounds and counts its calls."""

    key: ApiKey
    lowest: int
    highest: int
    method: Method | None
    """None for what the connection answers itself."""
    listed_from: int
    """Lowest version that ApiVersions lists."""

    def has(self, version: int) -> bool:
        """Return True if the version is served."""
        return self.lowest <= version <= self.highest

    def is_flexible(self, version: int) -> bool:
        """Return True if the version has compact and tagged fields."""
        return API_DEFINITIONS[self.key].is_flexible(version)


def _api(
    key: ApiKey,
    method: Method | None,
    *,
    listed_from: int | None = None,
    highest: int | None = None,
) -> Api:
    """Return an API with the versions of its definition, or fewer."""
    definition = API_DEFINITIONS[key]
    lowest = definition.version_min
    highest = definition.version_max if highest is None else highest
    return Api(key, lowest, highest, method, lowest if listed_from is None else listed_from)


TXN_VERSION: Final = 2
"""`transaction.version`: with 2, clients let Produce and TxnOffsetCommit add to the transaction (KIP-890)."""
FEATURES: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(
    {
        "group.version": (0, 1),
        "share.version": (0, 1),
        "streams.version": (0, 1),
        "transaction.version": (0, TXN_VERSION),
    }
)
"""Features with the lowest and the highest level. The highest is finalised."""

APIS: Final[Mapping[int, Api]] = MappingProxyType(
    {
        api.key: api
        for api in (
            # Older librdkafka gives up where Produce 0 is not listed, and never sends it (KAFKA-18659).
            _api(ApiKey.PRODUCE, Method.PRODUCE, listed_from=0),
            _api(ApiKey.FETCH, Method.FETCH),
            _api(ApiKey.LIST_OFFSETS, Method.LIST_OFFSETS),
            _api(ApiKey.METADATA, Method.DESCRIBE_TOPICS),
            _api(ApiKey.OFFSET_COMMIT, Method.OFFSET_COMMIT),
            _api(ApiKey.OFFSET_FETCH, Method.OFFSET_FETCH),
            _api(ApiKey.FIND_COORDINATOR, Method.FIND_COORDINATOR),
            _api(ApiKey.JOIN_GROUP, Method.JOIN_GROUP),
            _api(ApiKey.HEARTBEAT, Method.HEARTBEAT),
            _api(ApiKey.LEAVE_GROUP, Method.LEAVE_GROUP),
            _api(ApiKey.SYNC_GROUP, Method.SYNC_GROUP),
            _api(ApiKey.DESCRIBE_GROUPS, Method.DESCRIBE_GROUPS),
            _api(ApiKey.LIST_GROUPS, Method.LIST_GROUPS),
            _api(ApiKey.SASL_HANDSHAKE, None),
            _api(ApiKey.API_VERSIONS, None),
            _api(ApiKey.CREATE_TOPICS, Method.CREATE_TOPICS),
            _api(ApiKey.DELETE_TOPICS, Method.DELETE_TOPICS),
            _api(ApiKey.DELETE_RECORDS, Method.DELETE_RECORDS),
            # Version 6 has the fields of two-phase commit, and is marked unstable.
            _api(ApiKey.INIT_PRODUCER_ID, Method.INIT_PRODUCER_ID, highest=5),
            _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, Method.LIST_OFFSETS),
            # From 4 on it is a call of brokers among themselves.
            _api(ApiKey.ADD_PARTITIONS_TO_TXN, Method.ADD_PARTITIONS_TO_TXN, highest=3),
            _api(ApiKey.ADD_OFFSETS_TO_TXN, Method.ADD_OFFSETS_TO_TXN),
            _api(ApiKey.END_TXN, Method.END_TXN),
            # It only ends hanging transactions.
            _api(ApiKey.WRITE_TXN_MARKERS, Method.ABORT_HANGING_TRANSACTIONS),
            _api(ApiKey.TXN_OFFSET_COMMIT, Method.TXN_OFFSET_COMMIT),
            _api(ApiKey.DESCRIBE_ACLS, Method.DESCRIBE_ACLS),
            _api(ApiKey.CREATE_ACLS, Method.CREATE_ACLS),
            _api(ApiKey.DELETE_ACLS, Method.DELETE_ACLS),
            _api(ApiKey.DESCRIBE_CONFIGS, Method.DESCRIBE_TOPIC_CONFIGS),
            _api(ApiKey.ALTER_CONFIGS, Method.ALTER_TOPIC_CONFIGS),
            _api(ApiKey.SASL_AUTHENTICATE, None),
            _api(ApiKey.CREATE_PARTITIONS, Method.CREATE_PARTITIONS),
            _api(ApiKey.DELETE_GROUPS, Method.DELETE_GROUPS),
            _api(ApiKey.INCREMENTAL_ALTER_CONFIGS, Method.ALTER_TOPIC_CONFIGS),
            _api(ApiKey.OFFSET_DELETE, Method.OFFSET_DELETE),
            _api(ApiKey.DESCRIBE_CLUSTER, Method.DESCRIBE_LIMITS),
            _api(ApiKey.DESCRIBE_PRODUCERS, Method.DESCRIBE_PRODUCERS),
            _api(ApiKey.DESCRIBE_TRANSACTIONS, Method.DESCRIBE_TRANSACTIONS),
            _api(ApiKey.LIST_TRANSACTIONS, Method.LIST_TRANSACTIONS),
            _api(ApiKey.CONSUMER_GROUP_HEARTBEAT, Method.CONSUMER_GROUP_HEARTBEAT),
            _api(ApiKey.CONSUMER_GROUP_DESCRIBE, Method.CONSUMER_GROUP_DESCRIBE),
            _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, Method.DESCRIBE_TOPICS),
            _api(ApiKey.SHARE_GROUP_HEARTBEAT, Method.SHARE_GROUP_HEARTBEAT),
            _api(ApiKey.SHARE_GROUP_DESCRIBE, Method.SHARE_GROUP_DESCRIBE),
            _api(ApiKey.SHARE_FETCH, Method.SHARE_FETCH),
            _api(ApiKey.SHARE_ACKNOWLEDGE, Method.SHARE_ACKNOWLEDGE),
            _api(ApiKey.STREAMS_GROUP_HEARTBEAT, Method.STREAMS_GROUP_HEARTBEAT),
            _api(ApiKey.STREAMS_GROUP_DESCRIBE, Method.STREAMS_GROUP_DESCRIBE),
            _api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, Method.DESCRIBE_SHARE_GROUP_OFFSETS),
            _api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, Method.ALTER_SHARE_GROUP_OFFSETS),
            _api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, Method.DELETE_SHARE_GROUP_OFFSETS),
        )
    }
)
