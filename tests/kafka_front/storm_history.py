"""Histories of storms, in the form of `tests/histories`: what their producers, watchers and readers told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from coordinator_client import Admin, read
from tests.histories.checker import check
from tests.histories.form import (
    AnyOperation,
    Committed,
    End,
    Fault,
    FinalRead,
    History,
    Init,
    Outcome,
    Poll,
    Producer,
    Record,
    Send,
    SendOffsets,
    Verdict,
    written,
)
from tests.histories.form import read as read_history
from tests.kafka_front.kill_storm import PARTITIONS, TOPIC, Client, Noted, Storm, Told
from tests.kafka_front.telling import now

EXAMPLES_MAX: Final = 5
POSITION: Final = f"{TOPIC}/0"
"""The partition of which transactions carry positions."""
FATES: Final = {
    (Verdict.COMMIT, Outcome.OK): "committed",
    (Verdict.COMMIT, Outcome.FAIL): "aborted",
    (Verdict.ABORT, Outcome.OK): "aborted",
}


def k_of(partition: int | str) -> str:
    return f"{TOPIC}/{partition}"


def check_again(storm: Storm, found: Mapping[str, Any] | None, path: Path, polls: Sequence[Noted] = ()) -> int:
    """Write the history of a storm that is over, and return the number of its operations. Raises AssertionError for
    the first errors that the second checker finds in it.

    `found`: what the reader of `killed_producer` told, None if there was none that tells offsets.
    """
    path.write_bytes(written(of_storm(storm, found, polls)))
    report = check(read_history(path))
    found_wrong = report.violations
    assert not found_wrong, f"{len(found_wrong)} in {path}, such as {found_wrong[:EXAMPLES_MAX]}"
    return report.operations


def of_storm(storm: Storm, found: Mapping[str, Any] | None, polls: Sequence[Noted] = ()) -> list[AnyOperation]:
    """Return the history of a storm that is over, ordered by time; reads and asks its server."""
    ends = [*by_sdk(storm), *([] if found is None else by_reader(found))]
    partitions = {
        value: k for end in ends if isinstance(end, FinalRead) for k, rows in end.records.items() for _, value in rows
    }
    operations = [
        *(each for client in storm.clients for each in of_client(client, partitions)),
        *(of_poll(poll) for poll in polls),
        *(Fault(process="storm", invoked=each.since, completed=each.until, kind=each.what) for each in storm.faults),
        *ends,
    ]
    return sorted(operations, key=lambda each: each.invoked)


def of_poll(poll: Noted) -> Poll:
    records = {k_of(number): tuple((offset, value) for offset, value in rows) for number, rows in poll.what.items()}
    return Poll(process="watcher", invoked=poll.since, completed=poll.until, records=records)


def by_reader(found: Mapping[str, Any]) -> Iterator[AnyOperation]:
    """Yield what a Kafka consumer found."""
    times = {"invoked": found["since"], "completed": found["at"]}
    rows = zip(found["places"], found["values"], strict=True)
    records = {k_of(number): tuple(zip(*each, strict=True)) for number, each in enumerate(rows)}
    yield FinalRead(process="Kafka consumer", records=records, **times)
    for group, offset in found["offsets"].items():
        # librdkafka says that there is none by a number below zero.
        positions = {POSITION: offset} if offset >= 0 else {}
        yield Committed(process="Kafka consumer", group=group, positions=positions, **times)


def by_sdk(storm: Storm) -> Iterator[AnyOperation]:
    """Yield what the SDK finds now."""
    since = now()
    rows: dict[str, list[Record]] = {k_of(partition): [] for partition in range(PARTITIONS)}
    for record in read(TOPIC, storm.server.address):
        rows[k_of(record.partition)].append((record.offset, (record.value or b"").decode()))
    records = {k: tuple(each) for k, each in rows.items()}
    yield FinalRead(process="SDK", invoked=since, completed=now(), records=records)
    with Admin(storm.server.address) as admin:
        for group in sorted({group for client in storm.clients for group in carriers(client)}):
            since = now()
            positions = {
                f"{each.partition.topic}/{each.partition.partition}": each.committed.offset
                for each in admin.group_offsets(group)
                if each.committed is not None
            }
            yield Committed(process="SDK", invoked=since, completed=now(), group=group, positions=positions)


def of_client(client: Client, partitions: Mapping[str, str]) -> Iterator[AnyOperation]:
    """Yield what a producer did. `partitions`: those of the values that were read, where it does not tell them."""
    for each in client.identities:
        producer = Producer(client.transactional_id, *each.what)
        yield Init(process=client.transactional_id, invoked=each.since, completed=each.until, producer=producer)
    tells_ends = any(told.asked is not None for told in client.told)
    for told in client.told:
        yield from of_transaction(client, told, partitions)
        if told.group in carriers(client):
            yield positions_of(client, told)
        yield from end_of(client, told, tells_ends=tells_ends)


def carriers(client: Client) -> set[str]:
    """Return the groups of which the producer commits positions: those of Kafka's clients."""
    is_of_kafka = client.transactional_id.startswith(("kafka", "java"))
    return {told.group for told in client.told} if is_of_kafka else set()


