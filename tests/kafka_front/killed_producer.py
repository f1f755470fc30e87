"""Producers that live through kills of their server, and a reader. `test_kills` starts and kills them.

    python killed_producer.py kafka|sdk|stub ADDRESS TRANSACTIONAL_ID LIFE     until its input ends
    python killed_producer.py read ADDRESS GROUP...
    python killed_producer.py watch ADDRESS                                    until it is killed

A producer prints lines of JSON (`telling.py`). A reader prints one line: values and their places by partition, and
offsets by group. A watcher tells what it polls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from threading import Event, Thread

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

import coordinator_client
from tests.kafka_front.stub_work import StubWork
from tests.kafka_front.telling import now, tell

PARTITIONS = 3
TOPIC = "payments"
TIMEOUT_MS = 10_000
"""Timeout of transactions. Readers wait so long for one whose producer was killed for good."""
SOCKET_TIMEOUT_MS = 10_000
"""Patience of librdkafka with a server that is stopped or cut off; not more than a transaction has."""
WATCHED_RECORDS_MAX = 100
WATCHED_SECONDS = 0.1
COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"


class Work:
    """The transactions of one life of a producer."""

    def __init__(self, transactional_id: str, life: str) -> None:
        self.group = f"of-{transactional_id}"
        self._name = f"{transactional_id}.{life}"
        self._rng = Random(self._name)
        self._number = 0

    def next(self) -> tuple[list[tuple[int, str]], int, bool]:
        """Partition and value of each record, the offset to commit, and whether all that shall be committed."""
        self._number += 1
        values = [f"{self._name}.{self._number}.{number}" for number in range(self._rng.randrange(1, 6))]
        records = [(self._rng.randrange(PARTITIONS), value) for value in values]
        offset = int(self._name.rpartition(".")[2]) * 1_000_000 + self._number
        partitions = [partition for partition, _ in records]
        tell(began=values, partitions=partitions, group=self.group, offset=offset)
        return records, offset, self._rng.random() > 0.2


class KafkaWork:
    """Transactions of librdkafka."""

    def __init__(self, address: str, transactional_id: str) -> None:
        self._address, self._id = address, transactional_id
        self._producer: Producer | None = None
        self._member = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": f"of-{transactional_id}",
                "socket.timeout.ms": SOCKET_TIMEOUT_MS,
                "metadata.recovery.strategy": "none",
                "log_level": 0,
            }
        )

    def do(self, records: list[tuple[int, str]], group: str, offset: int, *, commits: bool) -> str:
        """Return what became of the transaction."""
        try:
            producer = self._begun()
            for partition, value in records:
                producer.produce(TOPIC, value, partition=partition, on_delivery=_tell_sent)
            metadata = self._member.consumer_group_metadata()
            position = [TopicPartition(TOPIC, 0, offset)]
            self._insist(lambda: producer.send_offsets_to_transaction(position, metadata))
        except KafkaException as error:
            # Its commit was not asked for.
            self._give_up(error.args[0])
            return ABORTED
        if not commits:
            tell(asks="abort")
            self._abort()
            return ABORTED
        tell(asks="commit")
        try:
            self._insist(producer.commit_transaction)
        except KafkaException as error:
            return ABORTED if self._give_up(error.args[0]) else UNKNOWN
        return COMMITTED

    def _begun(self) -> Producer:
        if self._producer is None:
            settings = {
                "bootstrap.servers": self._address,
                "transactional.id": self._id,
                "transaction.timeout.ms": TIMEOUT_MS,
                "linger.ms": 1,
                "socket.timeout.ms": SOCKET_TIMEOUT_MS,
                "reconnect.backoff.max.ms": 200,
                # With `rebootstrap`, librdkafka 2.16 keeps the group coordinator of before and waits for it for ever.
                "metadata.recovery.strategy": "none",
                "log_level": 0,
            }
            producer = Producer(settings)
            self._insist(producer.init_transactions)
            self._producer = producer
        self._producer.begin_transaction()
        return self._producer

    def _insist(self, call: Callable[[], object]) -> None:
        while True:
            try:
                call()
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return

    def _give_up(self, error: KafkaError) -> bool:
        """Go on after an error. Return True if the transaction is not committed for sure, as librdkafka knows then."""
        if error.txn_requires_abort():
            self._abort()
            return True
        self._producer = None
        return False

    def _abort(self) -> None:
        assert self._producer is not None
        try:
            self._insist(self._producer.abort_transaction)
        except KafkaException:
            # The next producer aborts what this one left.
            self._producer = None


class SdkWork:
    """Transactions of the SDK."""

    def __init__(self, address: str, transactional_id: str) -> None:
        self._producer = coordinator_client.Producer(address, transactional_id=transactional_id)

    def do(self, records: list[tuple[int, str]], group: str, offset: int, *, commits: bool) -> str:
        """Return what became of the transaction. A group is for Kafka's clients alone."""
        errors = coordinator_client
        try:
            with self._producer.transaction() as transaction:
                sent = [transaction.send(TOPIC, value.encode(), partition=partition) for partition, value in records]
                tell(asks="commit" if commits else "abort")
                if not commits:
                    transaction.abort()
        except errors.OutcomeUnknown:
            return UNKNOWN if not commits else self._resolved()
        except (errors.Abortable, errors.Recoverable, errors.Retriable):
            return ABORTED
        if not commits:
            return ABORTED
        for (_, value), record in zip(records, sent, strict=True):
            if record.offset is not None:
                tell(sent=value, offset=record.offset)
        return COMMITTED

    def _resolved(self) -> str:
        while True:
            try:
                return COMMITTED if self._producer.resolve_outcome() else ABORTED
            except coordinator_client.OutcomeUnknown:
                continue


