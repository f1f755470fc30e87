"""Blocking share consumer: the application polls, and one loop thread of the process does the rest."""

from __future__ import annotations

from functools import partial
from typing import Never, Unpack

from coordinator_client.errors import TransactionError
from coordinator_client.groups.shells import POLL_TIMEOUT_MS, BlockingShell
from coordinator_client.groups.user_calls import UserCall
from coordinator_client.share.acknowledgements import Results
from coordinator_client.share.acquired import ShareRecords
from coordinator_client.share.config import ShareConsumerOptions
from coordinator_client.share.core import ShareCore
from coordinator_client.share.shell import ShareShell, note_repeating
from coordinator_client.transport.connection import Connection


class ShareConsumer(ShareShell, BlockingShell[ShareCore]):
    """Takes records of topics one by one as a member of a share group (KIP-932), as from a queue. Several members share
    each partition, and each record is acknowledged by itself.

    A polled record is held for this consumer until it is acknowledged, or its lock duration is over (30 s by default).
    By default the next poll accepts all records of the one before; see `explicit`. The heartbeats run in a thread of
    the process, one for all consumers.

    A record may be delivered more than once: if a lock ends, a process dies, or an answer is lost. Transactions with
    `Transaction.acknowledge` count each record exactly once.

    A share consumer belongs to one thread at a time. It may be made before a fork and first used after it. Use it in a
    `with` statement, or call `close`.
    """

    def __init__(self, endpoint: str | Connection, **options: Unpack[ShareConsumerOptions]) -> None:
        """Check the settings; no request is sent yet. For the options see `ShareConsumerConfig`.

        Raises: Rejected or Misconfigured for a wrong option.
        """
        super().__init__(endpoint, **options)

    def poll(self, *unnamed: Never, timeout_ms: int = POLL_TIMEOUT_MS, max_records: int | None = None) -> ShareRecords:
        """Return the next records; no records once `timeout_ms` is over. From `max_records` on (default:
        `max_poll_records`) no further batch is acquired, so there may be more; see `share_acquire_mode`.

        A poll sends the acknowledgements of earlier records. In implicit mode it accepts all those that were not
        acknowledged otherwise. In explicit mode it raises Rejected if some were not, and has done nothing.

        While a server that was reached once does not answer, the consumer tries again without limit. It also goes on
        after a lost session or membership. Records that it held are then lost, and come again, here or elsewhere.

        Raises: AcknowledgementFailed, once, if earlier acknowledgements failed or records were lost, and there is no
        callback. Misconfigured; Unreachable (no server was ever reached within `wait_ms`; the next poll goes on
        trying); CorruptBatch (damaged bytes; see `on_corrupt_batch`). Any exception of the callback.
        """
        return self._hand_out(self._found(unnamed, timeout_ms, max_records))

    def _found(self, unnamed: tuple[object, ...], timeout_ms: int, max_records: int | None) -> ShareRecords:
        """Do all of a poll except noting that the application has the records."""
        until_ms, records_max = self._begin_poll(unnamed, timeout_ms, max_records)
        is_first = True
        try:
            while True:
                found = self._do(partial(self._poll_step, records_max, until_ms, is_first=is_first))
                is_first = False
                if isinstance(found, Exception):
                    raise found
                if isinstance(found, UserCall):
                    self._make(found)
                elif found:
                    records = self._decode(found)
                    if records:
                        return records
                elif not self._wait(until_ms):
                    self._end_poll()
                    return ShareRecords()
        except BaseException:
            self._end_poll()
            raise

    def commit(self, *, timeout_ms: int | None = None) -> Results:
        """Send the acknowledgements, in implicit mode of all polled records; return once they are durable, with None or
        the error (AcknowledgementFailed) of each partition.

        Raises: Retriable at the deadline: the consumer goes on trying, and a later commit waits for the same.
        """
        try:
            return self._finish(self._begin_commit(timeout_ms))
        except TransactionError:
            raise
        except BaseException as interruption:
            note_repeating(interruption)
            raise

    def unsubscribe(self, *, timeout_ms: int | None = None) -> None:
        """Send the acknowledgements, in implicit mode of all polled records, and release all other records. Then leave
        the group. `subscribe` may follow. Raises: Retriable at the deadline; AcknowledgementFailed as `poll`."""
        self._finish(self._begin_leave(self._patience(timeout_ms), commits=True))
        self._raise_failure()

    def close(self, *, timeout_ms: int | None = None) -> None:
        """Send the acknowledgements, in implicit mode of all polled records, and release all other records. Then leave
        the group, and close the connection if it was made here.

        At the end of a `with` block with an exception, records that were not acknowledged are released, not accepted.
        Takes at most `timeout_ms` (default: the setting `close_timeout_ms`), and a second once the server does not
        answer; it then notices the silence itself. A second call does nothing. Raises: AcknowledgementFailed as `poll`;
        any exception of the callback.
        """
        self._close_and_raise(timeout_ms)
