"""Copies a topic, each record exactly once in spite of crashes: records and offsets go into the same transaction.

    .venv/bin/txnctl dev                                                     in one terminal
    .venv/bin/python examples/copy_exactly_once.py --flights 5000            in another: loads real flights, copies them
    .venv/bin/python examples/copy_exactly_once.py --source a --target b     any two topics that exist

It needs `make venv`, which installs into `.venv`. `--flights` needs the data set, too, which `make demo` installs.

Run several copies with the same `--group` and different `--name`s, and they share the partitions. Kill one with `kill
-9` and start it again with its name: no record is missing, and none is there twice. This is why:

1. The consumer reads committed records of the source, as a member of a group. It does not commit offsets by itself.
2. One transaction takes the copies of a batch AND the offsets after it (`txn.commit_offsets`). Both are committed, or
   neither.
3. A process that dies leaves at most one open transaction. Its successor with the same `--name` aborts it on start. A
   member that receives the partitions reads their committed offsets only after that transaction is decided.
4. A member that lost its partitions unnoticed cannot commit their offsets any more: the group refuses them.
5. In a classic group the name is also that of a static member, which gets its partitions back at once. That is why
   `--protocol classic` is the default here. With the protocol `consumer` they go to other members, or to the process
   that was started again, once the killed one has been silent for a session (45 s).

The transformation is `copied` below: it notes the origin of each record.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from typing import Final

from coordinator_client import Abortable, Admin, Consumer, ConsumerRecords, Producer, Transaction, read
from coordinator_client.reading.reader import ReadRecord

IDLE_MS: Final = 3_000
"""Time without new records after which the copy is checked for completeness (ms)."""


def main() -> int:
    """Load the source if requested, copy it, and check the copy."""
    options = arguments()
    if options.flights:
        load_flights(options)
    if options.check:
        return check(options)
    count = copy(options)
    print(f"copied {count} records of {options.source} to {options.target}")
    return check(options) if options.flights else 0


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").strip(), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    server = os.environ.get("TXNCTL_SERVER", "127.0.0.1:7070")
    parser.add_argument("--server", default=server, help="HOST:PORT (default: %(default)s, or TXNCTL_SERVER)")
    parser.add_argument("--source", default="flights-in", help="topic to read (default: %(default)s)")
    parser.add_argument("--target", default="flights-out", help="topic to write (default: %(default)s)")
    parser.add_argument("--partitions", type=int, default=4, help="of topics made for --flights (default: %(default)s)")
    parser.add_argument("--group", default="copy-exactly-once", help="consumer group (default: %(default)s)")
    parser.add_argument(
        "--name", default="copier-0", help="of this process: transactional id and static member (default: %(default)s)"
    )
    parser.add_argument(
        "--protocol", default="classic", choices=("classic", "consumer"), help="of the group (default: %(default)s)"
    )
    parser.add_argument(
        "--timeout-ms",
        type=int,
        default=10_000,
        help="of a transaction: who takes over from a process that hangs waits at most so long (default: %(default)s)",
    )
    parser.add_argument("--batch", type=int, default=200, help="most records in a transaction (default: %(default)s)")
    parser.add_argument(
        "--flights",
        type=int,
        default=0,
        metavar="N",
        help="first make the topics, load N flights of 2013 into the source",
    )
    parser.add_argument("--follow", action="store_true", help="go on for ever instead of ending when nothing comes")
    parser.add_argument("--check", action="store_true", help="copy nothing, only compare source and target")
    return parser.parse_args()


def load_flights(options: argparse.Namespace) -> None:
    """Create the topics, and write flights to the source in one transaction. `make demo` installs the data set."""
    # Running this file as a program puts its folder on the path, but not the project.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
    from examples.demo_parts.flights import records

    with Admin(options.server) as admin:
        for topic in (options.source, options.target):
            admin.create_topic(topic, options.partitions, is_existing_ok=True)
    with Producer(options.server, transactional_id=f"{options.name}-load") as producer, producer.transaction() as txn:
        for flight in records(1, options.flights + 1):
            txn.send(options.source, flight.value, key=flight.key)


def copy(options: argparse.Namespace) -> int:
    """Copy the available records, and return their number."""
    count = 0
    with (
        Consumer(
            options.server,
            group_id=options.group,
            group_protocol=options.protocol,
            group_instance_id=options.name if options.protocol == "classic" else None,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=options.batch,
            # A copier that starts while the server is down waits for it.
            wait_ms=None,
        ) as consumer,
        Producer(
            options.server, transactional_id=options.name, transaction_timeout_ms=options.timeout_ms, wait_ms=None
        ) as producer,
    ):
        # Initialise first. This aborts a transaction that an earlier process with this name left open, and fences that
        # process.
        producer.init()
        consumer.subscribe([options.source])
        while (batch := consumer.poll(timeout_ms=IDLE_MS)) or options.follow or not has_read_all(consumer):
            if not batch:
                continue
            try:
                with producer.transaction() as txn:
                    copy_batch(txn, consumer, batch, options.target)
                count += len(batch)
            except Abortable as why:
                # Nothing of the transaction is visible. Records of partitions that are still assigned come again with
                # the next poll. Every other error ends the process, which is always safe: the offsets are committed
                # with the records, so the next start goes on at the right place, whatever became of the transaction.
                # docs/tour.md has a loop that goes on after more of them.
                print(f"once more: {why}", file=sys.stderr)
                consumer.rewind(batch)
    return count


def has_read_all(consumer: Consumer) -> bool:
    """True at the end of all assigned partitions.

    An empty poll alone does not show that: joining the group may take long, or other members have all partitions for
    now."""
    ours = consumer.assignment()
    if not ours:
        return False
    ends = consumer.end_offsets(ours)
    return all(consumer.position(partition) >= ends[partition] for partition in ours)


def copy_batch(txn: Transaction, consumer: Consumer, batch: ConsumerRecords, target: str) -> None:
    """Write the copies of records, and commit the offsets after the originals."""
    for record in batch:
        txn.send(target, copied(record), key=record.key, headers=record.headers)
    txn.commit_offsets(consumer, batch)


def copied(record: ReadRecord) -> bytes:
    """Transform a record: add its origin to its value."""
    value = None if record.value is None else record.value.decode(errors="replace")
    return json.dumps({"from": [record.partition, record.offset], "value": value}).encode()


def check(options: argparse.Namespace) -> int:
    """Compare the topics. Returns 0 if every record of the source is in the target exactly once."""
    originals = {(record.partition, record.offset): record.value for record in read(options.source, options.server)}
    copies: Counter[tuple[int, int]] = Counter()
    wrong = 0
    for record in read(options.target, options.server):
        assert record.value is not None
        copy_of = json.loads(record.value)
        place = (copy_of["from"][0], copy_of["from"][1])
        copies[place] += 1
        original = originals.get(place)
        wrong += copy_of["value"] != (None if original is None else original.decode(errors="replace"))
    missing = len(originals.keys() - copies.keys())
    twice = sum(count - 1 for count in copies.values())
    print(f"{len(originals)} records, {missing} missing, {twice} too often, {wrong} wrong")
    return 0 if missing == twice == wrong == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