def _tell_sent(error: KafkaError | None, message: Message) -> None:
    """Tell that a record is acknowledged. librdkafka does not know the offset of each."""
    if error is None and message.offset() >= 0:
        tell(sent=message.value().decode(), offset=message.offset())


def produce(kind: str, address: str, transactional_id: str, life: str) -> None:
    ended = Event()
    Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    work = Work(transactional_id, life)
    does = _worker(kind, address, transactional_id)
    while not ended.is_set():
        records, offset, commits = work.next()
        tell(fate=does.do(records, work.group, offset, commits=commits))


def _worker(kind: str, address: str, transactional_id: str) -> KafkaWork | SdkWork | StubWork:
    if kind == "stub":
        return StubWork(address, transactional_id, TOPIC, (COMMITTED, ABORTED, UNKNOWN))
    return KafkaWork(address, transactional_id) if kind == "kafka" else SdkWork(address, transactional_id)


def read(address: str, groups: list[str]) -> None:
    settings = {"bootstrap.servers": address, "enable.auto.commit": False, "isolation.level": "read_committed"}
    since = now()
    values: list[list[str]] = []
    places: list[list[int]] = []
    for partition in range(PARTITIONS):
        reader = Consumer({**settings, "group.id": "reader", "enable.partition.eof": True, "check.crcs": True})
        reader.assign([TopicPartition(TOPIC, partition, 0)])
        found: list[str] = []
        places.append([])
        while (message := reader.poll()) is not None and message.error() is None:
            found.append(message.value().decode())
            places[-1].append(message.offset())
        assert message is not None
        assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
        values.append(found)
        reader.close()
    offsets = {}
    for group in groups:
        reader = Consumer({**settings, "group.id": group})
        (committed,) = reader.committed([TopicPartition(TOPIC, 0)])
        offsets[group] = committed.offset
        reader.close()
    tell(values=values, places=places, offsets=offsets, since=since)


def watch(address: str) -> None:
    """Read from the first record on, through every life of the server, until a kill."""
    reader = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "watcher",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "socket.timeout.ms": SOCKET_TIMEOUT_MS,
            "reconnect.backoff.max.ms": 200,
            "metadata.recovery.strategy": "none",
            "log_level": 0,
        }
    )
    reader.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    while True:
        since = now()
        found: dict[int, list[tuple[int, str]]] = {}
        for message in reader.consume(WATCHED_RECORDS_MAX, timeout=WATCHED_SECONDS):
            if message.error() is None:
                found.setdefault(message.partition(), []).append((message.offset(), message.value().decode()))
        if found:
            tell(polled=found, since=since)


if __name__ == "__main__":
    what, where, *rest = sys.argv[1:]
    if what == "read":
        read(where, rest)
    elif what == "watch":
        watch(where)
    else:
        produce(what, where, *rest)
