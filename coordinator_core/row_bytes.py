"""Encoders of the rows that every transaction stages. The code that makes the core may replace them."""

from __future__ import annotations

from typing import Final, NamedTuple

from partition_log.codec import ProducerRows, producer_rows
from txn_coordinator.codec import TransactionValueOf, transaction_value


class RowBytes(NamedTuple):
    """Functions that encode frozen values, and know nothing but the layout."""

    transaction_value: TransactionValueOf
    producer_rows: ProducerRows


IN_PYTHON: Final = RowBytes(transaction_value, producer_rows)
