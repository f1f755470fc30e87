"""The bytes of the rows that every transaction stages: functions that whoever makes the core may bring along."""

from __future__ import annotations

from typing import Final, NamedTuple

from partition_log.codec import ProducerRows, producer_rows
from txn_coordinator.codec import TransactionValueOf, transaction_value


class RowBytes(NamedTuple):
    """Functions that make bytes of frozen values, and know no more than what lies where."""

    transaction_value: TransactionValueOf
    producer_rows: ProducerRows


IN_PYTHON: Final = RowBytes(transaction_value, producer_rows)
