"""Transfers between accounts with the SDK: both sides of a transfer are booked, or neither.

    .venv/bin/txnctl dev                            in one terminal
    .venv/bin/python examples/with_sdk.py           in another; HOST:PORT may follow

`with_stubs.py` does the same with the generated stubs alone.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Final

from coordinator_client import Admin, Producer, read

TOPIC: Final = "transfers"
ACCOUNTS: Final = {"alice": 0, "bob": 1}
"""Partition of each account, so every transfer touches two partitions."""


class UnknownAccount(Exception):
    """There is no account with that name."""


def main(endpoint: str) -> None:
    """Make a transfer that succeeds and one that fails, then show the balances."""
    with Admin(endpoint) as admin:
        admin.create_topic(TOPIC, len(ACCOUNTS), is_existing_ok=True)
    with Producer(endpoint, transactional_id="bank") as producer:
        transfer(producer, "alice", "bob", 30)
        try:
            transfer(producer, "alice", "nobody", 50)
        except UnknownAccount as error:
            print(f"aborted: there is no account of {error}")
    for isolation in ("read_uncommitted", "read_committed"):
        balances: Counter[str] = Counter()
        for record in read(TOPIC, endpoint, isolation=isolation):
            assert record.key is not None
            assert record.value is not None
            balances[record.key.decode()] += int(record.value)
        print(isolation, dict(sorted(balances.items())))


def transfer(producer: Producer, source: str, target: str, amount: int) -> None:
    """Book both sides in one transaction. If it raises UnknownAccount, neither is booked."""
    with producer.transaction() as txn:
        txn.send(TOPIC, b"%d" % -amount, key=source.encode(), partition=ACCOUNTS[source])
        # The first record is in the log before the second is sent, as may happen in a longer transaction.
        txn.flush()
        if target not in ACCOUNTS:
            raise UnknownAccount(target)
        txn.send(TOPIC, b"%d" % amount, key=target.encode(), partition=ACCOUNTS[target])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Transfers between accounts, with the SDK.")
    parser.add_argument("endpoint", nargs="?", default="127.0.0.1:7070", metavar="HOST:PORT")
    main(parser.parse_args().endpoint)