def name_of(told: Told) -> str:
    """Return the name of a transaction, with which its values begin."""
    return told.values[0].rpartition(".")[0]


def of_transaction(client: Client, told: Told, partitions: Mapping[str, str]) -> Iterator[Send]:
    """Yield a send for each value. All that a committed transaction sent was acknowledged."""
    for value, partition in zip_longest(told.values, told.partitions):
        offset, completed = told.places.get(value, (None, told.ended))
        is_ok = value in told.places or told.fate == "committed"
        yield Send(
            process=client.transactional_id,
            invoked=told.began,
            completed=completed if is_ok else None,
            type=Outcome.OK if is_ok else Outcome.INFO,
            k=partitions.get(value, k_of("?")) if partition is None else k_of(partition),
            values=(value,),
            offsets=() if offset is None else (offset,),
            txn=name_of(told),
            producer=producer_of(client, told),
            session=told.life,
        )


def positions_of(client: Client, told: Told) -> SendOffsets:
    is_ok = told.fate == "committed"
    return SendOffsets(
        process=client.transactional_id,
        invoked=told.began,
        completed=told.ended if is_ok else None,
        type=Outcome.OK if is_ok else Outcome.INFO,
        txn=name_of(told),
        group=told.group,
        positions={POSITION: told.offset},
    )


def end_of(client: Client, told: Told, *, tells_ends: bool) -> Iterator[End]:
    """Yield how a transaction ended. One whose producer was killed before it asked for the end has none."""
    if told.asked is None and tells_ends and told.fate == "unknown":
        return
    default = "abort" if told.fate == "aborted" else "commit"
    verdict, invoked = (default, told.began) if told.asked is None else told.asked
    outcome = Outcome.OK
    if told.fate == "unknown":
        outcome = Outcome.INFO
    elif told.fate == "aborted" and verdict == "commit":
        outcome = Outcome.FAIL
    yield End(
        process=client.transactional_id,
        invoked=invoked,
        completed=None if outcome is Outcome.INFO else told.ended,
        type=outcome,
        txn=name_of(told),
        verdict=Verdict(verdict),
        producer=producer_of(client, told),
    )


def producer_of(client: Client, told: Told) -> Producer | None:
    return None if told.producer is None else Producer(client.transactional_id, *told.producer)


def told_in(history: History) -> list[Told]:
    """Return what the producers told, from a history, as the storm's own check takes it."""
    told: dict[str, Told] = {}
    for _, send in history.of(Send):
        assert send.txn is not None
        told.setdefault(send.txn, Told([], f"of-{send.process}", 0)).values.extend(send.values)
    for _, sent in history.of(SendOffsets):
        told[sent.txn].offset = sent.positions[POSITION]
    for _, end in history.of(End):
        told[end.txn].fate = FATES.get((end.verdict, end.type), "unknown")
    return list(told.values())


def values_in(history: History, reader: str) -> list[str]:
    """Return the values that a reader found at the end, each as often as it did."""
    return [
        value
        for _, final in history.of(FinalRead)
        if final.process == reader
        for rows in final.records.values()
        for _, value in rows
    ]
