"""Administration in two shells over the same calls: `Admin` blocks its caller, `AsyncAdmin` is for asyncio."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from coordinator_client.admin.acl_admin import AclCalls
from coordinator_client.admin.group_admin import GroupCalls
from coordinator_client.admin.observing import ObservationCalls
from coordinator_client.admin.server_admin import ServerCalls
from coordinator_client.admin.share_admin import ShareAdminCalls
from coordinator_client.admin.topic_admin import TopicCalls
from coordinator_client.admin.topic_admin import TopicDescription as TopicDescription
from coordinator_client.admin.transaction_admin import TransactionCalls
from coordinator_client.admin.transaction_admin import TransactionListing as TransactionListing
from coordinator_client.asking import BlockingAsker, LoopAsker, finished
from coordinator_client.calls import Deadlines
from coordinator_client.settings import duration_ms
from coordinator_client.tls import Tls
from coordinator_client.transport.connection import Connection, connection_to
from coordinator_client.transport.first_contact import GIVE_UP_MS

DEADLINE_MS: Final = 30_000

P = ParamSpec("P")
T = TypeVar("T")


class AdminCalls(TopicCalls, TransactionCalls, ShareAdminCalls, AclCalls, ServerCalls, ObservationCalls):
    """All calls of administrators, as coroutines; users create an `Admin` or an `AsyncAdmin`."""

    def __init__(self, asker: BlockingAsker) -> None:
        self._asker = asker


def blocking(call: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Admin, P], T]:
    """Return a method of `Admin` that makes the call in the caller's thread."""

    @wraps(call)
    def ask(admin: Admin, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return finished(call, admin._calls, *args, **kwargs)

    return ask


class Admin:
    """Administrator calls to one server: topics, groups, transactions, access control lists, shards and backups.

    Each call is retried until `deadline_ms`. If its outcome stays unknown, or its caller is interrupted, the exception
    says whether it is safe to repeat the call. Close an `Admin`, or use it in a `with` statement.
    """

    def __init__(
        self,
        endpoint: str | Connection,
        *,
        client_id: str = "",
        deadline_ms: int = DEADLINE_MS,
        wait_ms: int | None = GIVE_UP_MS,
        tls: Tls | None = None,
    ) -> None:
        """Store the address of the server; no connection is opened.

        `deadline_ms` is the time that each call may take. `client_id`, `wait_ms` and `tls` are those of `Connection`,
        and are used only if the connection is made here. Raises: Rejected, Misconfigured or TypeError for a wrong one.
        """
        self._connection, self._is_own = connection_to(
            endpoint, client_id=client_id or "admin", wait_ms=wait_ms, tls=tls
        )
        deadlines = Deadlines(total_ms=duration_ms("deadline_ms", deadline_ms))
        self._calls = AdminCalls(BlockingAsker(self._connection, deadlines))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Admin({self._connection.endpoint!r})"

    def close(self) -> None:
        """Close the connection if it was made here."""
        if self._is_own:
            self._connection.close()

    take_snapshot = blocking(TopicCalls.take_snapshot)
    renew_snapshot = blocking(TopicCalls.renew_snapshot)
    release_snapshot = blocking(TopicCalls.release_snapshot)
    create_topic = blocking(TopicCalls.create_topic)
    would_create_topic = blocking(TopicCalls.would_create_topic)
    add_partitions = blocking(TopicCalls.add_partitions)
    topic_configs = blocking(TopicCalls.topic_configs)
    configs_of_topics = blocking(TopicCalls.configs_of_topics)
    alter_topic_configs = blocking(TopicCalls.alter_topic_configs)
    delete_topic = blocking(TopicCalls.delete_topic)
    delete_records = blocking(TopicCalls.delete_records)
    describe_topic = blocking(TopicCalls.describe_topic)
    describe_topics = blocking(TopicCalls.describe_topics)

    list_transactions = blocking(TransactionCalls.list_transactions)
    describe_transaction = blocking(TransactionCalls.describe_transaction)
    explain_partition = blocking(TransactionCalls.explain_partition)
    abort_transactions = blocking(TransactionCalls.abort_transactions)
    fence_producers = blocking(TransactionCalls.fence_producers)
    list_hanging_transactions = blocking(TransactionCalls.list_hanging_transactions)
    abort_hanging_transactions = blocking(TransactionCalls.abort_hanging_transactions)
    describe_sinks = blocking(TransactionCalls.describe_sinks)
    abort_sink = blocking(TransactionCalls.abort_sink)

    list_groups = blocking(GroupCalls.list_groups)
    describe_group = blocking(GroupCalls.describe_group)
    remove_members = blocking(GroupCalls.remove_members)
    delete_group = blocking(GroupCalls.delete_group)
    group_offsets = blocking(GroupCalls.group_offsets)
    group_lag = blocking(GroupCalls.group_lag)
    lag_of_groups = blocking(GroupCalls.lag_of_groups)
    count_records = blocking(GroupCalls.count_records)
    plan_offset_resets = blocking(GroupCalls.plan_offset_resets)
    alter_group_offsets = blocking(GroupCalls.alter_group_offsets)
    delete_group_offsets = blocking(GroupCalls.delete_group_offsets)
    group_configs = blocking(GroupCalls.group_configs)
    alter_group_configs = blocking(GroupCalls.alter_group_configs)

    share_group_offsets = blocking(ShareAdminCalls.share_group_offsets)
    plan_share_offset_resets = blocking(ShareAdminCalls.plan_share_offset_resets)
    alter_share_group_offsets = blocking(ShareAdminCalls.alter_share_group_offsets)
    delete_share_group_offsets = blocking(ShareAdminCalls.delete_share_group_offsets)

    oldest_transactions = blocking(ObservationCalls.oldest_transactions)
    list_partitions = blocking(ObservationCalls.list_partitions)
    rates = blocking(ObservationCalls.rates)
    recent_events = blocking(ObservationCalls.recent_events)
    server_config = blocking(ObservationCalls.server_config)
    quotas = blocking(ObservationCalls.quotas)
    held_snapshots = blocking(ObservationCalls.held_snapshots)

    create_acls = blocking(AclCalls.create_acls)
    delete_acls = blocking(AclCalls.delete_acls)
    describe_acls = blocking(AclCalls.describe_acls)
    check_permission = blocking(AclCalls.check_permission)

    describe_limits = blocking(ServerCalls.describe_limits)
    list_shards = blocking(ServerCalls.list_shards)
    describe_disk = blocking(ServerCalls.describe_disk)
    load_shard = blocking(ServerCalls.load_shard)
    unload_shard = blocking(ServerCalls.unload_shard)
    create_backup = blocking(ServerCalls.create_backup)
    list_backups = blocking(ServerCalls.list_backups)


class AsyncAdmin(AdminCalls):
    """`Admin` for asyncio: the same calls, as coroutines. Close it, or use it in an `async with` statement.

    Its requests use the loop of the task that makes them, and the session that all clients on that loop share. Calls
    may be made at the same time.
    """

    def __init__(
        self,
        endpoint: str | Connection,
        *,
        client_id: str = "",
        deadline_ms: int = DEADLINE_MS,
        wait_ms: int | None = GIVE_UP_MS,
        tls: Tls | None = None,
    ) -> None:
        """Store the address of the server; no connection is opened. The arguments are those of `Admin`."""
        self._connection, self._is_own = connection_to(
            endpoint, client_id=client_id or "admin", wait_ms=wait_ms, tls=tls
        )
        super().__init__(LoopAsker(self._connection, Deadlines(total_ms=duration_ms("deadline_ms", deadline_ms))))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncAdmin({self._connection.endpoint!r})"

    async def close(self) -> None:
        """Close the connection if it was made here."""
        if self._is_own:
            self._connection.close()
