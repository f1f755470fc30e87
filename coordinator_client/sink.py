"""The client of sinks: a batch that many tasks write, anywhere, and one decision commits.

Each task joins the batch, sends its records and seals what it has sent; who decides needs nothing of the task but the
identity of its member. `coordinator_client.sink` is for engines; applications use `Producer`.

Source: proto/coordinator_api/v1/transaction.proto (JoinBatch to DescribeSinks); docs/decisions/0039.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_client.calls import ABORT_BATCH, COMMIT_BATCH, JOIN_BATCH, PRODUCE, SEAL_MEMBER, Deadlines
from coordinator_client.connection import Connection
from coordinator_client.state import Identity
from coordinator_protocol.batch import Encoding

if TYPE_CHECKING:
    import pyarrow as pa

DEADLINE_MS: Final = 60_000


class SinkMember:
    """A member of a batch: what one attempt of a task writes, which is committed whole or not at all. Sends one batch
    of records at a time, each durable when its call returns."""

    def __init__(self, connection: Connection, deadlines: Deadlines, transactional_id: str, identity: Identity) -> None:
        self._connection = connection
        self._deadlines = deadlines
        self.transactional_id = transactional_id
        self.identity = identity
        """What `Sink.commit` is told."""
        self.record_count = 0
        """Records that were sent."""
        self._next_sequences: dict[tuple[str, int], int] = {}

    def send_arrow(self, topic: str, partition: int, records: pa.RecordBatch) -> None:
        """Append records to a partition, visible once the batch is committed. They have the schema of Arrow v1
        (`arrow_encoding.SCHEMA`); an empty batch sends nothing.

        Raises: ImportError without pyarrow; ValueError for another schema; Abortable or Fenced where the member is
        over; the TransactionError that the server answers; Retriable or OutcomeUnknown at the deadline.
        """
        from coordinator_client.arrow_encoding import SCHEMA

        if not records.schema.equals(SCHEMA):
            raise ValueError(f"the records have the schema {records.schema}; Arrow v1 has {SCHEMA}")
        if not records.num_rows:
            return
        times = records.column("timestamp_ms").to_pylist()
        sequence = self._next_sequences.get((topic, partition), 0)
        stored = log.RecordBatch(
            record_count=records.num_rows,
            base_timestamp_ms=times[0],
            max_timestamp_ms=max(times),
            encoding=log.Encoding.ValueType(Encoding.ARROW_V1),
            is_transactional=True,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            base_sequence=sequence,
            payload=records.serialize().to_pybytes(),
        )
        request = log.ProduceRequest(
            header=self._connection.header(),
            transactional_id=self.transactional_id,
            batches=[log.PartitionBatch(topic=topic, partition=partition, batch=stored)],
        )
        self._connection.ask(PRODUCE, request, deadlines=self._deadlines, items=lambda reply: reply.results)
        # A repeated attempt has the same sequence, so the server appends it once.
        self._next_sequences[topic, partition] = sequence + records.num_rows
        self.record_count += records.num_rows

    def seal(self) -> None:
        """Promise that this is all: the batch may be committed with this member, which takes no more from now on.

        Raises: Fenced where the member is over; Abortable where the log does not hold what was sent; Retriable or
        OutcomeUnknown at the deadline.
        """
        request = txn.SealMemberRequest(
            header=self._connection.header(self._connection.random_source.request_id()),
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            last_sequences=[
                txn.LastSequence(topic=topic, partition=partition, sequence=following - 1)
                for (topic, partition), following in self._next_sequences.items()
            ],
        )
        self._connection.ask(SEAL_MEMBER, request, deadlines=self._deadlines)


class Sink:
    """A sink, as one run of an engine's query writes to it. Holds nothing that the server does not hold: any process
    may make one, join a batch here and decide on it there."""

    def __init__(self, connection: Connection, name: str, *, run_id: str, deadline_ms: int = DEADLINE_MS) -> None:
        """`name` must be that of what the batches belong to for ever, as a checkpoint does: batches under another name
        are other batches. `run_id`: every start of the query has its own."""
        self._connection = connection
        self._deadlines = Deadlines(total_ms=deadline_ms)
        self.name = name
        self.run_id = run_id

    def join(self, batch_id: int, *, attempt: str, transaction_timeout_ms: int) -> SinkMember | None:
        """A new member of a batch; None: the batch is committed already, and there is nothing to write. The first join
        of a new run, or for a later batch, gives up what was undecided before.

        Raises: Fenced for a run that another one replaced; Rejected for a batch before the one that is being written;
        Retriable or OutcomeUnknown at the deadline.
        """
        request = txn.JoinBatchRequest(
            header=self._connection.header(self._connection.random_source.request_id()),
            sink=self.name,
            run_id=self.run_id,
            batch_id=batch_id,
            attempt=attempt,
            transaction_timeout_ms=transaction_timeout_ms,
        )
        joined = self._connection.ask(JOIN_BATCH, request, deadlines=self._deadlines)
        if joined.already_committed:
            return None
        identity = Identity(joined.producer_id, joined.producer_epoch)
        return SinkMember(self._connection, self._deadlines, joined.transactional_id, identity)

    def commit(self, batch_id: int, members: Iterable[Identity]) -> int:
        """Commit a batch with these members, by their identities, and give up all others; return the number (csn) of
        the outcome. Whoever repeats it is answered as the first time.

        Raises: Fenced for another run than the one that writes; Abortable for a member that was given up: nothing was
        committed, write the batch again; Rejected for one that is not sealed; Retriable or OutcomeUnknown at the
        deadline: then the next `join` of the batch tells.
        """
        request = txn.CommitBatchRequest(
            header=self._connection.header(self._connection.random_source.request_id()),
            sink=self.name,
            run_id=self.run_id,
            batch_id=batch_id,
            members=[txn.SinkMember(producer_id=each[0], producer_epoch=each[1]) for each in members],
        )
        return self._connection.ask(COMMIT_BATCH, request, deadlines=self._deadlines).csn

    def abort(self, batch_id: int) -> int:
        """Give up the undecided members of a batch; return how many there were. Does nothing to a batch that is
        committed, or of another run."""
        request = txn.AbortBatchRequest(
            header=self._connection.header(self._connection.random_source.request_id()),
            sink=self.name,
            run_id=self.run_id,
            batch_id=batch_id,
        )
        return self._connection.ask(ABORT_BATCH, request, deadlines=self._deadlines).members
