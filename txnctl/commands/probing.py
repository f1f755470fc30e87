"""One round of `txnctl probe`: a transaction that commits and one that aborts, each followed by a committed read.

The probe uses the same SDK as applications do. So it measures the latency that they see, from one place in the network.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from coordinator_client.admin.admin import Admin, TopicDescription
from coordinator_client.errors import TransactionError
from coordinator_client.producer.producer import Producer
from coordinator_client.reading.reader import read
from coordinator_client.transport.connection import Connection
from coordinator_runtime.clock import Clock
from txnctl.commands.remote import error_name

PARTITION: Final = 0
TRANSACTION_TIMEOUT_MS_MAX: Final = 60_000
"""Largest transaction timeout that the probe requests (ms). A server may allow less than the default of producers."""


class ProbeStep(StrEnum):
    """Steps of a round, in order. A failed step ends the round."""

    INIT = "init"
    """The topic exists, and the transactional id is initialised. A previous producer with this id is fenced."""
    COMMIT = "commit"
    """A record is sent and its transaction is committed."""
    READ = "read"
    """A committed reader sees the record exactly once."""
    ABORT = "abort"
    """A record is sent and its transaction is aborted."""
    HIDE = "hide"
    """A committed reader skips the aborted record and is not blocked."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """Result of one step."""

    step: ProbeStep
    elapsed_us: int
    failure: str | None = None
    """Reason of the failure, in words; None if the step succeeded."""


class WrongRecords(Exception):
    """A committed reader returned records that differ from the committed ones."""


class ProbeAborted(Exception):
    """Raised to abort a transaction on purpose."""


class Probe:
    """Rounds against one server, with a topic and a transactional id that only this probe uses."""

    def __init__(
        self, connection: Connection, clock: Clock, *, topic: str, transactional_id: str, timeout_ms: int
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._topic = topic
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._rounds = 0

    def round(self) -> list[StepResult]:
        """Run the steps of a round, up to the first that fails."""
        results: list[StepResult] = []
        token = f"{self._connection.random_source.request_id().hex()}-{self._rounds}".encode()
        self._rounds += 1
        steps = self.steps(token)
        for step in ProbeStep:
            began_us = self._clock.monotonic_us()
            try:
                next(steps)
            except (TransactionError, WrongRecords) as error:
                results.append(StepResult(step, self._clock.monotonic_us() - began_us, _in_words(error)))
                break
            results.append(StepResult(step, self._clock.monotonic_us() - began_us))
        steps.close()
        return results

    def steps(self, token: bytes) -> Generator[None, None, None]:
        """Run one step for each value requested from the generator. `token` marks the records of this round. Raises
        TransactionError and WrongRecords."""
        with Producer(
            self._connection,
            transactional_id=self._transactional_id,
            # A step may use its timeout once for sending and once more for ending. The transaction timeout is not
            # longer, so that a server with a low `transaction_max_timeout_ms` can be probed.
            transaction_timeout_ms=min(2 * self._timeout_ms, TRANSACTION_TIMEOUT_MS_MAX),
            delivery_timeout_ms=self._timeout_ms,
        ) as producer:
            producer.init()
            # Read after `init`, because a late commit of an earlier round may only have ended with it.
            start = self._stable_offset(self._topic_there())
            yield
            with producer.transaction() as txn:
                txn.send(self._topic, token, partition=PARTITION)
            yield
            self._expect(start, [token])
            yield
            self._abort(producer, b"aborted " + token)
            yield
            self._expect(start, [token])
            yield

    def _abort(self, producer: Producer, token: bytes) -> None:
        try:
            with producer.transaction() as txn:
                txn.send(self._topic, token, partition=PARTITION)
                # Flushed, so that there is a record to hide: an unsent record would not be in the log.
                txn.flush()
                raise ProbeAborted
        except ProbeAborted:
            return

    def _topic_there(self) -> TopicDescription:
        with Admin(self._connection, deadline_ms=self._timeout_ms) as admin:
            return admin.create_topic(self._topic, 1, is_existing_ok=True)

    def _stable_offset(self, topic: TopicDescription) -> int:
        return topic.partitions[PARTITION].last_stable_offset

    def _expect(self, start: int, wanted: list[bytes]) -> None:
        """Read from the start of this round to the last stable offset. Raises WrongRecords."""
        records = read(self._topic, self._connection, start={PARTITION: start}, patience_ms=self._timeout_ms)
        seen = [record.value or b"" for record in records if record.partition == PARTITION]
        if seen != wanted:
            raise WrongRecords(
                f"a committed reader of {self._topic}-{PARTITION} from offset {start} on was shown {seen!a:.300}, not "
                f"{wanted!a:.300}; is another probe writing there under another transactional id?"
            )


def _in_words(error: Exception) -> str:
    if isinstance(error, TransactionError):
        return f"{error.reason} [{error_name(error.code)}]"
    return str(error)


def keep_probing(
    probe: Callable[[], list[StepResult]], wait: Callable[[float], bool], *, interval_ms: int, count: int | None
) -> Iterator[list[StepResult]]:
    """Yield the results of round after round, with a pause between two. `wait` takes seconds, and ends the probing by
    returning True."""
    rounds = 0
    while True:
        yield probe()
        rounds += 1
        if rounds == count or wait(interval_ms / 1_000):
            return
