"""The state of one transactional id, and the table of its legal steps.

A transaction is decided by a durable Prepare state and finished by markers in every participant; then it is Complete
and the next one may open. The table is the law: a step that is not in it is a bug of ours, never a client's error, and
every change of `state` goes through `step`.

    Empty ----> Ongoing ----> PrepareCommit ----> CompleteCommit ---+
      ^            ^   \\----> PrepareAbort -----> CompleteAbort ----+
      |            +--------------- next transaction --------------- |
      +------------------------------ InitProducerId ----------------+

What each state answers:
- Empty: identity exists, nothing is open. Adding opens; a commit is INVALID_TXN_STATE.
- Ongoing: accepts adds and data; its end is the client's, the timeout's, or a newer instance's. Once *prepared* for an
  outside decision, or *kept* by a newer instance that recovers it, it accepts no more, and ends as that decision says.
- PrepareCommit, PrepareAbort: the outcome is durable and can never change. Everything waits (CONCURRENT_TRANSACTIONS).
- CompleteCommit, CompleteAbort: every marker is durable. Like Empty, and answers retries of the end it remembers.

Source: spec transactions 1.1 - 1.3. Persisted numbers are the spec's; Dead and PrepareEpochFence of Kafka do not exist
here, because a decision is made and replayed in one step and never pends.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from coordinator_protocol.marker import Outcome

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIMEOUT_MS: Final = 2**31 - 1
"""Timeout of a participant in somebody else's two-phase commit: its transactions wait for that decision for ever."""


LOST_INCARNATION: Final = "lost_line"
"""Cause of an abort by a server that goes on with less than it had: part of the transaction may be lost."""

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
        """The name that users see and filter by, for example "PrepareCommit"."""
        return _API_NAMES[self]


_API_NAMES: Final = {state: state.name.title().replace("_", "") for state in TransactionState}

PREPARE_STATES: Final = {Outcome.COMMIT: TransactionState.PREPARE_COMMIT, Outcome.ABORT: TransactionState.PREPARE_ABORT}
"""The state in which each outcome is decided."""

COMPLETE_STATES: Final = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}
"""What follows once every participant has its marker."""

IDLE: Final = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
"""No transaction is open and none is being finished."""

DECIDED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
"""The outcome is decided, markers are under way."""

OPEN: Final = frozenset(TransactionState) - IDLE
"""A transaction holds something up: it is open, or decided and not complete."""

COMPLETE: Final = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
"""A transaction ended, and no other has opened since."""

OUTCOMES: Final = {
    TransactionState.PREPARE_COMMIT: Outcome.COMMIT,
    TransactionState.PREPARE_ABORT: Outcome.ABORT,
    TransactionState.COMPLETE_COMMIT: Outcome.COMMIT,
    TransactionState.COMPLETE_ABORT: Outcome.ABORT,
}
"""The outcome that each state was decided for."""

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
    """What a producer shows with every request."""

    producer_id: int
    producer_epoch: int


class InitAnswer(Struct, frozen=True, gc=False):
    """What the last InitProducerId was answered, so that its repetition gets the same answer (design 6)."""

    request_id: bytes
    identity: Identity
    ongoing: Identity | None = None
    """Identity of the open transaction that was kept, which its owner noted beside the outside decision. None: none was
    kept."""


class Member(Struct, frozen=True, gc=False):
    """What makes a transaction one of several that are decided together, as a batch of a sink (`sinks`)."""

    batch_id: int
    attempt: str
    """What the engine calls who writes it, for people."""


