"""Common base of the blocking and the asyncio member of a streams group: the part that does not wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from coordinator_client.calls import Patience
from coordinator_client.errors import rejected
from coordinator_client.groups.committed import Committed, Offsets, Partitions, checked_offsets, checked_partitions
from coordinator_client.groups.shells import Begun, MemberShell
from coordinator_client.groups.user_calls import UserCall
from coordinator_client.streams.config import StreamsClientConfig, StreamsClientOptions
from coordinator_client.streams.core import StreamsCore
from coordinator_client.streams.endpoints import StreamsEndpoint
from coordinator_client.streams.membership import StateOffset, StreamsStatus
from coordinator_client.streams.tasks import AnyTaskListener, Task, Tasks
from coordinator_client.transport.connection import Connection
from coordinator_client.values import TransactionOffsets
from coordinator_protocol.errors import ErrorCode

Step: TypeAlias = UserCall | Tasks | Exception | None


class StreamsShell(MemberShell[StreamsCore]):
    """Base of `StreamsClient` and `AsyncStreamsClient`; not for applications."""

    def __init__(
        self, endpoint: str | Connection, listener: AnyTaskListener | None, options: StreamsClientOptions
    ) -> None:
        self._config = StreamsClientConfig(**options)
        client_id = self._open(endpoint, self._config)
        core = StreamsCore(self._config, client_id=client_id, random_source=self._connection.random_source)
        flights = core.context.flights
        flights.answers, flights.throttle = self._connection.answers, self._connection.throttle
        core.handover.listener = listener
        self._begin(core)

    def tasks(self) -> Tasks:
        """Return the tasks that this member has now."""
        return self._turn(lambda core: core.tasks())

    def statuses(self) -> tuple[StreamsStatus, ...]:
        """Return the statuses of the group as of the last heartbeat: why there are no tasks, or that the application
        is to stop."""
        return self._turn(lambda core: core.membership.statuses)

    def endpoints(self) -> tuple[StreamsEndpoint, ...]:
        """Return the endpoints of the members that gave a `user_endpoint`, with the partitions whose state is there, as
        of the last heartbeat."""
        return self._turn(lambda core: core.membership.endpoints)

    @property
    def acceptable_recovery_lag(self) -> int:
        """Lag at which a warm-up task counts as caught up, as the server said last; 0 before its first answer."""
        return self._turn(lambda core: core.membership.acceptable_lag)

    def report_offsets(self, offsets: Mapping[tuple[str, int], tuple[int, int]]) -> None:
        """Report how far the state of stateful tasks is: offset and end offset by task, the changelogs of a task
        together. Name all such tasks; each call replaces the one before.

        The report goes out with the next heartbeat that is due for one, and at once if a warm-up task has caught up.
        Raises: Rejected unless the member was made with `reports_offsets`.
        """
        if not self._config.reports_offsets:
            raise rejected(
                ErrorCode.INVALID_CONFIG, "make the member with reports_offsets=True, to report from the join on"
            )
        found = {Task(*task): StateOffset(*each) for task, each in offsets.items()}
        self._turn(lambda core: core.membership.report(found, self._engine.now_ms))

    def shut_down_application(self) -> None:
        """Ask all members of the group to stop: they get the status SHUTDOWN_APPLICATION until the group is empty."""
        self._turn(lambda core: core.membership.shut_down(self._engine.now_ms))

    def transaction_offsets(self, batch: Offsets) -> TransactionOffsets:
        """Return the arguments of `Transaction.commit_offsets`: offsets of partitions that active tasks read, and this
        member. The group refuses them once another member has a task.

        Raises: Abortable if no active task of this member reads one of the partitions.
        """
        checked = checked_offsets(batch)
        return self._turn(lambda core: core.transaction_offsets(checked))

    def _poll_step(self, core: StreamsCore, *, is_first: bool) -> Step:
        return core.poll_step(self._engine.now_ms, is_first=is_first)

    def _ask_committed(self, partitions: Partitions, timeout_ms: int | None) -> Begun[Committed]:
        checked, patience = checked_partitions(partitions), self._patience(timeout_ms)
        future = self._turn(lambda core: core.committed(checked, now_ms=self._engine.now_ms, ends_ms=patience.ends_ms))
        return Begun(future, "committed", patience)

    def _begin_leave(self, patience: Patience, *, commits: bool) -> Begun[None]:
        future = self._turn(lambda core: core.leave(self._engine.now_ms))
        return Begun(future, "leaving the group", patience, with_rebalance=True)
