"""A program whose signal handler raises at random moments while it produces, consumes and commits against a server.

python -m tests.client.signals_program ENDPOINT TOPIC SECONDS       prints what is wrong, and ends with 1, or nothing
"""

from __future__ import annotations

import contextlib
import random
import signal
import sys
import time
from collections import Counter
from typing import Final

from coordinator_client import Consumer, OutcomeUnknown, Producer, Rejected, TransactionError, read

BETWEEN_SECONDS: Final = (0.0003, 0.006)
"""Between two signals: about as long as one transaction."""


class Limit(Exception):
    """The error that the signal handler raises."""


class Alarms:
    """Signals at random moments, while `is_on`."""

    def __init__(self) -> None:
        self.is_on = False
        self.count = 0
        self._random = random.Random()
        signal.signal(signal.SIGALRM, self._on_signal)

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._set()
        if self.is_on:
            self.count += 1
            raise Limit

    def _set(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, self._random.uniform(*BETWEEN_SECONDS))

    def begin(self) -> None:
        self._set()
        self.is_on = True

    def end(self) -> None:
        """Let no more come. One that was on its way is let go."""
        while self.is_on:
            with contextlib.suppress(Limit):
                self.is_on = False
        signal.setitimer(signal.ITIMER_REAL, 0)


def outcome_of(producer: Producer) -> bool | None:
    try:
        return producer.resolve_outcome()
    except Rejected:
        return False
    except OutcomeUnknown:
        return None


def produce(alarms: Alarms, endpoint: str, topic: str, until: float) -> dict[int, bool | None]:
    """Commit numbers under signals; return the reported outcome of each."""
    told: dict[int, bool | None] = {}
    producer = Producer(endpoint, transactional_id="signals", batch_bytes=4_096, buffer_bytes=8_192)
    refused_in_a_row = 0
    while time.monotonic() < until:
        number = len(told)
        txn = producer.transaction()
        alarms.begin()
        try:
            try:
                with txn:
                    for part in range(2):
                        txn.send(topic, b"%d" % number + b" " * 3_000, partition=part)
                    if number % 3 == 0:
                        txn.flush()
                told[number] = True
            finally:
                alarms.end()
            refused_in_a_row = 0
        except Limit:
            alarms.end()
            # The signal may have come once the `with` had ended, which is no commit that was interrupted.
            told[number] = True if txn.csn else outcome_of(producer)
        except TransactionError as error:
            told[number] = False
            refused_in_a_row += 1
            if refused_in_a_row > 3:
                raise SystemExit(f"it refuses for ever: {error}") from error
    producer.close()
    return told


def consume(alarms: Alarms, endpoint: str, topic: str, until: float) -> Counter[tuple[int, int]]:
    """Poll and commit under signals, then to the end; return how often each place was returned."""
    seen: Counter[tuple[int, int]] = Counter()
    consumer = Consumer(endpoint, group_id="signals", auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.subscribe([topic])
    while time.monotonic() < until:
        records = None
        alarms.begin()
        try:
            try:
                records = consumer.poll(timeout_ms=100, max_records=7)
                consumer.commit_async()
            finally:
                alarms.end()
        except Limit:
            alarms.end()
        if records is not None:
            seen.update((record.partition, record.offset) for record in records)
    while records := consumer.poll(timeout_ms=1_000):
        seen.update((record.partition, record.offset) for record in records)
    consumer.close()
    return seen


def main() -> int:
    endpoint, topic, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    alarms = Alarms()
    told = produce(alarms, endpoint, topic, time.monotonic() + seconds / 2)
    there: Counter[int] = Counter()
    places = set()
    for record in read(topic, endpoint):
        there[int(record.value or b"-1")] += 1
        places.add((record.partition, record.offset))
    wrong = [n for n, committed in told.items() if committed is not None and there[n] != 2 * committed]
    torn = [n for n in there if there[n] != 2]
    produced = alarms.count
    seen = consume(alarms, endpoint, topic, time.monotonic() + seconds / 2)
    skipped, twice = places - set(seen), [place for place in seen if seen[place] > 1]
    print(
        f"{len(told)} transactions under {produced} signals: told wrongly {wrong[:5]}, there in part {torn[:5]}; "
        f"{len(places)} records under {alarms.count - produced} signals: {len(skipped)} skipped {sorted(skipped)[:5]}, "
        f"{len(twice)} twice {twice[:5]}"
    )
    return bool(wrong or torn or skipped or twice or not any(told.values()))


if __name__ == "__main__":
    sys.exit(main())
