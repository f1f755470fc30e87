"""Error codes as each version of an API knows them.

A code that a version does not know would be taken for an unknown error, and most clients give up at one. So old
versions get the older code that asks the same of the client.

Source: KIP-588 (PRODUCER_FENCED), KIP-890 (TRANSACTION_ABORTABLE), KIP-219 (no refusals over quotas), KIP-1222
(INVALID_RECORD_STATE for a forbidden renewal); Kafka's `KafkaApis`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from coordinator_protocol.errors import CoordinatorError, ErrorCode, NotInTransaction, RenewalForbidden, UnknownOutcome
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.older_codes import known_code

FETCH_SESSION_ID_NOT_FOUND: Final = 70
INVALID_REQUIRED_ACKS: Final = 21
INVALID_REPLICATION_FACTOR: Final = 38
INVALID_REPLICA_ASSIGNMENT: Final = 39
UNSUPPORTED_SASL_MECHANISM: Final = 33
ILLEGAL_SASL_STATE: Final = 34
NOT_CONTROLLER: Final = 41
SASL_AUTHENTICATION_FAILED: Final = 58
MISMATCHED_ENDPOINT_TYPE: Final = 114
UNSUPPORTED_ENDPOINT_TYPE: Final = 115
"""Codes that only this front needs, so the core does not have them."""


class FrontRefused(CoordinatorError):
    """A refusal with a code that only this front has."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        self.number = number


_WITHOUT_CAPACITY: Final[Mapping[ApiKey, ErrorCode]] = MappingProxyType(
    {
        ApiKey.PRODUCE: ErrorCode.NOT_ENOUGH_REPLICAS,
        ApiKey.FETCH: ErrorCode.NONE,
        ApiKey.OFFSET_FETCH: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ApiKey.LIST_OFFSETS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ApiKey.DELETE_RECORDS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ApiKey.SHARE_FETCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ApiKey.SHARE_ACKNOWLEDGE: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""Answers to a call for which there is no capacity now. Every client repeats them; THROTTLING_QUOTA_EXCEEDED it does
not know there. A Fetch gets no records and no error."""
_QUOTAS_SINCE: Final[Mapping[ApiKey, int]] = MappingProxyType(
    {ApiKey.CREATE_TOPICS: 6, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 3}
)
"""First version that knows THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


def code_for(key: ApiKey, version: int, error: CoordinatorError | None) -> int:
    """Return the code of an error for a version of an API; 0 for none."""
    if error is None:
        return 0
    if isinstance(error, FrontRefused):
        return error.number
    code = _code(error)
    if code is ErrorCode.THROTTLING_QUOTA_EXCEEDED and version < _QUOTAS_SINCE.get(key, version + 1):
        return _WITHOUT_CAPACITY.get(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return known_code(key, version, code)


def _code(error: CoordinatorError) -> ErrorCode:
    """Return the code of an error for clients that know all codes."""
    if isinstance(error, UnknownOutcome):
        # Clients repeat such a call, and the repetition is idempotent.
        return ErrorCode.REQUEST_TIMED_OUT
    if isinstance(error, RenewalForbidden):
        return ErrorCode.INVALID_RECORD_STATE
    return ErrorCode.TRANSACTION_ABORTABLE if isinstance(error, NotInTransaction) else error.code
