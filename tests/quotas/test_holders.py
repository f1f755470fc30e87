"""The principals for which transactional ids and open transactions count, and how long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from msgspec.structs import replace

from coordinator_runtime.decision import Turn
from coordinator_runtime.ports import INTERNAL, Level
from coordinator_server.traffic.quotas.holders import TransactionHolders
from txn_coordinator.records import TransactionExpired, TransactionStepped
from txn_coordinator.state import Member, Transaction, TransactionState

ALICE, BOB = "User:alice", "User:bob"
IDLE = Transaction(
    transactional_id="a",
    producer_id=1,
    producer_epoch=0,
    txn_timeout_ms=1,
    state=TransactionState.EMPTY,
    start_ms=0,
    last_update_ms=0,
)
OPEN = replace(IDLE, state=TransactionState.ONGOING)
DECIDED = replace(IDLE, state=TransactionState.PREPARE_COMMIT)
DONE = replace(IDLE, state=TransactionState.COMPLETE_COMMIT)
MEMBER = replace(OPEN, transactional_id="__member/s/1", member=Member(0, "task 1"))


class Held:
    """Levels that are only counted."""

    def __init__(self) -> None:
        self._held: Counter[tuple[Level, str]] = Counter()
        self._holders = TransactionHolders(self)

    def check(self, level: Level, principal: str, held: Callable[[], int] | None = None) -> None:
        raise AssertionError("holders count, and refuse nothing")

    def add(self, level: Level, principal: str, more: int = 1) -> None:
        self._held[level, principal] += more

    def steps(self, *after: Transaction, by: str = ALICE, before: Transaction | None = None) -> Held:
        """Take these steps, one after the other."""
        for each in after:
            self._holders(TransactionStepped(before, each), turn(by))
            before = each
        return self

    def expires(self, transaction: Transaction) -> Held:
        self._holders(TransactionExpired(transaction), turn(INTERNAL.principal))
        return self

    def ids(self) -> dict[str, int]:
        return self._of(Level.TRANSACTIONAL_IDS)

    def open(self) -> dict[str, int]:
        return self._of(Level.OPEN_TRANSACTIONS)

    def _of(self, level: Level) -> dict[str, int]:
        return {principal: count for (each, principal), count in self._held.items() if each is level and count}


def turn(principal: str) -> Turn:
    return Turn(0, principal=principal)


def test_an_id_counts_for_who_used_it_first_until_it_is_forgotten() -> None:
    held = Held().steps(IDLE, OPEN, DECIDED, DONE).steps(OPEN, by=BOB, before=DONE)
    assert held.ids() == {ALICE: 1}
    assert held.expires(DONE).ids() == {}


def test_an_open_transaction_counts_for_who_opened_it_until_it_is_decided() -> None:
    held = Held().steps(IDLE, OPEN)
    assert held.open() == {ALICE: 1}
    assert held.steps(replace(OPEN, last_update_ms=5), before=OPEN, by=BOB).open() == {ALICE: 1}
    assert held.steps(DECIDED, before=OPEN, by=INTERNAL.principal).open() == {}
    assert held.steps(DONE, before=DECIDED).steps(OPEN, before=DONE, by=BOB).open() == {BOB: 1}


def test_who_opened_what_was_open_at_the_start_is_not_known() -> None:
    held = Held().steps(replace(OPEN, last_update_ms=5), before=OPEN, by=BOB)
    assert held.open() == {}
    assert held.steps(DECIDED, before=OPEN).open() == {}, "and nothing is given back"


def test_a_member_of_a_sink_is_an_open_transaction_and_no_id() -> None:
    held = Held().steps(MEMBER)
    assert (held.open(), held.ids()) == ({ALICE: 1}, {})


def test_what_the_server_does_by_itself_makes_no_principal_a_holder_of_an_id() -> None:
    assert Held().steps(DECIDED, before=OPEN, by=INTERNAL.principal).ids() == {}
