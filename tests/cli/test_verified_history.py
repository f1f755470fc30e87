"""The findings of `store verify` where a history contradicts the rest of the store."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace

from coordinator_runtime.store import Family
from tests.cli.damaged_store import Damaged, encoded, violations


def change_a_state(damaged: Damaged) -> None:
    key, transaction = damaged.transaction("orders")
    damaged.put(Family.COORDINATOR_STATE, key, encoded(replace(transaction, producer_epoch=7)))


def lose_a_state(damaged: Damaged) -> None:
    key, _ = damaged.transaction("orders")
    damaged.put(Family.COORDINATOR_STATE, key, None)


def invent_a_state(damaged: Damaged) -> None:
    key, transaction = damaged.transaction("orders")
    damaged.put(Family.COORDINATOR_STATE, key + b"x", encoded(replace(transaction, csn=0)))


def lose_a_row_of_history(damaged: Damaged) -> None:
    damaged.put(Family.HISTORY, damaged.history_key(3), None)


def swap_rows_of_history(damaged: Damaged) -> None:
    first, second = damaged.history_key(2), damaged.history_key(3)
    earlier, later = damaged.store.get(Family.HISTORY, first), damaged.store.get(Family.HISTORY, second)
    damaged.put(Family.HISTORY, first, later)
    damaged.put(Family.HISTORY, second, earlier)


def garble_a_row_of_history(damaged: Damaged) -> None:
    damaged.spoil(Family.HISTORY, damaged.history_key(3), lambda row: b"\xc1" + row)


def tell_of_a_step_what_is_none(damaged: Damaged) -> None:
    key = damaged.history_key(3)
    wall_ms, table, steps = msgspec.msgpack.decode(damaged.store.get(Family.HISTORY, key) or b"")
    steps[0][4] = {"unlike": "ours"}
    damaged.put(Family.HISTORY, key, msgspec.msgpack.encode([wall_ms, table, steps]))


def tell_of_other_partitions(damaged: Damaged) -> None:
    """The newest decision names no producer."""
    for key, row in reversed(list(damaged.store.scan(Family.HISTORY, b"\x03", b"\x04"))):
        wall_ms, table, steps = msgspec.msgpack.decode(row)
        decided = [step[4][6] for step in steps if step[4] and step[4][6] and step[4][6][3]]
        if decided:
            decided[-1][3] = []
            return damaged.put(Family.HISTORY, key, msgspec.msgpack.encode([wall_ms, table, steps]))
    raise AssertionError("the story decides outcomes")


DAMAGES = [
    (change_a_state, "history", "the state of 'orders' is not what its newest step tells"),
    (lose_a_state, "history", "the state of 'orders' is not what its newest step tells"),
    (invent_a_state, "history", "'ordersx' has a state and no step"),
    (lose_a_row_of_history, "history", "does not follow"),
    (swap_rows_of_history, "history", "which is no legal step"),
    (garble_a_row_of_history, "history", "a row of history cannot be read, from step 1 of transactions 1 on"),
    (tell_of_a_step_what_is_none, "history", "transactions 1: 'orders': step 1: a step of a transactional id cannot"),
    (tell_of_other_partitions, "outcomes", "which it was no part of"),
]


@pytest.mark.parametrize(("damage", "check", "said"), DAMAGES, ids=lambda item: getattr(item, "__name__", None))
def test_every_damage_is_named(damage: Callable[[Damaged], None], check: str, said: str) -> None:
    damaged = Damaged()
    damage(damaged)
    found = violations(damaged.store)
    assert any(said in violation for violation in found.get(check, [])), found
