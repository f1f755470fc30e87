"""The transactions of a history as their requests and answers tell them, and what is raised where that is not true."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.simulation.history import History, Op

ENDS = ("end", "transact")


class Violation(AssertionError):
    """A promise was broken; the message says which, and by what."""


def require(holds: bool, message: str) -> None:
    if not holds:
        raise Violation(message)


@dataclass(slots=True)
class ToldTransaction:
    """One transaction of one client, as its requests tell it."""

    number: int
    acked: dict[str, tuple[str, int]] = field(default_factory=dict)
    """value -> (partition, offset)"""
    sent: dict[str, Op] = field(default_factory=dict)
    commits: list[Op] = field(default_factory=list)
    aborts: list[Op] = field(default_factory=list)
    offsets: list[Op] = field(default_factory=list)

    @property
    def is_committed(self) -> bool:
        return any(op.is_ok for op in self.commits)

    @property
    def is_aborted(self) -> bool:
        return any(op.is_ok for op in self.aborts)

    @property
    def may_be_committed(self) -> bool:
        """Some commit reached the server and was not refused for good."""
        return any(op.deliveries > 0 and not (op.is_settled and not op.is_ok) for op in self.commits)

    def kept(self, history: History) -> set[str]:
        """What was acknowledged to the transaction, in partitions that were not deleted since."""
        return {value for value, (partition, _) in self.acked.items() if partition in history.final_raw}


def told_transactions(ops: Iterable[Op]) -> dict[int, ToldTransaction]:
    found: dict[int, ToldTransaction] = {}
    for op in ops:
        if not op.transaction:
            continue
        txn = found.setdefault(op.transaction, ToldTransaction(op.transaction))
        if op.kind == "produce":
            for distance, value in enumerate(op.values):
                txn.sent[value] = op
                if op.is_ok and not op.is_misled:
                    txn.acked[value] = (op.partition, op.base_offset + distance)
        elif op.kind == "offset":
            txn.offsets.append(op)
        elif op.kind in ENDS:
            (txn.commits if op.outcome == "commit" else txn.aborts).append(op)
    return found


def ops_of(txn: ToldTransaction) -> str:
    ops = {op.number: op for op in (*txn.sent.values(), *txn.offsets, *txn.commits, *txn.aborts)}
    return "; ".join(str(op) for _, op in sorted(ops.items()))


def completion(op: Op) -> int:
    assert op.completed_at is not None
    return op.completed_at
