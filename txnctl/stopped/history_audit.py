"""Checks of the history in a stopped store: its steps, and each key's newest step beside the key's state.

Source: docs/store-format.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from msgspec.structs import replace

from coordinator_protocol.hashing import coordinator_key
from coordinator_protocol.marker import Outcome
from coordinator_runtime.decision import Coordinator, ShardKey
from coordinator_runtime.ports import EndIdentity
from coordinator_runtime.rows import HistoryRow
from coordinator_runtime.store import Family, StoreDamaged
from partition_log.catalog.codec import TOPIC_TYPE
from txn_coordinator.codec import TRANSACTION_TYPE, step_of
from txn_coordinator.records import TransactionChanged
from txn_coordinator.state import DECIDED, LEGAL_STEPS, OUTCOMES, TransactionState
from txn_coordinator.steps import DecidedFor, StoredStep, decode_step
from txnctl.stopped import stored
from txnctl.stopped.stored import StoredRows

_KEEPS_HISTORY: Final = frozenset({(Coordinator.CATALOG, TOPIC_TYPE), (Coordinator.TRANSACTIONS, TRANSACTION_TYPE)})
"""Record types whose every change is kept in the history."""


class Findings(Protocol):
    """Receiver of an audit's results: the number of examined items, and the violations."""

    examined: int

    def violated(self, what: str) -> None: ...


@dataclass(frozen=True, slots=True)
class DecidedOutcome:
    """An outcome as decided in its coordinator shard."""

    shard: int
    transactional_id: str
    csn: int
    producer_id: int
    txn_epoch: int
    outcome: Outcome
    partitions: frozenset[int]

    @property
    def identity(self) -> EndIdentity:
        """Identity that the markers of the outcome carry."""
        return EndIdentity(self.shard, self.csn, self.producer_id)

    @property
    def decision(self) -> tuple[int, str]:
        """Coordinator shard and key of the decision. The members of a sink's batch share its csn."""
        return self.shard, coordinator_key(self.transactional_id)

    def __str__(self) -> str:
        outcome = self.outcome.name.lower()
        return (
            f"{outcome} {self.csn} of {self.transactional_id!r} (producer {self.producer_id}, epoch {self.txn_epoch})"
        )


def decisions(rows: StoredRows) -> Iterator[DecidedOutcome]:
    """Yield every decided outcome that is still in the history, and the current ones."""
    for step in stored.history(rows, Coordinator.TRANSACTIONS):
        after = _after(step)
        if after is not None and after.decided is not None and after.state in OUTCOMES:
            yield _decided(step.shard.number, step.key.decode(), after, after.decided)
    for shard, transaction in stored.transactions_by_shard(rows):
        after = step_of(TransactionChanged(transaction))
        if transaction.state in DECIDED and after.decided is not None:
            yield _decided(shard, transaction.transactional_id, after, after.decided)


def _decided(shard: int, transactional_id: str, after: StoredStep, whom: DecidedFor) -> DecidedOutcome:
    assert after.state is not None, "what was decided is told by a known state"
    partitions = frozenset(whom.partitions)
    outcome = OUTCOMES[after.state]
    return DecidedOutcome(shard, transactional_id, after.csn, whom.producer_id, whom.txn_epoch, outcome, partitions)


def audit_history(rows: StoredRows, check: Findings) -> None:
    """Check the steps of the history against each other and against the states.

    Steps are numbered without gaps, and those of a transactional id are legal. The newest step of a key matches its
    state. For a transactional id that is identity, state and csn; for other keys only the existence of a state."""
    newest: dict[tuple[ShardKey, int, bytes], HistoryRow] = {}
    complete: set[ShardKey] = set()
    previous: HistoryRow | None = None
    states: dict[bytes, TransactionState | None] = {}
    for step in stored.history(rows):
        check.examined += 1
        if previous is None or previous.shard != step.shard:
            states.clear()
            if step.number == 0:
                complete.add(step.shard)
        elif step.number != previous.number + 1:
            check.violated(f"{shard_name(step.shard)}: step {step.number} does not follow {previous.number}")
        newest[step.shard, step.record_type, step.key] = step
        _check_legal(check, step, states)
        previous = step
    for (shard, record_type, key), step in newest.items():
        state = rows.get(Family.COORDINATOR_STATE, stored.state_key(shard, record_type, key))
        if not _is_told(step, state):
            check.violated(f"{shard_name(shard)}: the state of {_key(key)} is not what its newest step tells")
    for found in stored.state_rows(rows):
        is_kept = (found.shard.coordinator, found.record_type) in _KEEPS_HISTORY and found.shard in complete
        if is_kept and (found.shard, found.record_type, found.key) not in newest:
            check.violated(f"{shard_name(found.shard)}: {_key(found.key)} has a state and no step")


def _after(step: HistoryRow) -> StoredStep | None:
    """Return the state of a transactional id after a step. None if the step deleted it, and for other kinds of steps.
    Raises StoreDamaged."""
    if step.shard.coordinator is not Coordinator.TRANSACTIONS or step.record_type != TRANSACTION_TYPE:
        return None
    try:
        return decode_step(step.told)
    except StoreDamaged as damage:
        raise StoreDamaged(
            Family.HISTORY, f"{shard_name(step.shard)}: {_key(step.key)}: step {step.number}: {damage}"
        ) from damage


def _is_told(step: HistoryRow, state: bytes | None) -> bool:
    if state is None or step.is_forgotten:
        return state is None and step.is_forgotten
    after = _after(step)
    if after is None:
        return True
    transaction = stored.transaction_of(step.record_type, step.key, state)
    if transaction is None:
        # The state is of a newer version, and so is the step that led to it.
        return after.state is None
    return replace(after, decided=None) == replace(step_of(TransactionChanged(transaction)), decided=None)


def _check_legal(check: Findings, step: HistoryRow, states: dict[bytes, TransactionState | None]) -> None:
    """Report states of a transactional id that follow each other against the table of legal steps."""
    after, before = _after(step), states.get(step.key)
    if after is None:
        states[step.key] = None
        return
    for state in after.states:
        if state is None:
            check.violated(
                f"{shard_name(step.shard)}: {_key(step.key)}: step {step.number} cannot be judged: state"
                f" {after.state_number} is not known to this version"
            )
        elif before is not None and state not in LEGAL_STEPS[before]:
            check.violated(
                f"{shard_name(step.shard)}: {_key(step.key)} went from {before.api_name} to {state.api_name} in step"
                f" {step.number}, which is no legal step"
            )
        states[step.key] = before = state


def shard_name(shard: ShardKey) -> str:
    return f"{shard.coordinator.name.lower()} {shard.number}"


def _key(key: bytes) -> str:
    return ascii(key.decode("utf-8", "replace"))
