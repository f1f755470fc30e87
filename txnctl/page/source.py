"""Questions to the server, in the name of one user. The only module that knows how they are asked.

They are asked on the loop of the page. Only a look into a topic runs in a thread, because the SDK's readers block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from starlette.concurrency import run_in_threadpool

from coordinator_api.v1 import admin_pb2 as admin
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_client import calls
from coordinator_client.admin.admin import AsyncAdmin
from coordinator_client.admin.observing import (
    HeldSnapshot,
    PartitionListing,
    QuotaReport,
    RateHistory,
    RecentEvent,
    ServerSetting,
    TransactionPage,
)
from coordinator_client.admin.server_admin import DiskDescription, ServerLimits, ShardDescription
from coordinator_client.admin.topic_admin import TopicSetting
from coordinator_client.admin.transaction_admin import HangingListing, SinkListing
from coordinator_client.descriptions.group_offsets import GroupLag, ShareGroupOffset
from coordinator_client.descriptions.groups import GroupDescription, GroupListing
from coordinator_client.descriptions.transactions import (
    PartitionExplanation,
    TransactionDescription,
    transaction_description,
)
from coordinator_client.errors import Misconfigured, Retriable, TransactionError
from coordinator_client.tls import Tls
from coordinator_client.transport.connection import Connection
from coordinator_client.values import TopicPartition
from coordinator_protocol.errors import ErrorCode
from txnctl.page.looking import LookWanted, TopicLook, look_into

T = TypeVar("T")

CLIENT_ID: Final = "txnctl-page"
DEADLINE_MS: Final = 5_000
"""Longest wait for an answer. A page is answered in less, or says that the server is not there."""
PARTITIONS_MAX: Final = 10_000
"""Number of partitions from which the page stops to list them."""
_UNKNOWN_CALLER: Final = "UNAUTHENTICATED"


class CredentialsRefused(Exception):
    """The server does not accept the credentials of the user any more."""


class ServerAway(Exception):
    """The server cannot be reached, or does not answer."""


@dataclass(frozen=True, slots=True)
class PageAnswer(Generic[T]):
    """A value, or the reason why the user does not get it."""

    value: T | None = None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Backups:
    """The backups of the server, and their directory."""

    directory: str
    backups: Sequence[admin.BackupDescription]


@dataclass(frozen=True, slots=True)
class Shards:
    """The shards of the server, and its disk."""

    shards: Sequence[ShardDescription]
    disk: DiskDescription


class ServerSource:
    """Questions of one user. Every method raises CredentialsRefused and ServerAway."""

    def __init__(self, endpoint: str, tls: Tls | None, deadline_ms: int = DEADLINE_MS) -> None:
        self._connection = Connection(endpoint, client_id=CLIENT_ID, tls=tls, wait_ms=deadline_ms)
        self._admin = AsyncAdmin(self._connection, deadline_ms=deadline_ms)
        self._deadlines = calls.Deadlines(total_ms=deadline_ms)

    async def close(self) -> None:
        """Close the connection."""
        # In a thread, because it waits for the end of the one on which looks into topics were answered.
        await run_in_threadpool(self._connection.close)

    async def _ask(self, question: Coroutine[Any, Any, T]) -> PageAnswer[T]:
        try:
            return PageAnswer(await question)
        except Retriable as error:
            raise ServerAway(error.reason) from error
        except TransactionError as error:
            if isinstance(error, Misconfigured) and _UNKNOWN_CALLER in error.reason:
                raise CredentialsRefused(error.reason) from error
            return PageAnswer(None, error.reason)

    async def limits(self) -> PageAnswer[ServerLimits]:
        """Return the limits and the version of the server. Every caller that it knows may ask."""
        return await self._ask(self._admin.describe_limits())

    async def shards(self) -> PageAnswer[Shards]:
        """Return the shards and the disk."""

        async def ask() -> Shards:
            return Shards(*await asyncio.gather(self._admin.list_shards(), self._admin.describe_disk()))

        return await self._ask(ask())

    async def rates(self) -> PageAnswer[RateHistory]:
        """Return the rates of the last hour."""
        return await self._ask(self._admin.rates())

    async def events(self, limit: int, kinds: Sequence[str] = ()) -> PageAnswer[list[RecentEvent]]:
        """Return the newest events."""
        return await self._ask(self._admin.recent_events(limit=limit, kinds=kinds))

    async def transactions(
        self,
        *,
        limit: int,
        skip: int = 0,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        pattern: str = "",
    ) -> PageAnswer[TransactionPage]:
        """Return a portion of the transactional ids, the longest open transaction first."""
        return await self._ask(
            self._admin.oldest_transactions(
                limit=limit, skip=skip, states=states, producer_ids=producer_ids, pattern=pattern
            )
        )

    async def transaction(self, transactional_id: str, history_limit: int) -> PageAnswer[TransactionDescription]:
        """Return one transactional id with its last steps. An id that was forgotten has them, too."""
        request = txn.DescribeTransactionsRequest(
            header=self._connection.header(), transactional_ids=[transactional_id], history_limit=history_limit
        )

        async def ask() -> TransactionDescription:
            reply = await self._connection.ask_on_loop(
                calls.DESCRIBE_TRANSACTIONS,
                request,
                deadlines=self._deadlines,
                items=lambda reply: [
                    each
                    for each in reply.transactions
                    if int(each.error_code) != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND or not each.history
                ],
            )
            return transaction_description(reply.transactions[0])

        return await self._ask(ask())

    async def hanging(self) -> PageAnswer[list[HangingListing]]:
        """Return the transactions that no client will end."""
        return await self._ask(self._admin.list_hanging_transactions())

    async def partitions(self, topics: Sequence[str] = ()) -> PageAnswer[list[PartitionListing]]:
        """Return the partitions of these topics, or of all, up to `PARTITIONS_MAX`."""

        async def ask() -> list[PartitionListing]:
            found: list[PartitionListing] = []
            after: TopicPartition | None = None
            while True:
                portion = await self._admin.list_partitions(topics, after=after)
                found += portion.partitions
                after = portion.next_after
                if after is None or len(found) >= PARTITIONS_MAX:
                    return found

        return await self._ask(ask())

    async def blocked_partitions(self, limit: int) -> PageAnswer[Sequence[PartitionListing]]:
        """Return partitions in which a transaction is open."""

        async def ask() -> Sequence[PartitionListing]:
            return (await self._admin.list_partitions(only_open=True, limit=limit)).partitions

        return await self._ask(ask())

    async def topic_settings(self, name: str) -> PageAnswer[dict[str, TopicSetting]]:
        """Return the settings of a topic with their origins."""
        return await self._ask(self._admin.topic_configs(name))

    async def explanation(self, topic: str, partition: int) -> PageAnswer[PartitionExplanation]:
        """Return the reason why committed readers of a partition get no further."""
        return await self._ask(self._admin.explain_partition(topic, partition, history_limit=1))

    async def records(self, wanted: LookWanted) -> PageAnswer[TopicLook]:
        """Return some records of a partition with the results of their transactions."""
        return await self._ask(run_in_threadpool(look_into, self._connection, wanted, self._deadlines))

    async def groups(self) -> PageAnswer[list[GroupListing]]:
        """Return all groups."""
        return await self._ask(self._admin.list_groups())

    async def group(self, group_id: str) -> PageAnswer[GroupDescription]:
        """Return one group with its members."""
        return await self._ask(self._admin.describe_group(group_id))

    async def group_lag(self, group_id: str) -> PageAnswer[list[GroupLag]]:
        """Return the offsets of a group, with the records behind them."""
        return await self._ask(self._admin.group_lag(group_id))

    async def share_group_offsets(self, group_id: str) -> PageAnswer[list[ShareGroupOffset]]:
        """Return the start offsets of a share group, with the records that are not done."""
        return await self._ask(self._admin.share_group_offsets(group_id))

    async def sinks(self) -> PageAnswer[list[SinkListing]]:
        """Return the sinks of engines."""
        return await self._ask(self._admin.describe_sinks())

    async def snapshots(self) -> PageAnswer[list[HeldSnapshot]]:
        """Return the snapshots that are held."""
        return await self._ask(self._admin.held_snapshots())

    async def quotas(self) -> PageAnswer[QuotaReport]:
        """Return the quotas of principals."""
        return await self._ask(self._admin.quotas())

    async def configuration(self) -> PageAnswer[list[ServerSetting]]:
        """Return the settings of the server with their origins."""
        return await self._ask(self._admin.server_config())

    async def backups(self) -> PageAnswer[Backups]:
        """Return the backups."""
        request = admin.ListBackupsRequest(header=self._connection.header())

        async def ask() -> Backups:
            reply = await self._connection.ask_on_loop(calls.LIST_BACKUPS, request, deadlines=self._deadlines)
            return Backups(reply.directory, reply.backups)

        return await self._ask(ask())
