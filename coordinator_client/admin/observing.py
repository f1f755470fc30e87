"""Observation of a server: lists in portions, rates, recent events, settings, quotas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coordinator_api.v1 import admin_pb2 as admin
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_client.admin.transaction_admin import TransactionListing, transaction_listing
from coordinator_client.asking import BlockingAsker
from coordinator_client.calls import (
    DESCRIBE_QUOTAS,
    DESCRIBE_RATES,
    DESCRIBE_SERVER_CONFIG,
    LIST_EVENTS,
    LIST_PARTITIONS,
    LIST_SNAPSHOTS,
    LIST_TRANSACTIONS,
)
from coordinator_client.values import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPage:
    """A portion of the list of transactional ids, and the number of all that match."""

    transactions: tuple[TransactionListing, ...]
    matching: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionBlocker:
    """The oldest open transaction of a partition."""

    start_offset: int
    start_ms: int
    age_ms: int
    transactional_id: str
    """Id that owns it; empty if none is known, or if the caller may not describe it."""
    owner_hidden: bool
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionListing:
    """One partition, as `Admin.list_partitions` returns it."""

    topic: str
    topic_id: bytes
    partition: int
    is_served: bool
    """False: the shard of the partition does not serve, and the other fields are not known."""
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    open_transactions: int
    records: int
    """Records of clients from the log start on."""
    size_bytes: int
    blocker: PartitionBlocker | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPage:
    """A portion of the list of partitions, and the place after which the next one begins; None = it is the last."""

    partitions: tuple[PartitionListing, ...]
    next_after: TopicPartition | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RateHistory:
    """Rates and levels of the last hour at most; all series have as many values, the oldest first."""

    interval_ms: int
    end_ms: int
    series: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentEvent:
    """One recent event of a server."""

    at_ms: int
    kind: str
    principal: str
    client_id: str
    host: str
    facts: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSetting:
    """One setting of the server in force."""

    name: str
    value: str
    """The value as JSON."""
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaStanding:
    """One quota of a principal. `held` is None for a rate, and `maximum` None for no limit."""

    name: str
    held: int | None
    maximum: int | None
    pause_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaReport:
    """Quotas of principals, with the amounts held. The largest holders are first."""

    has_quotas: bool
    holders: Mapping[str, tuple[QuotaStanding, ...]]
    """Quotas by principal."""
    refusals: Mapping[str, int]
    throttles: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSnapshot:
    """A snapshot that is held by a lease."""

    principal: str
    age_ms: int
    topics: tuple[str, ...]
    partition_count: int
    parts: int
    parts_done: int


class ObservationCalls:
    """Administrator calls that observe a server; users create an `Admin`."""

    _asker: BlockingAsker

    async def oldest_transactions(
        self,
        *,
        limit: int = 100,
        skip: int = 0,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        pattern: str = "",
    ) -> TransactionPage:
        """Return up to `limit` (at most 1,000) of the ids that match, the longest open transaction first, after `skip`
        others. The filters are those of `list_transactions`."""
        request = txn.ListTransactionsRequest(
            header=self._asker.header(),
            state_filters=states,
            producer_id_filters=producer_ids,
            transactional_id_pattern=pattern,
            limit=limit,
            skip=skip,
        )
        reply = await self._asker.ask(LIST_TRANSACTIONS, request)
        listed = tuple(map(transaction_listing, reply.transactions))
        return TransactionPage(transactions=listed, matching=reply.matching)

    async def list_partitions(
        self,
        topics: Sequence[str] = (),
        *,
        only_open: bool = False,
        after: TopicPartition | None = None,
        limit: int = 1_000,
    ) -> PartitionPage:
        """Return up to `limit` (at most 1,000) partitions of these topics, or of all, after a place in the list. Each
        has its positions, its size and its blocker. `only_open`: only partitions in which a transaction is open.

        A server returns them in several answers, so partitions may change between the first and the last."""
        found: list[PartitionListing] = []
        while True:
            request = admin.ListPartitionsRequest(
                header=self._asker.header(), topics=topics, only_open=only_open, limit=limit - len(found)
            )
            if after is not None:
                request.after.topic, request.after.partition = after
            reply = await self._asker.ask(LIST_PARTITIONS, request)
            found += map(_partition, reply.partitions)
            after = None
            if reply.HasField("next_after"):
                after = TopicPartition(reply.next_after.topic, reply.next_after.partition)
            if after is None or len(found) >= limit:
                return PartitionPage(partitions=tuple(found), next_after=after)

    async def rates(self) -> RateHistory:
        """Return rates and levels of the last hour."""
        request = admin.DescribeRatesRequest(header=self._asker.header())
        reply = await self._asker.ask(DESCRIBE_RATES, request)
        return RateHistory(
            interval_ms=reply.interval_ms,
            end_ms=reply.end_ms,
            series={series.name: tuple(series.values) for series in reply.series},
        )

    async def recent_events(self, *, limit: int = 100, kinds: Sequence[str] = ()) -> list[RecentEvent]:
        """Return up to `limit` (at most 1,000) events of these kinds, or of all kinds, the newest first."""
        request = admin.ListEventsRequest(header=self._asker.header(), limit=limit, kinds=kinds)
        reply = await self._asker.ask(LIST_EVENTS, request)
        return [
            RecentEvent(
                at_ms=event.at_ms,
                kind=event.kind,
                principal=event.principal,
                client_id=event.client_id,
                host=event.host,
                facts=dict(event.facts),
            )
            for event in reply.events
        ]

    async def server_config(self) -> list[ServerSetting]:
        """Return the settings in force, with their origins."""
        request = admin.DescribeServerConfigRequest(header=self._asker.header())
        reply = await self._asker.ask(DESCRIBE_SERVER_CONFIG, request)
        return [ServerSetting(name=each.name, value=each.value, origin=each.origin) for each in reply.settings]

    async def quotas(self) -> QuotaReport:
        """Return the quotas of principals, with the amounts held."""
        request = admin.DescribeQuotasRequest(header=self._asker.header())
        reply = await self._asker.ask(DESCRIBE_QUOTAS, request)
        return QuotaReport(
            has_quotas=reply.has_quotas,
            holders={holder.principal: tuple(map(_quota, holder.quotas)) for holder in reply.holders},
            refusals=dict(reply.refusals),
            throttles=dict(reply.throttles),
        )

    async def held_snapshots(self) -> list[HeldSnapshot]:
        """Return the snapshots that are held by a lease, the oldest first."""
        request = admin.ListSnapshotsRequest(header=self._asker.header())
        reply = await self._asker.ask(LIST_SNAPSHOTS, request)
        return [
            HeldSnapshot(
                principal=each.principal,
                age_ms=each.age_ms,
                topics=tuple(each.topics),
                partition_count=each.partition_count,
                parts=each.parts,
                parts_done=each.parts_done,
            )
            for each in reply.snapshots
        ]


def _partition(found: admin.PartitionListing) -> PartitionListing:
    blocker = found.blocker
    return PartitionListing(
        topic=found.topic,
        topic_id=found.topic_id,
        partition=found.partition,
        is_served=found.is_served,
        log_start_offset=found.log_start_offset,
        last_stable_offset=found.last_stable_offset,
        high_watermark=found.high_watermark,
        open_transactions=found.open_transactions,
        records=found.records,
        size_bytes=found.size_bytes,
        blocker=PartitionBlocker(
            start_offset=blocker.start_offset,
            start_ms=blocker.start_ms,
            age_ms=blocker.age_ms,
            transactional_id=blocker.transactional_id,
            owner_hidden=blocker.owner_hidden,
            state=blocker.state,
        )
        if found.HasField("blocker")
        else None,
    )


def _quota(found: admin.QuotaStanding) -> QuotaStanding:
    return QuotaStanding(
        name=found.name,
        held=found.held if found.HasField("held") else None,
        maximum=found.maximum if found.HasField("maximum") else None,
        pause_ms=found.pause_ms,
    )
