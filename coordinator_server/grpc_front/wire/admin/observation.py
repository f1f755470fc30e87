"""The RPCs of AdminService that observe a server: messages to values, the use case, its answer to a message."""

from __future__ import annotations

import dataclasses

from msgspec.structs import asdict

from coordinator_api.v1 import admin_pb2
from coordinator_core.observation import Observation
from coordinator_core.observed import QuotaHolder
from coordinator_core.partition_list import (
    Blocker,
    ListedPartition,
    ListPartitions,
    ListPlace,
    PartitionList,
    PartitionLister,
)
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext


class ObservationServicer:
    """One method per RPC."""

    def __init__(self, observation: Observation, partitions: PartitionLister) -> None:
        self._observation = observation
        self._partitions = partitions

    def ListPartitions(
        self, request: admin_pb2.ListPartitionsRequest, context: CallContext
    ) -> Pending[admin_pb2.ListPartitionsResponse]:
        after = ListPlace(request.after.topic, request.after.partition) if request.HasField("after") else None
        command = ListPartitions(frozenset(request.topics), request.only_open, after, request.limit)
        return self._partitions.list_partitions(command, context).map(_partitions)

    def DescribeRates(
        self, request: admin_pb2.DescribeRatesRequest, context: CallContext
    ) -> Pending[admin_pb2.DescribeRatesResponse]:
        rates = self._observation.rates(context)
        response = admin_pb2.DescribeRatesResponse(interval_ms=rates.interval_ms, end_ms=rates.end_ms)
        for name, values in rates.series.items():
            response.series.add(name=name, values=values)
        return settled(response)

    def ListEvents(
        self, request: admin_pb2.ListEventsRequest, context: CallContext
    ) -> Pending[admin_pb2.ListEventsResponse]:
        events = self._observation.events(request.limit, frozenset(request.kinds), context)
        return settled(
            admin_pb2.ListEventsResponse(events=[admin_pb2.RecentEvent(**asdict(event)) for event in events])
        )

    def DescribeServerConfig(
        self, request: admin_pb2.DescribeServerConfigRequest, context: CallContext
    ) -> Pending[admin_pb2.DescribeServerConfigResponse]:
        settings = self._observation.settings(context)
        return settled(
            admin_pb2.DescribeServerConfigResponse(
                settings=[admin_pb2.ServerSetting(**asdict(setting)) for setting in settings]
            )
        )

    def DescribeQuotas(
        self, request: admin_pb2.DescribeQuotasRequest, context: CallContext
    ) -> Pending[admin_pb2.DescribeQuotasResponse]:
        report = self._observation.quotas(context)
        return settled(
            admin_pb2.DescribeQuotasResponse(
                has_quotas=report.has_quotas,
                holders=map(_holder, report.holders),
                refusals=report.refusals,
                throttles=report.throttles,
            )
        )

    def ListSnapshots(
        self, request: admin_pb2.ListSnapshotsRequest, context: CallContext
    ) -> Pending[admin_pb2.ListSnapshotsResponse]:
        held = self._observation.snapshots(context)
        return settled(
            admin_pb2.ListSnapshotsResponse(
                snapshots=[admin_pb2.HeldSnapshot(**dataclasses.asdict(lease)) for lease in held]
            )
        )


def _holder(holder: QuotaHolder) -> admin_pb2.QuotaHolder:
    return admin_pb2.QuotaHolder(
        principal=holder.principal, quotas=[admin_pb2.QuotaStanding(**asdict(quota)) for quota in holder.quotas]
    )


def _partitions(found: PartitionList) -> admin_pb2.ListPartitionsResponse:
    after = found.next_after
    return admin_pb2.ListPartitionsResponse(
        partitions=map(_partition, found.partitions),
        next_after=None if after is None else admin_pb2.PartitionPlace(topic=after.topic, partition=after.partition),
    )


def _partition(listed: ListedPartition) -> admin_pb2.PartitionListing:
    topic, head = listed.topic, listed.head
    if head is None:
        return admin_pb2.PartitionListing(topic=topic.name, topic_id=topic.topic_id, partition=listed.partition)
    return admin_pb2.PartitionListing(
        topic=topic.name,
        topic_id=topic.topic_id,
        partition=listed.partition,
        is_served=True,
        log_start_offset=head.log_start_offset,
        last_stable_offset=head.last_stable_offset,
        high_watermark=head.log_end_offset,
        open_transactions=head.open_transactions,
        records=listed.held.record_count,
        size_bytes=listed.held.size_bytes,
        blocker=None if listed.blocker is None else _blocker(listed.blocker),
    )


def _blocker(blocker: Blocker) -> admin_pb2.PartitionBlocker:
    opened, owner = blocker.opened, blocker.owner
    return admin_pb2.PartitionBlocker(
        start_offset=opened.first_offset,
        start_ms=opened.started_ms,
        age_ms=blocker.age_ms,
        transactional_id="" if owner is None else owner.transactional_id,
        owner_hidden=blocker.is_owner_hidden,
        state="" if owner is None else owner.state.api_name,
    )
