"""Stored history of a transactional id: the few values of each step that the next one overwrites.

A decision stores the identity of its markers, and the partitions and groups as they were decided. None of them is
derived later from subsequent steps.

Source: docs/store-format.md.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from coordinator_protocol.marker import Outcome
from coordinator_runtime.participants import ShareKey
from coordinator_runtime.store import Family, StoreDamaged
from txn_coordinator.state import COMPLETE, OUTCOMES, PREPARE_STATES, Identity, TransactionState


class DecidedFor(Struct, frozen=True, array_like=True, gc=False):
    """Transaction that an outcome was decided for, and the contents of its markers."""

    producer_id: int
    txn_epoch: int
    """Epoch of the records, which the markers end."""
    next_epoch: int
    partitions: tuple[int, ...]
    """Ordinals."""
    groups: tuple[str, ...]
    is_transact: bool
    """True if one Transact decided the transaction, after opening it or adding to it. The opening has no step of its
    own."""
    shares: tuple[ShareKey, ...] = ()
    """Share partitions."""


class StoredStep(Struct, frozen=True, array_like=True, gc=False):
    """State of a transactional id after a step."""

    state_number: int
    producer_id: int
    """Producer id of the client that may act; `producer_epoch` is its epoch."""
    producer_epoch: int
    last_producer_epoch: int
    csn: int
    participant_count: int
    decided: DecidedFor | None = None
    """Set in a Prepare state, and in a Complete state that was reached in the deciding operation."""

    @property
    def state(self) -> TransactionState | None:
        """State after the step; None if only a newer program knows it."""
        return _STATES.get(self.state_number)

    @property
    def state_name(self) -> str:
        """Name that users see."""
        state = self.state
        return f"Unknown({self.state_number})" if state is None else state.api_name

    @property
    def client_identity(self) -> Identity:
        return Identity(self.producer_id, self.producer_epoch)

    @property
    def outcome(self) -> Outcome | None:
        """Decided outcome; None in a state without one."""
        return None if self.state is None else OUTCOMES.get(self.state)

    @property
    def states(self) -> list[TransactionState | None]:
        """States that the step led through, in order."""
        states = [each.state for each in reversed(self.each)]
        if self.decided is not None and self.decided.is_transact:
            return [TransactionState.ONGOING, *states]
        return states

    @property
    def each(self) -> list[StoredStep]:
        """This step, followed by the decision if one operation did both."""
        decided, state = self.decided, self.state
        if decided is None or state not in COMPLETE:
            return [self]
        count = len(decided.partitions) + len(decided.groups) + len(decided.shares)
        return [self, replace(self, state_number=int(PREPARE_STATES[OUTCOMES[state]]), participant_count=count)]


_STATES: Final = {int(state): state for state in TransactionState}
_decode: Final = msgspec.msgpack.Decoder(StoredStep).decode


def decode_step(told: msgspec.Raw) -> StoredStep | None:
    """Decode a step; None if the id was forgotten. Raises StoreDamaged if it is unreadable."""
    if bytes(told) == b"\xc0":
        return None
    try:
        return _decode(told)
    except msgspec.DecodeError as damage:
        raise StoreDamaged(Family.HISTORY, f"a step of a transactional id cannot be read: {damage}") from damage
