"""All servicers of one server. Together they have one function for every method that it serves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coordinator_core.assembly import Core
from coordinator_server.addresses import NodeAddress
from coordinator_server.grpc_front.handler import FastMethod
from coordinator_server.grpc_front.wire.admin.acls import AclServicer
from coordinator_server.grpc_front.wire.admin.backups import BackupServicer
from coordinator_server.grpc_front.wire.admin.observation import ObservationServicer
from coordinator_server.grpc_front.wire.admin.servicer import AdminServicer
from coordinator_server.grpc_front.wire.groups.administration import AdministrationServicer
from coordinator_server.grpc_front.wire.groups.classic import ClassicServicer
from coordinator_server.grpc_front.wire.groups.committed import OffsetServicer
from coordinator_server.grpc_front.wire.groups.consumer import ConsumerServicer
from coordinator_server.grpc_front.wire.groups.share import ShareServicer
from coordinator_server.grpc_front.wire.groups.share_offsets import ShareOffsetServicer
from coordinator_server.grpc_front.wire.groups.share_records import ShareRecordServicer, TxnShareServicer
from coordinator_server.grpc_front.wire.groups.streams import StreamsServicer
from coordinator_server.grpc_front.wire.log.ranges import RangeServicer
from coordinator_server.grpc_front.wire.log.servicer import FastProduce, LogServicer
from coordinator_server.grpc_front.wire.log.snapshots import SnapshotServicer
from coordinator_server.grpc_front.wire.transactions.servicer import (
    FastEnd,
    FastInit,
    FastTransact,
    TransactionServicer,
)
from coordinator_server.grpc_front.wire.transactions.sinks import SinkServicer


def servicers(core: Core, address: NodeAddress, others: Callable[[], Sequence[NodeAddress]] = list) -> list[object]:
    """Return the servicers of a core, whose clients reach it at this address. `others` returns the servers that wait
    for its store."""
    transactions, log = core.transactions, core.log
    return [
        TransactionServicer(transactions.service, transactions.reader, address, others),
        SinkServicer(transactions.sinks),
        LogServicer(log.topics, log.records, log.positions, log.foreign_markers),
        RangeServicer(log.ranges),
        SnapshotServicer(log.snapshots),
        AdminServicer(core.config.limits, core.admin, core.checks.disk),
        AclServicer(core.admin.acls),
        BackupServicer(core.admin.backups),
        ObservationServicer(core.admin.observation, core.admin.partitions),
        *group_servicers(core),
    ]


def fast_methods(core: Core) -> list[FastMethod]:
    """Return the methods that feed the fast path of a core, or none if it has no fast path."""
    path = core.fast_path
    return [] if path is None else [FastTransact(path), FastProduce(path), FastEnd(path), FastInit(path)]


def group_servicers(core: Core) -> list[object]:
    """Return the servicers of the parts of the group coordinator, which form GroupService and ShareService."""
    groups = core.groups
    return [
        ClassicServicer(groups.classic),
        ConsumerServicer(groups.consumer),
        ShareServicer(groups.share),
        StreamsServicer(groups.streams),
        ShareRecordServicer(groups.share_records),
        TxnShareServicer(groups.txn_shares),
        ShareOffsetServicer(groups.share_offsets),
        OffsetServicer(groups.offsets),
        AdministrationServicer(groups.administration),
    ]
