"""Rules for requests of administrators, and of coordinators elsewhere."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Marker
from coordinator_runtime.decision import Operation, ShardKey
from txn_coordinator.rules.ending import marker_of
from txn_coordinator.state import DECIDED, Identity, Transaction, TransactionState


class Asked(Struct, frozen=True):
    """Options of an administrator's request on an id."""

    dry_run: bool = False
    """True to reply with the intended changes, and make none."""
    older_than_ms: int | None = None
    """Age that the open transaction must exceed, or the request is refused; None for any age."""
    may_break_promise: bool = True
    """True if a transaction that awaits an outside decision may be ended."""


class Acted(Struct, frozen=True):
    """Reply to an administrator: the id before the change, and the fenced identity."""

    before: Transaction
    fenced: Identity

    @staticmethod
    def to(current: Transaction) -> Acted:
        return Acted(current, current.client_identity)


class FenceBegun(Struct, frozen=True):
    """Reply to an administrator: the open transaction is being aborted, and the fencing must be requested again."""

    acted: Acted


def check_open(current: Transaction) -> None:
    """Raise Refused INVALID_TXN_STATE unless a transaction is open that an administrator can abort."""
    if current.state in DECIDED:
        raise Refused(
            ErrorCode.INVALID_TXN_STATE,
            f"the transaction of {current.transactional_id!a} is decided ({current.outcome.name.lower()}) and being "
            "completed; nothing can change that",
        )
    if current.state is not TransactionState.ONGOING:
        raise Refused(
            ErrorCode.INVALID_TXN_STATE,
            f"no transaction of {current.transactional_id!a} is open (state {current.state.api_name})",
        )


def check_promise(current: Transaction, *, may_break: bool) -> None:
    """Raise Refused TRANSACTIONAL_ID_AUTHORIZATION_FAILED for an open transaction that awaits an outside decision,
    unless the administrator may break such promises."""
    if current.state is TransactionState.ONGOING and current.never_times_out and not may_break:
        raise Refused(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            f"the transaction of {current.transactional_id!a} awaits an outside decision, and to end it is to"
            " decide it: ask for the permission two_phase_commit on the transactional id",
        )


def check_open_longer(current: Transaction, older_than_ms: int, *, now_ms: int) -> None:
    """Raise Refused INVALID_TXN_STATE unless a transaction has been open for longer than this."""
    check_open(current)
    age_ms = now_ms - current.start_ms
    if age_ms <= older_than_ms:
        raise Refused(
            ErrorCode.INVALID_TXN_STATE,
            f"the transaction of {current.transactional_id!a} has been open for {age_ms} ms only",
        )


def check_foreign_marker(
    current: Transaction, ordinal: int, marker: Marker, *, coordinator_shard: int, coordinator_epoch: int
) -> None:
    """Raise Refused INVALID_TXN_STATE unless a marker from outside is exactly what was decided here.

    Only a durable Prepare state decides. The marker's coordinator epoch may be older than the current one, but not
    newer. With a newer one the partition would fence this coordinator, and no transaction of the producer could ever
    end there.
    """
    if (
        current.state in DECIDED
        and ordinal in current.partitions
        and replace(marker, coordinator_epoch=0) == marker_of(current, coordinator_shard, 0)
        and marker.coordinator_epoch <= coordinator_epoch
    ):
        return
    raise Refused(
        ErrorCode.INVALID_TXN_STATE,
        f"producer id {marker.producer_id} belongs to {current.transactional_id!a} of this server, for which this was "
        "not decided: end its transaction with EndTxn or AbortTransactions",
    )


def fence_operation(
    key: ShardKey,
    transactional_id: str,
    asked: Asked,
    *,
    may_abort_and_fence: bool = False,
    begun: Acted | None = None,
) -> Operation:
    """Return the operation that fences the producers of an id. `begun` is the finding at the start of the fencing."""
    return Operation(
        key,
        lambda shard, turn: shard.interventions.decide_fence(
            transactional_id, asked, turn, may_abort_and_fence=may_abort_and_fence, begun=begun
        ),
    )
