"""State of one transactional id, and the table of its legal steps.

A transaction is decided by a durable Prepare state and finished by markers in every participant. Then it is Complete
and the next one may open. The table, `LEGAL_STEPS`, is binding: a step outside it is a bug of this program, never a
client's error. Every change of `state` goes through `step`. ARCHITECTURE.md has a drawing that is made from the table.

Answers of each state:
- Empty: the identity exists, no transaction is open. Adding opens; a commit is INVALID_TXN_STATE.
- Ongoing: accepts adds and data; its end is the client's, the timeout's, or a newer instance's. Once *prepared* for an
  outside decision, or *kept* by a newer instance that recovers it, it is closed to additions. It then ends as that
  decision says.
- PrepareCommit, PrepareAbort: the outcome is durable and can never change. Everything waits (CONCURRENT_TRANSACTIONS).
- CompleteCommit, CompleteAbort: every marker is durable. Like Empty, and answers retries of the end it remembers.

Source: spec transactions 1.1 - 1.3. Persisted numbers are the spec's. Kafka's Dead and PrepareEpochFence do not exist
here, because a decision is made and replayed in one step and is never pending.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from coordinator_protocol.marker import Outcome
from coordinator_runtime.participants import ShareKey

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIMEOUT_MS: Final = 2**31 - 1
"""Timeout of a participant in an outside two-phase commit: its transactions wait for that decision without limit."""


LOST_INCARNATION: Final = "lost_line"
"""Cause of an abort by a server that lost data: part of the transaction may be lost. The text is stored and shown to
users, so it keeps an older word for incarnation."""

TAKEN_OVER: Final = "fence"
"""Cause of an abort for a newer instance, which initialises next."""


class TransactionState(IntEnum):
    """States with their stored numbers."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def api_name(self) -> str:
        """Name that users see and use in filters, for example "PrepareCommit"."""
        return _API_NAMES[self]


_API_NAMES: Final = {state: state.name.title().replace("_", "") for state in TransactionState}

PREPARE_STATES: Final = {Outcome.COMMIT: TransactionState.PREPARE_COMMIT, Outcome.ABORT: TransactionState.PREPARE_ABORT}
"""State in which each outcome is decided."""

COMPLETE_STATES: Final = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}
"""Next state, once every participant has its marker."""

IDLE: Final = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
"""States in which no transaction is open and none is being finished."""

DECIDED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
"""States in which the outcome is decided and markers are being written."""

OPEN: Final = frozenset(TransactionState) - IDLE
"""States in which a transaction is open, or decided and not complete."""

COMPLETE: Final = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
"""States in which a transaction ended, and no other has opened since."""

OUTCOMES: Final = {
    TransactionState.PREPARE_COMMIT: Outcome.COMMIT,
    TransactionState.PREPARE_ABORT: Outcome.ABORT,
    TransactionState.COMPLETE_COMMIT: Outcome.COMMIT,
    TransactionState.COMPLETE_ABORT: Outcome.ABORT,
}
"""Outcome that each state was decided for."""

LEGAL_STEPS: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    TransactionState.EMPTY: frozenset(
        {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT}
    ),
    TransactionState.ONGOING: frozenset(
        {TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}
    ),
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.COMPLETE_COMMIT}),
    TransactionState.PREPARE_ABORT: frozenset({TransactionState.COMPLETE_ABORT}),
    TransactionState.COMPLETE_COMMIT: frozenset(
        {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT}
    ),
    TransactionState.COMPLETE_ABORT: frozenset(
        {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT}
    ),
}


class Identity(NamedTuple):
    """Producer id and epoch, which a producer shows with every request."""

    producer_id: int
    producer_epoch: int


class InitAnswer(Struct, frozen=True, gc=False):
    """Answer to the last InitProducerId, so that its repetition gets the same one (design 6)."""

    request_id: bytes
    identity: Identity
    ongoing: Identity | None = None
    """Identity of the open transaction that was kept, which its owner stored with the outside decision; None if none
    was kept."""


class Member(Struct, frozen=True, gc=False):
    """Membership of a transaction in a batch of a sink, whose transactions are decided together (`sinks`)."""

    batch_id: int
    attempt: str
    """Name that the engine gives to the writing task, for people."""