class Transaction(Struct, frozen=True, kw_only=True, gc=False):
    """Everything known about one transactional id. A complete snapshot: the newest stored one is enough."""

    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_EPOCH
    """-1 only inside the operation that creates the id. In a Prepare state already the epoch after the bump."""
    last_producer_epoch: int = NO_EPOCH
    """The epoch before the last bump that was made on the client's own behalf; -1 = a new instance took over."""
    prev_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last rotation, while a retry may still name it."""
    next_producer_id: int = NO_PRODUCER_ID
    """Producer id of the client, where the client has another identity than the one the transaction was opened with.
    Ongoing: of the newer instance that keeps the transaction. Prepare states: of the next transaction."""
    next_producer_epoch: int = NO_EPOCH
    txn_timeout_ms: int
    """NO_TIMEOUT_MS = two-phase participant."""
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[int] = frozenset()
    """Ordinals of the partitions in the transaction; empty unless Ongoing or Prepare."""
    groups: frozenset[str] = frozenset()
    """Groups with offsets in the transaction; empty unless Ongoing or Prepare."""
    start_ms: int = -1
    last_update_ms: int
    client_txn_version: int = 2
    txn_epoch: int = NO_EPOCH
    """Epoch under which the records of a decided transaction were written, which its markers name; else -1."""
    csn: int = 0
    """Commit sequence number of the last decided outcome; 0 = none."""
    init: InitAnswer | None = None
    cause: str = ""
    """Why the last step was taken."""
    prepared_ms: int | None = None
    """When PrepareTransaction closed the open transaction; None = it did not."""
    transact_id: bytes = b""
    """Request id of the Transact that decided the outcome, in Prepare and Complete states; empty: it was none."""
    member: Member | None = None
    """Set for a member of a sink's batch: then the id exists for this one transaction. It is open from its first
    moment, its sink decides it or gives it up, and it is forgotten once it is complete."""

    @property
    def identity(self) -> Identity:
        """The identity under which the transaction's records were written."""
        return Identity(self.producer_id, self.producer_epoch)

    @property
    def client_identity(self) -> Identity:
        """What the one client that may act must show (spec transactions 10)."""
        if self.next_producer_epoch == NO_EPOCH:
            return Identity(self.producer_id, self.producer_epoch)
        return Identity(self.next_producer_id, self.next_producer_epoch)

    @property
    def is_kept(self) -> bool:
        """Open, and taken over by a newer instance that will end it as it was decided outside."""
        return self.next_producer_epoch != NO_EPOCH and self.state is TransactionState.ONGOING

    @property
    def is_closed(self) -> bool:
        """Open, and takes no more: prepared for an outside decision, or kept until it is known."""
        return self.state is TransactionState.ONGOING and (
            self.prepared_ms is not None or self.next_producer_epoch != NO_EPOCH
        )

    @property
    def never_times_out(self) -> bool:
        """The server never ends it alone: it takes part in somebody else's two-phase commit, or was prepared. A member
        of a sink's batch is prepared for a decision of ours, and given up when that does not come."""
        return self.txn_timeout_ms == NO_TIMEOUT_MS or (self.prepared_ms is not None and self.member is None)

    @property
    def awaits_decision(self) -> bool:
        """Open, and it never times out: somebody else decides how it ends."""
        return self.state is TransactionState.ONGOING and self.never_times_out

    def age_ms(self, now_ms: int) -> int | None:
        """How long the transaction has held something up, never negative, although a wall clock may go back. None:
        there is none."""
        return max(now_ms - self.start_ms, 0) if self.state in OPEN else None

    @property
    def participant_count(self) -> int:
        return len(self.partitions) + len(self.groups)

    @property
    def outcome(self) -> Outcome:
        """The decided outcome. Only in Prepare and Complete states: KeyError in others, which is a bug of ours."""
        return OUTCOMES[self.state]


class IllegalStep(AssertionError):
    """A bug of ours: a step that is not in the table."""

    def __init__(self, before: TransactionState, after: TransactionState) -> None:
        super().__init__(f"{before.api_name} -> {after.api_name} is no legal step")
        self.before = before
        self.after = after


def step(transaction: Transaction, to: TransactionState, **changes: Any) -> Transaction:  # noqa: ANN401
    """The transaction in another state. Raises IllegalStep."""
    if to not in LEGAL_STEPS[transaction.state]:
        raise IllegalStep(transaction.state, to)
    changes["state"] = to
    return replace(transaction, **changes)
