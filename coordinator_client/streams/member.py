"""Blocking member of a streams group: the application polls, and one loop thread of the process does the rest."""

from __future__ import annotations

from functools import partial
from typing import Never, Unpack

from coordinator_client.groups.committed import Committed, Partitions
from coordinator_client.groups.shells import POLL_TIMEOUT_MS, BlockingShell
from coordinator_client.groups.user_calls import UserCall
from coordinator_client.streams.config import StreamsClientOptions
from coordinator_client.streams.core import StreamsCore
from coordinator_client.streams.shell import StreamsShell
from coordinator_client.streams.tasks import TaskListener, Tasks
from coordinator_client.transport.connection import Connection


class StreamsClient(StreamsShell, BlockingShell[StreamsCore]):
    """A member of a streams group (KIP-1071). The server places the tasks of a topology on the members of its group,
    and makes the internal topics.

    It processes nothing itself: `poll` says what tasks the member has. The application reads their sources, writes
    their results, and commits the offsets with `Transaction.commit_offsets(member, offsets)`. Only the member at which
    a task is active can do that. The heartbeats run in a thread of the process, one for all members.

    A member belongs to one thread at a time. It may be made before a fork and first used after it. Use it in a `with`
    statement, or call `close`.
    """

    def __init__(
        self,
        endpoint: str | Connection,
        *,
        listener: TaskListener | None = None,
        **options: Unpack[StreamsClientOptions],
    ) -> None:
        """Check the settings; no request is sent yet. For the options see `StreamsClientConfig`. The callbacks of
        `listener` are called in `poll` and `close`.

        Raises: Rejected or Misconfigured for a wrong option.
        """
        super().__init__(endpoint, listener, options)

    def poll(self, *unnamed: Never, timeout_ms: int = POLL_TIMEOUT_MS) -> Tasks:
        """Join the group, take and give up tasks, and call the listener. Return the tasks of this member: as soon as
        they, or the statuses, have changed since the last poll, and at the latest after `timeout_ms`.

        Call it again within `max_poll_interval_ms`, also while there is much to process. Between two polls no other
        member gets a task of this one, unless its session ends: then the group takes no offsets from it.

        Raises: Misconfigured or Rejected if the group refuses the member, such as for another topology. Fenced if a
        newer process has the `group_instance_id`. Unreachable (no server was ever reached within `wait_ms`; the next
        poll goes on trying). Any exception of the listener.
        """
        until_ms = self._poll_until_ms(unnamed, timeout_ms)
        is_first = True
        try:
            while True:
                found = self._turn(partial(self._poll_step, is_first=is_first))
                is_first = False
                if isinstance(found, Exception):
                    raise found
                if isinstance(found, UserCall):
                    self._make(found)
                elif found is not None:
                    return found
                elif not self._wait(until_ms):
                    return self.tasks()
        finally:
            self._end_poll()

    def committed(self, partitions: Partitions, *, timeout_ms: int | None = None) -> Committed:
        """Return the committed offsets of the group by partition; None if nothing is committed. Waits for offsets whose
        transaction is still open, and for the membership.

        Raises: Retriable at the deadline; Rejected for partitions that do not exist.
        """
        return self._finish(self._ask_committed(partitions, timeout_ms))

    def close(self, *, timeout_ms: int | None = None) -> None:
        """Give up all tasks, which calls the listener, and leave the group; close the connection if it was made here.

        Takes at most `timeout_ms` (default: the setting `close_timeout_ms`), and a second once the server does not
        answer; it then notices the silence itself. A second call does nothing. Raises: any exception of the listener.
        """
        self._close_and_raise(timeout_ms)