class Transaction(Struct, frozen=True, kw_only=True, gc=False):
    """Everything known about one transactional id. A complete snapshot: the newest stored one is enough."""

    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_EPOCH
    """Epoch of the producer id. -1 only inside the operation that creates the id. In a Prepare state it is already the
    epoch after the bump."""
    last_producer_epoch: int = NO_EPOCH
    """Epoch before the last bump on the client's own behalf; -1 if a new instance took over."""
    prev_producer_id: int = NO_PRODUCER_ID
    """Producer id before the last rotation, while a retry may still name it."""
    next_producer_id: int = NO_PRODUCER_ID
    """Producer id of the client, if it has another identity than the one that opened the transaction. In Ongoing it is
    that of the newer instance that keeps the transaction; in Prepare states that of the next transaction."""
    next_producer_epoch: int = NO_EPOCH
    txn_timeout_ms: int
    """NO_TIMEOUT_MS = two-phase participant."""
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[int] = frozenset()
    """Ordinals of the partitions in the transaction; empty unless Ongoing or Prepare."""
    groups: frozenset[str] = frozenset()
    """Groups with offsets in the transaction; empty unless Ongoing or Prepare."""
    shares: frozenset[ShareKey] = frozenset()
    """Share partitions with records acknowledged in the transaction; empty unless Ongoing or Prepare."""
    start_ms: int = -1
    last_update_ms: int
    client_txn_version: int = 2
    txn_epoch: int = NO_EPOCH
    """Epoch of the records of a decided transaction, which its markers name; else -1."""
    csn: int = 0
    """Commit sequence number of the last decided outcome; 0 = none."""
    init: InitAnswer | None = None
    cause: str = ""
    """Cause of the last step."""
    prepared_ms: int | None = None
    """Wall time at which PrepareTransaction closed the open transaction; None if it did not."""
    transact_id: bytes = b""
    """Request id of the Transact that decided the outcome, in Prepare and Complete states; empty if there was none."""
    member: Member | None = None
    """Set for a member of a sink's batch, whose id exists for this one transaction. It is open from the start, its sink
    decides it or gives it up, and it is forgotten once complete."""

    @property
    def identity(self) -> Identity:
        """Identity under which the transaction's records were written."""
        return Identity(self.producer_id, self.producer_epoch)

    @property
    def client_identity(self) -> Identity:
        """Identity that the one client that may act must show (spec transactions 10)."""
        if self.next_producer_epoch == NO_EPOCH:
            return Identity(self.producer_id, self.producer_epoch)
        return Identity(self.next_producer_id, self.next_producer_epoch)

    @property
    def is_kept(self) -> bool:
        """True if open, and taken over by a newer instance that will end it as it was decided outside."""
        return self.next_producer_epoch != NO_EPOCH and self.state is TransactionState.ONGOING

    @property
    def is_closed(self) -> bool:
        """True if open but closed to additions: prepared for an outside decision, or kept until that is known."""
        return self.state is TransactionState.ONGOING and (
            self.prepared_ms is not None or self.next_producer_epoch != NO_EPOCH
        )

    @property
    def never_times_out(self) -> bool:
        """True if the server never ends it on its own: it takes part in an outside two-phase commit, or was prepared.

        A member of a sink's batch is prepared for a decision of this server, and given up if that does not come.
        """
        return self.txn_timeout_ms == NO_TIMEOUT_MS or (self.prepared_ms is not None and self.member is None)

    @property
    def awaits_decision(self) -> bool:
        """True if it is open and never times out: its end is decided outside."""
        return self.state is TransactionState.ONGOING and self.never_times_out

    def age_ms(self, now_ms: int) -> int | None:
        """Return the age of the open or decided transaction; None if there is none. Never negative, although a wall
        clock may go back."""
        return max(now_ms - self.start_ms, 0) if self.state in OPEN else None

    @property
    def participant_count(self) -> int:
        return len(self.partitions) + len(self.groups) + len(self.shares)

    @property
    def outcome(self) -> Outcome:
        """Decided outcome. Only in Prepare and Complete states; a KeyError in others is a bug of this program."""
        return OUTCOMES[self.state]


class IllegalStep(AssertionError):
    """Step that is not in the table: a bug of this program."""

    def __init__(self, before: TransactionState, after: TransactionState) -> None:
        super().__init__(f"{before.api_name} -> {after.api_name} is no legal step")
        self.before = before
        self.after = after


def step(transaction: Transaction, to: TransactionState, **changes: Any) -> Transaction:  # noqa: ANN401
    """Return the transaction in another state. Raises IllegalStep."""
    if to not in LEGAL_STEPS[transaction.state]:
        raise IllegalStep(transaction.state, to)
    changes["state"] = to
    return replace(transaction, **changes)
