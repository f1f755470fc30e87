"""Status of a producer, with the table of its legal steps.

```
UNINITIALISED --> INITIALISING --> READY --> IN_TRANSACTION --> COMMITTING --> READY
      ^                              ^            |   |             |
      | (identity expired)           |            |   v             v (refused)
      +------- from any of them      |            | MUST_ABORT <----+
                                     |            v   |
                                     +-------- ABORTING          CLOSED <-- from any of them (fenced)

IN_TRANSACTION --> PREPARING --> PREPARED --> COMMITTING, ABORTING        for an outside decision
INITIALISING ------------------> PREPARED     kept from an earlier producer
```
A plain idempotent producer has only UNINITIALISED, INITIALISING, READY and CLOSED.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum, auto
from types import MappingProxyType
from typing import Final


class ProducerStatus(StrEnum):
    """Status of a producer, which says what it can do next."""

    UNINITIALISED = "UNINITIALISED"
    """The producer has no identity, or lost it: the next use asks for one."""
    INITIALISING = "INITIALISING"
    """InitProducerId is under way."""
    READY = "READY"
    """The producer has an identity and no open transaction; a plain producer sends in this status."""
    IN_TRANSACTION = "IN_TRANSACTION"
    """Records are taken and sent."""
    MUST_ABORT = "MUST_ABORT"
    """A send failed or a commit was refused: only an abort can follow."""
    PREPARING = "PREPARING"
    """PrepareTransaction is under way. Unless it succeeds, the transaction is aborted."""
    PREPARED = "PREPARED"
    """The transaction waits for an outside decision; only a `PreparedTransaction` ends it."""
    COMMITTING = "COMMITTING"
    """EndTxn(commit) was sent. Without an answer by the deadline the producer keeps this status: the outcome is
    unknown."""
    ABORTING = "ABORTING"
    """EndTxn(abort) was sent. Without an answer by the deadline it is sent again before the next transaction."""
    CLOSED = "CLOSED"
    """The producer is fenced, misconfigured or was closed: nothing is sent any more."""


OPEN: Final = frozenset({ProducerStatus.IN_TRANSACTION, ProducerStatus.MUST_ABORT})
"""Statuses of a producer whose caller has a transaction open."""


class Goal(Enum):
    """Goals that the caller of a producer can wait for."""

    INIT = auto()
    RECOVER = auto()
    LEARN = auto()
    BEGIN = auto()
    FLUSH = auto()
    PREPARE = auto()
    COMMIT = auto()
    ABORT = auto()
    RESOLVE = auto()


_S = ProducerStatus

STEPS: Final[Mapping[ProducerStatus, frozenset[ProducerStatus]]] = MappingProxyType(
    {
        _S.UNINITIALISED: frozenset({_S.INITIALISING, _S.CLOSED}),
        _S.INITIALISING: frozenset({_S.READY, _S.PREPARED, _S.UNINITIALISED, _S.CLOSED}),
        _S.READY: frozenset({_S.IN_TRANSACTION, _S.UNINITIALISED, _S.CLOSED}),
        # A transaction that never reached the server ends without a request: straight back to READY.
        _S.IN_TRANSACTION: frozenset(
            {_S.MUST_ABORT, _S.PREPARING, _S.COMMITTING, _S.ABORTING, _S.READY, _S.UNINITIALISED, _S.CLOSED}
        ),
        _S.PREPARING: frozenset({_S.PREPARED, _S.MUST_ABORT, _S.UNINITIALISED, _S.CLOSED}),
        _S.PREPARED: frozenset({_S.COMMITTING, _S.ABORTING, _S.CLOSED}),
        _S.MUST_ABORT: frozenset({_S.ABORTING, _S.READY, _S.UNINITIALISED, _S.CLOSED}),
        # A refused commit of a prepared transaction leaves it prepared: only its owner may decide to abort it.
        _S.COMMITTING: frozenset({_S.READY, _S.MUST_ABORT, _S.PREPARED, _S.UNINITIALISED, _S.CLOSED}),
        _S.ABORTING: frozenset({_S.READY, _S.UNINITIALISED, _S.CLOSED}),
        _S.CLOSED: frozenset(),
    }
)


def step(status: ProducerStatus, to: ProducerStatus) -> ProducerStatus:
    """Return the new status; an illegal step is a bug of this package."""
    assert to in STEPS[status], f"a producer cannot go from {status} to {to}"
    return to
