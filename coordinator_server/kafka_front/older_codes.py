"""Error codes as each version of an API knows them.

A code that a version does not know would be taken for an unexpected error, and most clients give up at one. So they get
the code that Kafka answers in its place, which asks the same of them.

Source: KIP-588 (PRODUCER_FENCED); KIP-890 (TRANSACTION_ABORTABLE); KIP-848 (offsets of consumer groups). Kafka's
`KafkaApis`, `AddPartitionsToTxnManager`, `OffsetMetadataManager`, `TransactionStateManager` and
`GroupCoordinatorService`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from coordinator_protocol.errors import ErrorCode
from coordinator_server.kafka_front.apis import ApiKey

NEVER: Final = 1 << 15
"""First version of a code that no version knows."""

COORDINATORS: Final = (
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_DESCRIBE,
    ApiKey.STREAMS_GROUP_HEARTBEAT,
    ApiKey.STREAMS_GROUP_DESCRIBE,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_DELETE,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.DELETE_GROUPS,
)
"""APIs of coordinators. OffsetFetch has codes of its own."""

PARTITIONS: Final = (
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.DELETE_RECORDS,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
)
"""APIs of partitions besides Produce."""

_NO_VERSION_OF_COORDINATORS: Final = dict.fromkeys(COORDINATORS, NEVER)

_NO_VERSION_OF_PARTITIONS: Final = dict.fromkeys(PARTITIONS, NEVER)

_ROWS: Final = (
    (
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        {
            ApiKey.INIT_PRODUCER_ID: 4,
            ApiKey.ADD_PARTITIONS_TO_TXN: 2,
            ApiKey.ADD_OFFSETS_TO_TXN: 2,
            ApiKey.END_TXN: 2,
            ApiKey.PRODUCE: NEVER,
            ApiKey.TXN_OFFSET_COMMIT: NEVER,
        },
    ),
    (
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_TXN_STATE,
        {
            ApiKey.PRODUCE: 11,
            ApiKey.INIT_PRODUCER_ID: 5,
            ApiKey.ADD_PARTITIONS_TO_TXN: 5,
            ApiKey.ADD_OFFSETS_TO_TXN: 4,
            ApiKey.TXN_OFFSET_COMMIT: 4,
            ApiKey.END_TXN: 4,
        },
    ),
    # Producers before Kafka 2.0 crash at the other code (KAFKA-7296).
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        {ApiKey.TXN_OFFSET_COMMIT: 2},
    ),
    (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.ILLEGAL_GENERATION, {ApiKey.OFFSET_COMMIT: 9}),
    (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNSUPPORTED_VERSION, {ApiKey.OFFSET_COMMIT: 9}),
    # Clients look for the coordinator again and repeat the call. The repetition is idempotent.
    (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE, _NO_VERSION_OF_COORDINATORS),
    (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE, _NO_VERSION_OF_COORDINATORS),
    (
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_COORDINATOR,
        {**_NO_VERSION_OF_COORDINATORS, ApiKey.OFFSET_FETCH: NEVER},
    ),
    # Consumers before Kafka 3.9 do not know COORDINATOR_NOT_AVAILABLE here, and those send older versions than 10.
    (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, {ApiKey.OFFSET_FETCH: 10}),
    (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_COORDINATOR, {ApiKey.OFFSET_FETCH: NEVER}),
    (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_COORDINATOR, {ApiKey.OFFSET_FETCH: NEVER}),
    # As when Kafka cannot ask the coordinator whether a partition is in the transaction. Producers repeat the batch.
    (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS, {ApiKey.PRODUCE: NEVER}),
    (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS, {ApiKey.PRODUCE: NEVER}),
    (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS, {ApiKey.PRODUCE: NEVER}),
    (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS, {ApiKey.PRODUCE: 12}),
    # Of a server that loads or stops. Clients look for the leader again and repeat the call.
    (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_LEADER_OR_FOLLOWER, _NO_VERSION_OF_PARTITIONS),
    (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER, _NO_VERSION_OF_PARTITIONS),
)
"""Code, code in its place, and the first version of each API that knows it."""


def _older() -> Iterator[tuple[tuple[ErrorCode, ApiKey], tuple[int, ErrorCode]]]:
    for code, instead, since in _ROWS:
        for key, version in since.items():
            yield (code, key), (version, instead)


_OLDER: Final[Mapping[tuple[ErrorCode, ApiKey], tuple[int, ErrorCode]]] = MappingProxyType(dict(_older()))


def known_code(key: ApiKey, version: int, code: ErrorCode) -> ErrorCode:
    """Return the code, or the one that Kafka answers in its place to this version."""
    since, instead = _OLDER.get((code, key), (0, code))
    return code if version >= since else instead
