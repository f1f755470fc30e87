"""Work of the producers: load, stop in the middle of a transaction, or be killed in the middle of one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from typing import Final

from coordinator_client.errors import Abortable, Fenced, Recoverable
from coordinator_client.producer.producer import Producer, Transaction
from coordinator_protocol.errors import ErrorCode
from examples.demo_parts.crew import Aborted, Committed, Line, Opened, Refused, stop_this_producer
from examples.demo_parts.flights import FlightRecord, records
from examples.demo_parts.plan import ABORT_EVERY, TOPIC, Assignment

DELIVERY_TIMEOUT_MS: Final = 300_000
"""Time that a producer keeps trying while the server is dead (ms). A second or two suffice, but a busy machine needs
more."""


class OnPurpose(Exception):
    """Raised in a transaction to abort it on purpose."""


def load(assignment: Assignment, line: Line) -> None:
    """Load all rows of the assignment, each in exactly one committed transaction."""
    transactions = assignment.transactions()
    source = records(assignment.first, assignment.end)
    with _producer(assignment) as producer:
        for number, rows in enumerate(transactions):
            flights = list(islice(source, len(rows)))
            if assignment.aborts_on_purpose and number % ABORT_EVERY == ABORT_EVERY // 2:
                _abort_on_purpose(producer, flights, line)
            is_middle = number == len(transactions) // 2
            _commit(producer, flights, line, pauses_midway=assignment.pauses_midway and is_middle)


def stop_midway(assignment: Assignment, line: Line) -> None:
    """Stop in the middle of a transaction, like a program on a suspended machine, and go on when resumed.

    By then a successor owns the transactional id, and this producer, a zombie, must be refused.
    """
    flights = list(records(assignment.first, assignment.end))
    with _producer(assignment) as producer:
        try:
            with producer.transaction() as transaction:
                _send(transaction, flights)
                line.send(Opened(len(flights)))
                stop_this_producer()
                # The producer does not know how much time has passed, and continues its transaction.
                transaction.send(TOPIC, flights[0].value, key=flights[0].key)
        except Fenced as error:
            line.send(Refused(f"{ErrorCode(error.code).name} ({error.code:d})"))


def be_killed_midway(assignment: Assignment, line: Line) -> None:
    """Wait in the middle of a transaction to be killed."""
    flights = list(records(assignment.first, assignment.end))
    with _producer(assignment) as producer:
        while True:
            try:
                with producer.transaction() as transaction:
                    _send(transaction, flights)
                    line.send(Opened(len(flights)))
                    line.recv()
            except (Abortable, Recoverable) as error:
                # The timeout is so short that it can pass while the server is dead.
                line.send(Aborted(len(flights), str(error)))


def _producer(assignment: Assignment) -> Producer:
    return Producer(
        assignment.endpoint,
        transactional_id=assignment.transactional_id,
        transaction_timeout_ms=assignment.timeout_ms,
        delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
        encoding="arrow",
        client_id="demo",
        # A successor may start while the server is dead.
        wait_ms=None,
    )


def _commit(producer: Producer, flights: Sequence[FlightRecord], line: Line, *, pauses_midway: bool) -> None:
    while True:
        try:
            with producer.transaction() as transaction:
                if pauses_midway:
                    pauses_midway = False
                    half = len(flights) // 2
                    _send(transaction, flights[:half])
                    line.send(Opened(half))
                    line.recv()
                    _send(transaction, flights[half:])
                else:
                    for flight in flights:
                        transaction.send(TOPIC, flight.value, key=flight.key)
        except (Abortable, Recoverable) as error:
            # Its records are not visible, so the same rows go into the next transaction.
            line.send(Aborted(len(flights), str(error)))
        else:
            line.send(Committed(len(flights), time.monotonic()))
            return


def _abort_on_purpose(producer: Producer, flights: Sequence[FlightRecord], line: Line) -> None:
    try:
        with producer.transaction() as transaction:
            _send(transaction, flights)
            raise OnPurpose
    except OnPurpose:
        line.send(Aborted(len(flights)))
    except (Abortable, Recoverable) as error:
        line.send(Aborted(len(flights), str(error)))


def _send(transaction: Transaction, flights: Sequence[FlightRecord]) -> None:
    """Send the flights, and return once they are durable in the log."""
    for flight in flights:
        transaction.send(TOPIC, flight.value, key=flight.key)
    transaction.flush()
