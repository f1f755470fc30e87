"""Common base of the blocking and the asyncio share consumer: the part that does not wait."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from typing import TypeAlias, Unpack

from coordinator_client.calls import Patience
from coordinator_client.errors import check_here, rejected
from coordinator_client.groups.shells import RECORDS, Begun, MemberShell
from coordinator_client.groups.subscription import WantedTopics
from coordinator_client.groups.user_calls import UserCall
from coordinator_client.settings import Skipped
from coordinator_client.share.acknowledgements import Results
from coordinator_client.share.acquired import AcknowledgeType, HeldRecords, ShareRecord, ShareRecords
from coordinator_client.share.config import ShareConsumerConfig, ShareConsumerOptions
from coordinator_client.share.core import AcknowledgementCallback, ShareCore
from coordinator_client.share.decoded import DecodedBatches
from coordinator_client.transport.connection import Connection
from coordinator_client.values import TopicPartition, TransactionAcknowledgements
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.names import check_topic_name

Step: TypeAlias = UserCall | list[HeldRecords] | Exception | None


class ShareShell(MemberShell[ShareCore]):
    """Base of `ShareConsumer` and `AsyncShareConsumer`; not for applications."""

    def __init__(self, endpoint: str | Connection, **options: Unpack[ShareConsumerOptions]) -> None:
        self._config = ShareConsumerConfig(**options)
        self._decoded = DecodedBatches()
        client_id = self._open(endpoint, self._config)
        core = ShareCore(self._config, client_id=client_id, random_source=self._connection.random_source)
        flights = core.context.flights
        flights.answers, flights.throttle = self._connection.answers, self._connection.throttle
        self._begin(core)

    def subscribe(self, topics: Collection[str]) -> None:
        """Take records of these topics as a member of the share group, joining with the next `poll`; replaces the
        previous subscription.

        A topic need not exist yet: for a topic that does not exist, the logger `coordinator_client` writes one warning.
        A group without a start offset begins as its setting `share_auto_offset_reset` says, by default at the end.
        By default a group also gets records of open and aborted transactions: set its `share_isolation_level` to
        `read_committed`.
        Raises: Rejected.
        """
        if isinstance(topics, str):
            raise TypeError(f"topics must be a list of names, not one text: [{topics!r}]")
        for topic in topics:
            check_here(check_topic_name, topic)
        if not topics:
            raise rejected(ErrorCode.INVALID_REQUEST, "name topics to subscribe to")
        wanted = WantedTopics(frozenset(topics))
        self._do(lambda core: core.subscribe(wanted, self._engine.now_ms))

    def subscription(self) -> frozenset[str]:
        """Return the topics of the subscription."""
        return self._core.membership.subscription.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions of which this consumer gets records now. Others may get records of them, too."""
        return self._turn(lambda core: frozenset(core.membership.assignment))

    def acknowledge(
        self, records: ShareRecord | Iterable[ShareRecord], acknowledge_type: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """Choose the outcome of a record, or of several such as all of a poll. It is sent with the next `poll`,
        `commit` or `close`; until then another choice replaces it.

        After RENEW the record stays with the application for another lock duration, and must be acknowledged again. The
        next poll does not return it, and does not accept it implicitly.

        Raises: Rejected if a record is not held: it was acknowledged before, or delivered again.
        """
        chosen = AcknowledgeType(acknowledge_type)
        self._core.acknowledge([records] if isinstance(records, ShareRecord) else records, chosen)

    def accept(self, records: ShareRecord | Iterable[ShareRecord]) -> None:
        """Acknowledge records that were processed. Raises: as `acknowledge`."""
        self.acknowledge(records, AcknowledgeType.ACCEPT)

    def release(self, records: ShareRecord | Iterable[ShareRecord]) -> None:
        """Give records back, to be delivered again, here or elsewhere, up to the group's delivery limit. Those of a
        transaction that was aborted may be given back, too. Raises: as `acknowledge`."""
        self.acknowledge(records, AcknowledgeType.RELEASE)

    def reject(self, records: ShareRecord | Iterable[ShareRecord]) -> None:
        """Acknowledge records that cannot be processed, and must not be delivered again. Raises: as `acknowledge`."""
        self.acknowledge(records, AcknowledgeType.REJECT)

    def renew(self, records: ShareRecord | Iterable[ShareRecord]) -> None:
        """Keep records for another lock duration, because processing takes longer. Raises: as `acknowledge`."""
        self.acknowledge(records, AcknowledgeType.RENEW)

    def commit_async(self) -> None:
        """Send the acknowledgements without waiting. Raises: Rejected if the consumer is closed."""
        self._do(lambda core: core.commit_async())

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCallback | None) -> None:
        """Have `callback(offsets, error)` called with the offsets, by partition, of acknowledgements that were sent by
        `poll`, `commit_async` or `close`; `error` is None for success. Those of `commit` have its result instead.

        It is called in the application's thread, in a later `poll`, `commit` or `close`. Without a callback these calls
        raise AcknowledgementFailed for acknowledgements that failed.
        """
        self._do(partial(_set_callback, callback))

    @property
    def lock_duration_ms(self) -> int:
        """Time for which polled records are held (ms); 0 before the first answer of the server."""
        return self._turn(lambda core: core.lock_duration_ms)

    @property
    def skipped(self) -> Skipped:
        """Counts of the batches rejected so far because they cannot be read; empty unless `on_corrupt_batch` is
        `skip`."""
        return self._core.skipped

    def _begin_poll(self, unnamed: tuple[object, ...], timeout_ms: int, max_records: int | None) -> tuple[int, int]:
        """Return the end of the poll, and the maximum number of its records. Raises: TypeError, Rejected."""
        until_ms = self._poll_until_ms(unnamed, timeout_ms)
        return until_ms, self._config.max_poll_records if max_records is None else max(1, max_records)

    def _poll_step(self, records_max: int, until_ms: int, core: ShareCore, *, is_first: bool) -> Step:
        """Take one step of a poll; see `ShareCore.poll_step`."""
        return core.poll_step(records_max, until_ms, self._engine.now_ms, is_first=is_first)

    def _decode(self, acquisitions: list[HeldRecords]) -> ShareRecords:
        """Return the records that arrived. If there are none, the next step takes what arrived instead of them."""
        for each in acquisitions:
            each.decode(self._decoded)
        records = ShareRecords(acquisitions, self._for_transaction)
        if not records:
            self._handed = {RECORDS: records}
        return records

    def _for_transaction(self, batch: ShareRecords) -> TransactionAcknowledgements:
        return self._do(lambda core: core.hand_to_transaction(batch))

    def _begin_commit(self, timeout_ms: int | None) -> Begun[Results]:
        patience = self._patience(timeout_ms)
        return Begun(self._do(lambda core: core.commit()), "commit", patience)

    def _begin_leave(self, patience: Patience, *, commits: bool) -> Begun[None]:
        future = self._do(lambda core: core.leave(self._engine.now_ms, commits=commits))
        return Begun(future, "leaving the group", patience, with_rebalance=True)


def _set_callback(callback: AcknowledgementCallback | None, core: ShareCore) -> None:
    core.callback = callback


def note_repeating(error: BaseException) -> None:
    """Add a note to the interruption of a commit that it is safe to commit again."""
    error.add_note("Records may have been acknowledged. Commit again: what is not done yet is done then.")
