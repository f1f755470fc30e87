"""Client of sinks: many tasks write one batch, on any machine, and one decision commits it.

Each task joins the batch, sends its records and seals its member. The process that decides needs only the identities of
the members. `coordinator_client.producer.sink` is for engines; applications use `Producer`.

Source: proto/coordinator_api/v1/transaction.proto (JoinBatch to DescribeSinks); docs/decisions/0039.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_client.calls import ABORT_BATCH, COMMIT_BATCH, END_TXN, JOIN_BATCH, PRODUCE, SEAL_MEMBER, Deadlines
from coordinator_client.errors import Fenced, OutcomeUnknown, TransactionError
from coordinator_client.transport.connection import Connection
from coordinator_client.values import Identity
from coordinator_protocol.batch import Encoding

if TYPE_CHECKING:
    import pyarrow as pa

DEADLINE_MS: Final = 60_000
LEAVING_DEADLINE_MS: Final = 10_000
"""Time in which a failed task tries to abort its member (ms). Smaller: during a short outage of the server, the member
is left to the driver, or to the timeout of the sink. Larger: the failure is reported later."""


class CommittedBatch(NamedTuple):
    """Answer of `SinkClient.join` for a batch that is already committed."""

    by_this_run: bool
    """True if the joining run itself has committed the batch. That is fine for a late attempt of a task, but too late
    for a caller with more records to write."""


class SinkMember:
    """Member of a batch: the records that one attempt of a task writes, committed together or not at all. Sends one
    request at a time, each durable when its call returns."""

    def __init__(self, connection: Connection, deadlines: Deadlines, transactional_id: str, identity: Identity) -> None:
        self._connection = connection
        self._deadlines = deadlines
        self.transactional_id = transactional_id
        self.identity = identity
        """Identity of the member, which `SinkClient.commit` takes."""
        self.record_count = 0
        """Number of records that were sent."""
        self._next_sequences: dict[tuple[str, int], int] = {}

    def send_arrow(self, batches: Iterable[tuple[str, int, pa.RecordBatch]]) -> None:
        """Append records to partitions, given as (topic, partition, records). They become visible once the batch is
        committed.

        Records have the schema of Arrow v1 (`arrow_encoding.SCHEMA`). A partition may have several batches, and an
        empty batch sends nothing.

        Raises: ImportError without pyarrow. ValueError for another schema. Abortable or Fenced if the member is over.
        The TransactionError of the server's answer. Retriable or OutcomeUnknown at the deadline.
        """
        following = dict(self._next_sequences)
        stored = [self._stored(following, *each) for each in batches if each[2].num_rows]
        if not stored:
            return
        # A request has at most one batch per partition.
        rounds: list[dict[tuple[str, int], log.PartitionBatch]] = []
        for one in stored:
            place = (one.topic, one.partition)
            free = next((found for found in rounds if place not in found), None)
            if free is None:
                rounds.append({place: one})
            else:
                free[place] = one
        for found in rounds:
            request = log.ProduceRequest(
                header=self._connection.header(), transactional_id=self.transactional_id, batches=found.values()
            )
            self._connection.ask(PRODUCE, request, deadlines=self._deadlines, items=lambda reply: reply.results)
        # A repeated attempt has the same sequences, so the server appends it once.
        self._next_sequences = following
        self.record_count += sum(each.batch.record_count for each in stored)

    def _stored(
        self, following: dict[tuple[str, int], int], topic: str, partition: int, records: pa.RecordBatch
    ) -> log.PartitionBatch:
        """Return the records as the next batch of their partition, and count its sequences."""
        from coordinator_client.arrow_encoding import SCHEMA, first_and_latest_ms

        if not records.schema.equals(SCHEMA):
            raise ValueError(f"the records have the schema {records.schema}; Arrow v1 has {SCHEMA}")
        sequence = following.get((topic, partition), 0)
        following[topic, partition] = sequence + records.num_rows
        base_ms, latest_ms = first_and_latest_ms(records)
        batch = log.RecordBatch(
            record_count=records.num_rows,
            base_timestamp_ms=base_ms,
            max_timestamp_ms=latest_ms,
            encoding=log.Encoding.ValueType(Encoding.ARROW_V1),
            is_transactional=True,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            base_sequence=sequence,
            payload=records.serialize().to_pybytes(),
        )
        return log.PartitionBatch(topic=topic, partition=partition, batch=batch)

    def seal(self) -> None:
        """Seal the member: it takes no more records from now on, and the batch may be committed with it.

        Raises: Fenced if the member is over; Abortable if the log does not hold everything sent; Retriable or
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

    def abort(self, *, deadline_ms: int = LEAVING_DEADLINE_MS) -> None:
        """End this member alone, sealed or not. Its records never become visible, and readers stop waiting for it. The
        batch continues with the other members. Durable when it returns.

        Raises: Fenced for a member that has already ended, and whose outcome stands. Rejected by a server that can only
        end whole batches. Retriable or OutcomeUnknown at the deadline.
        """
        request = txn.EndTxnRequest(
            header=self._connection.header(self._connection.random_source.request_id()),
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            committed=False,
        )
        self._connection.ask(END_TXN, request, deadlines=Deadlines(total_ms=deadline_ms))

    def abort_because(self, error: BaseException) -> None:
        """Abort the member while an error is handled; the caller still raises that error. If the abort fails, the error
        gets a note, and the member stays open until its batch is given up."""
        try:
            self.abort()
        except Fenced as over:
            error.add_note(f"{self.transactional_id} was over before: {over.reason}")
        except TransactionError as failure:
            error.add_note(
                f"{self.transactional_id} could not be aborted ({failure.reason}): it holds readers of its partitions"
                " until its batch is decided or given up, by the driver, by the next run or at its timeout"
            )


