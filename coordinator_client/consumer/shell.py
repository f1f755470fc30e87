"""Common base of the blocking and the asyncio consumer: the part that does not wait.

It checks arguments, and converts the application's questions about partitions to requests and their answers to results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar, Unpack

from google.protobuf.message import Message

from coordinator_api.v1 import log_pb2 as log
from coordinator_client.calls import LIST_OFFSETS, OFFSET_FETCH, Deadlines, Patience, RetryingCall, Rpc
from coordinator_client.consumer.commits import COMMIT_AGAIN
from coordinator_client.consumer.config import EARLIEST, LATEST, ConsumerConfig, ConsumerOptions
from coordinator_client.consumer.core import CommitCallback, ConsumerCore
from coordinator_client.consumer.cuts import cut_since
from coordinator_client.consumer.fetching import SEEK_BEHIND
from coordinator_client.consumer.handover import AnyListener
from coordinator_client.consumer.owned import Slice
from coordinator_client.consumer.polled import ConsumerRecords, Unread, decoded
from coordinator_client.errors import ReplyFields, TransactionError, check_here, failure, rejected
from coordinator_client.groups.committed import (
    Offsets,
    Partitions,
    checked_offsets,
    checked_partitions,
    committed_of,
    committed_verdicts,
    offset_fetch_request,
)
from coordinator_client.groups.futures import Future
from coordinator_client.groups.shells import RECORDS, Begun, MemberShell
from coordinator_client.groups.subscription import WantedTopics
from coordinator_client.groups.user_calls import UserCall
from coordinator_client.settings import SKIP, Skipped, isolation_level, timestamp_ms
from coordinator_client.transport.connection import Connection
from coordinator_client.values import GroupMetadata, OffsetAndMetadata, TopicPartition, TransactionOffsets
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.names import check_topic_name


def ask_committed(
    core: ConsumerCore, partitions: Collection[TopicPartition], *, now_ms: int, timeout_ms: int
) -> Future[dict[TopicPartition, OffsetAndMetadata | None]]:
    """Ask for committed offsets, waiting for pending ones until their transaction ends."""
    asked = sorted(partitions)
    request = offset_fetch_request(core.context, core.reader(), ((name, b"") for name in asked))
    deadlines = Deadlines(total_ms=timeout_ms)
    call = RetryingCall(OFFSET_FETCH, request, deadlines=deadlines, now_ms=now_ms, items=committed_verdicts)
    return core.ask(call, partial(committed_of, asked))


def ask_offsets(
    core: ConsumerCore, times_ms: Mapping[TopicPartition, int], *, now_ms: int, timeout_ms: int
) -> Future[dict[TopicPartition, int]]:
    """Ask for the offset of each partition at a time, or at `EARLIEST_MS` or `LATEST_MS`; all are taken at the same
    moment."""
    request = log.ListOffsetsRequest(
        header=core.context.header(), isolation_level=isolation_level(core.config.isolation)
    )
    for (topic, partition), time_ms in times_ms.items():
        request.partitions.add(topic=topic, partition=partition, timestamp_ms=time_ms)

    def convert(reply: log.ListOffsetsResponse) -> dict[TopicPartition, int]:
        return {name: found.offset for name, found in zip(times_ms, reply.results, strict=True)}

    deadlines = Deadlines(total_ms=timeout_ms)
    call = RetryingCall(LIST_OFFSETS, request, deadlines=deadlines, now_ms=now_ms, items=lambda reply: reply.results)
    return core.ask(call, convert)


T = TypeVar("T")


class ConsumerShell(MemberShell[ConsumerCore]):
    """Base of `Consumer` and `AsyncConsumer`; not for applications."""

    def __init__(self, endpoint: str | Connection, **options: Unpack[ConsumerOptions]) -> None:
        self._config = ConsumerConfig(**options)
        client_id = self._open(endpoint, self._config)
        core = ConsumerCore(self._config, client_id=client_id, random_source=self._connection.random_source)
        flights = core.context.flights
        flights.answers, flights.throttle = self._connection.answers, self._connection.throttle
        self._begin(core)

    def assign(self, partitions: Partitions) -> None:
        """Read exactly these partitions, without a group assignment; replaces the previous assignment.

        A partition belongs to the topic that has the name at its first read. Once that topic is deleted, even if it is
        recreated, `poll` raises Rejected each time. To read the topic that has the name now, assign the partition again
        or move it (`seek`, `seek_to_beginning`, `seek_to_end`). With a `group_id` offsets are committed in the name of
        the group, which accepts them while it has no members. Raises: Rejected.
        """
        checked = checked_partitions(partitions)
        self._do(lambda core: core.assign(checked, self._engine.now_ms))

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that this consumer has now."""
        return self._turn(lambda core: core.assignment.names())

    def subscription(self) -> frozenset[str]:
        """Return the topics of the subscription that were given by name."""
        return self._core.subscription.topics

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Set the offset of the next record that `poll` returns of a partition. Raises: Rejected if it is not
        assigned."""
        if offset < 0:
            raise rejected(ErrorCode.OFFSET_OUT_OF_RANGE, f"the offset to go to is {offset} and must not be below 0")
        self._do(lambda core: core.assignment.to_move(TopicPartition(*partition)).move_to(offset))

    def seek_to_beginning(self, partitions: Partitions | None = None) -> None:
        """Move these partitions, by default all, to their first record."""
        self._look_up(partitions, EARLIEST)

    def seek_to_end(self, partitions: Partitions | None = None) -> None:
        """Move these partitions, by default all, to the next offset after their last record; to the last stable offset
        in `read_committed`."""
        self._look_up(partitions, LATEST)

    def rewind(self, batch: ConsumerRecords) -> None:
        """Move back, so that the next poll returns the records of this batch again, except those of partitions that are
        no longer assigned. Call it after a transaction was aborted: otherwise the consumer goes on after the batch, and
        the next commit passes its records."""

        def move(_: ConsumerCore) -> None:
            for each in reversed(batch.slices):
                if each.partition.is_held:
                    each.partition.move_to(each.first_offset, each.epoch_before)

        self._do(move)

    def pause(self, partitions: Partitions) -> None:
        """Keep `poll` from returning records of these partitions until `resume`; they stay assigned.

        Their fetched records are kept while there is space, and fetched again otherwise, so they never block other
        partitions. Raises: Rejected.
        """
        self._set_paused(partitions, is_paused=True)

    def resume(self, partitions: Partitions) -> None:
        """Let `poll` return records of these partitions again. Raises: Rejected if one is not assigned."""
        self._set_paused(partitions, is_paused=False)

    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return self._turn(lambda core: frozenset(each.name for each in core.assignment if each.is_paused))

    @property
    def skipped(self) -> Skipped:
        """Counts of the batches skipped so far because they cannot be read; empty unless `on_corrupt_batch` is
        `skip`."""
        if not self.is_closed:
            self._do(_nothing)
        return self._core.context.skipped

    def commit_async(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None:
        """Commit these offsets, by default the positions, without waiting.

        The commit is tried once. `callback(offsets, error)` is called in the order of the commits, in a later `poll`,
        `commit` or `close`; `error` is None for success. Raises: Rejected for a wrong call.
        """
        checked = None if offsets is None else checked_offsets(offsets)
        self._do(lambda core: core.commit_async(checked, callback))

    def group_metadata(self) -> GroupMetadata:
        """Return the current identity of this consumer in its group. Raises: Rejected without a group."""
        return self._turn(lambda core: core.membership.standing())

    def transaction_offsets(self, batch: ConsumerRecords | Offsets) -> TransactionOffsets:
        """Return the arguments of `Transaction.commit_offsets`: the next offsets after the batch, and the
        committing member.

        This works during a rebalance too: offsets of partitions still held may be committed, and the group decides.

        Raises: Abortable if a partition of a batch from `poll` no longer belongs to this consumer, so that another
        member reads its records. Rejected if a partition of a mapping is not assigned, with automatic commits, or
        without a group.
        """
        if self._config.enable_auto_commit and self._config.group_id is not None:
            raise rejected(
                ErrorCode.INVALID_CONFIG,
                "this consumer commits by itself what it returned, also where the transaction is aborted; make it with "
                "enable_auto_commit=False",
            )

        def collect(core: ConsumerCore) -> TransactionOffsets:
            if isinstance(batch, ConsumerRecords):
                _check_held(batch.slices)
                offsets = checked_offsets(batch.next_offsets)
            else:
                offsets = checked_offsets(batch)
                for name in offsets:
                    core.assignment.get(name)
            return TransactionOffsets(core.membership.standing(), offsets, core.assignment.topic_ids())

        return self._do(collect)

    def _begin_poll(self, unnamed: tuple[object, ...], timeout_ms: int, max_records: int | None) -> tuple[int, int]:
        """Return the end of the poll, and the maximum number of its records. Raises: TypeError, Rejected."""
        until_ms = self._poll_until_ms(unnamed, timeout_ms)
        return until_ms, self._config.max_poll_records if max_records is None else max(1, max_records)

    def _begin_commit(self, offsets: Offsets | None, timeout_ms: int | None) -> Begun[None]:
        checked = None if offsets is None else checked_offsets(offsets)
        patience = self._patience(timeout_ms)
        return Begun(self._do(lambda core: core.commit(checked, patience.ends_ms)), "commit", patience)

    def _begin_leave(self, patience: Patience, *, commits: bool) -> Begun[None]:
        future = self._do(lambda core: core.leave(self._engine.now_ms, until_ms=patience.ends_ms, commits=commits))
        return Begun(future, "leaving the group", patience, with_rebalance=True)

    def _ask_committed(
        self, partitions: Partitions, timeout_ms: int | None
    ) -> Begun[dict[TopicPartition, OffsetAndMetadata | None]]:
        checked, patience = checked_partitions(partitions), self._patience(timeout_ms)
        future = self._turn(
            lambda core: ask_committed(core, checked, now_ms=self._engine.now_ms, timeout_ms=patience.limit_ms)
        )
        return Begun(future, "committed", patience)

    def _ask_position(self, partition: tuple[str, int], timeout_ms: int | None) -> Begun[int]:
        patience = self._patience(timeout_ms)
        return Begun(self._do(lambda core: core.position(TopicPartition(*partition))), "position", patience)

    def _cutting(self, timeout_ms: int | None) -> Generator[Begun[Any], Any, dict[TopicPartition, int]]:
        """Yield the calls to wait for, and receive their results; return the next cut."""
        config, patience = self._config, self._patience(timeout_ms)
        if config.isolation != "read_committed" or (config.enable_auto_commit and config.group_id is not None):
            raise rejected(
                ErrorCode.INVALID_CONFIG,
                "a cut is of committed records, and offsets are committed where it is reached: make the consumer with "
                "isolation='read_committed' and enable_auto_commit=False",
            )

        def ask_positions(core: ConsumerCore) -> dict[TopicPartition, Future[int]]:
            if not core.assignment.is_manual:
                raise rejected(ErrorCode.INVALID_REQUEST, "a cut is of partitions that stay together: assign() them")
            return {name: core.position(name) for name in sorted(core.assignment.names())}

        positions = self._do(ask_positions)
        for future in positions.values():
            yield Begun(future, "next_cut", patience)

        def ask(rpc: Rpc[Any, Any], request: Message, items: Callable[[Any], Iterable[ReplyFields]]) -> Begun[Any]:
            now_ms = self._engine.now_ms
            deadlines = Deadlines(total_ms=max(patience.ends_ms - now_ms, 1))
            call = RetryingCall(rpc, request, deadlines=deadlines, now_ms=now_ms, items=items)
            return Begun(self._turn(lambda core: core.ask(call, lambda reply: reply)), "next_cut", patience)

        stands = {name: future.result() for name, future in positions.items()}
        return (yield from cut_since(ask, self._core.context.header, stands, self._core.assignment.topic_ids()))

    def has_reached(self, cut: Mapping[TopicPartition, int]) -> bool:
        """Return True if there is nothing left to poll before these offsets. Raises: Rejected if one of the partitions
        is not assigned."""
        return self._do(lambda core: core.assignment.has_reached(cut))

    def _ask_ends(
        self, partitions: Partitions, which_ms: int, timeout_ms: int | None
    ) -> Begun[dict[TopicPartition, int]]:
        return self._ask_offsets(dict.fromkeys(checked_partitions(partitions), which_ms), timeout_ms)

    def _ask_times(
        self, times_ms: dict[tuple[str, int], int], timeout_ms: int | None
    ) -> Begun[dict[TopicPartition, int]]:
        asked = {name: timestamp_ms("times_ms", times_ms[name]) for name in checked_partitions(times_ms)}
        return self._ask_offsets(asked, timeout_ms)

    def _ask_offsets(
        self, times_ms: dict[TopicPartition, int], timeout_ms: int | None
    ) -> Begun[dict[TopicPartition, int]]:
        patience = self._patience(timeout_ms)
        future = self._turn(
            lambda core: ask_offsets(core, times_ms, now_ms=self._engine.now_ms, timeout_ms=patience.limit_ms)
        )
        return Begun(future, "asking for offsets", patience)

    def _subscribe(self, topics: Collection[str], pattern: str | None, listener: AnyListener | None) -> None:
        if isinstance(topics, str):
            raise TypeError(f"topics must be a list of names, not one text: [{topics!r}]")
        for topic in topics:
            check_here(check_topic_name, topic)
        if not topics and pattern is None:
            raise rejected(ErrorCode.INVALID_REQUEST, "name topics or a pattern to subscribe to")
        subscription = WantedTopics(frozenset(topics), pattern)
        self._do(lambda core: core.subscribe(subscription, listener, self._engine.now_ms))

    def _look_up(self, partitions: Iterable[tuple[str, int]] | None, where: str) -> None:
        checked = None if partitions is None else checked_partitions(partitions)

        def look_up(core: ConsumerCore) -> None:
            for name in core.assignment.names() if checked is None else checked:
                core.assignment.to_move(name).look_up(where)

        self._do(look_up)

    def _set_paused(self, partitions: Partitions, *, is_paused: bool) -> None:
        checked = checked_partitions(partitions)

        def pause(core: ConsumerCore) -> None:
            found = [core.assignment.get(name) for name in checked]
            for partition in found:
                partition.is_paused = is_paused

        self._do(pause)

    def _poll_step(
        self, records_max: int, until: Mapping[TopicPartition, int] | None, core: ConsumerCore, *, is_first: bool
    ) -> UserCall | list[Slice] | Exception | None:
        """Take one step of a poll; see `ConsumerCore.poll_step`."""
        return core.poll_step(records_max, self._engine.now_ms, is_first=is_first, until=until)

    def _unread(self) -> Unread | None:
        """Return the batch under iteration; None if there is none, or it is at its end."""
        handed = self._handed.get(RECORDS)
        return handed if isinstance(handed, Unread) and handed.has_next else None

    def _begin_unread(self, records: ConsumerRecords) -> None:
        """Store the records that an iteration returns from here on."""
        self._handed = {RECORDS: Unread(records)}

    def _decode(self, slices: list[Slice]) -> ConsumerRecords:
        """Return the records of these slices. A batch that cannot be read is left out and noted, or left for the next
        poll. If it comes first, its error is raised."""
        records, error = decoded(slices, skips=self._config.on_corrupt_batch == SKIP)
        if error is not None and not records:
            error.action = SEEK_BEHIND
            raise error
        return records


def note_repeating(error: BaseException) -> None:
    """Add a note to the interruption of a commit that it is safe to commit again. Errors of the SDK say that
    themselves."""
    if not isinstance(error, TransactionError):
        error.add_note(f"The offsets may have been committed. {COMMIT_AGAIN}")


def _nothing(_: ConsumerCore) -> None:
    """Do nothing, so that a call only confirms the records that the application has got."""


def _check_held(slices: Iterable[Slice]) -> None:
    for each in slices:
        if not each.partition.is_held:
            topic, number = each.partition.name
            error = failure(
                ErrorCode.ILLEGAL_GENERATION,
                ErrorClass.ABORT,
                f"{topic}-{number} was taken from this consumer since the batch was polled, and who has it now reads "
                "the same records",
            )
            error.action = "The transaction is aborted: go on with poll(), the batch is another consumer's."
            raise error