class SinkClient:
    """A sink, as one run of an engine's query writes to it. It has no state of its own beyond the server's: any process
    may create one, join a batch here and decide it there."""

    def __init__(self, connection: Connection, name: str, *, run_id: str, deadline_ms: int = DEADLINE_MS) -> None:
        """Create a client of the sink `name` for one run.

        `name` must belong permanently to the source of the batches, as a checkpoint does: under another name they are
        other batches. `run_id` is unique for every start of the query.
        """
        self._connection = connection
        self._deadlines = Deadlines(total_ms=deadline_ms)
        self.name = name
        self.run_id = run_id

    def join(self, batch_id: int, *, attempt: str, transaction_timeout_ms: int) -> SinkMember | CommittedBatch:
        """Return a new member of a batch; or a `CommittedBatch` if it is already committed and there is nothing to
        write. The first join of a new run, or for a later batch, gives up all members that were undecided before.

        Raises: Fenced for a run that another one replaced. Rejected for a batch before the current one. Retriable or
        OutcomeUnknown at the deadline. A call that is interrupted, or whose outcome is unknown, aborts the member that
        it may have made.
        """
        request = txn.JoinBatchRequest(
            header=self._connection.header(self._connection.random_source.request_id()),
            sink=self.name,
            run_id=self.run_id,
            batch_id=batch_id,
            attempt=attempt,
            transaction_timeout_ms=transaction_timeout_ms,
        )
        try:
            return self._joined(request, self._deadlines)
        except BaseException as error:
            if isinstance(error, OutcomeUnknown) or not isinstance(error, TransactionError):
                self._leave(request, error)
            raise

    def _joined(self, request: txn.JoinBatchRequest, deadlines: Deadlines) -> SinkMember | CommittedBatch:
        joined = self._connection.ask(JOIN_BATCH, request, deadlines=deadlines)
        if joined.already_committed:
            return CommittedBatch(by_this_run=joined.committed_by_this_run)
        identity = Identity(joined.producer_id, joined.producer_epoch)
        return SinkMember(self._connection, self._deadlines, joined.transactional_id, identity)

    def _leave(self, request: txn.JoinBatchRequest, error: BaseException) -> None:
        """Abort the member that a request may have made: the repeated request is answered with the same member."""
        try:
            member = self._joined(request, Deadlines(total_ms=LEAVING_DEADLINE_MS))
        except TransactionError as failure:
            error.add_note(f"whether a member of {self.name} was left open is not known: {failure.reason}")
            return
        if isinstance(member, SinkMember):
            member.abort_because(error)

    def commit(self, batch_id: int, members: Iterable[Identity]) -> int:
        """Commit a batch with these members, by identity, and give up all others; return the csn of the outcome. A
        repeated call gets the same answer.

        Raises: Fenced for another run than the current one. Abortable for a member that was given up: nothing was
        committed, write the batch again. Rejected for one that is not sealed. Retriable or OutcomeUnknown at the
        deadline: the next `join` of the batch then shows the outcome.
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
        """Give up the undecided members of a batch; return their number. Has no effect on a batch that is committed or
        belongs to another run."""
        request = txn.AbortBatchRequest(
            header=self._connection.header(self._connection.random_source.request_id()),
            sink=self.name,
            run_id=self.run_id,
            batch_id=batch_id,
        )
        return self._connection.ask(ABORT_BATCH, request, deadlines=self._deadlines).member_count
