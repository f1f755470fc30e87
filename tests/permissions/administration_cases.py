"""Procedures of administrators with all the questions that they ask."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import Message

from coordinator_api.v1 import admin_pb2
from coordinator_protocol.acls import Permission, ResourceType
from tests.permissions.case import (
    ADMINISTER,
    END_PROMISED,
    LOOK,
    SEE_TOPIC,
    WRITE_ID,
    Case,
    one,
)
from tests.permissions.guarded_front import STRANGER

_P = Permission
_T, _G, _I, _C = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID, ResourceType.CLUSTER
_admin = admin_pb2
_Abort, _Fence = admin_pb2.AbortTransactionsRequest, admin_pb2.FenceProducersRequest


def _rule() -> admin_pb2.Acl:
    return admin_pb2.Acl(
        resource_type=admin_pb2.ACL_RESOURCE_TYPE_TOPIC,
        resource_name="mine",
        pattern_type=admin_pb2.ACL_PATTERN_TYPE_LITERAL,
        principal=STRANGER.principal,
        operation=admin_pb2.ACL_OPERATION_READ,
        permission_type=admin_pb2.ACL_PERMISSION_TYPE_ALLOW,
    )


def _question(principal: str) -> admin_pb2.CheckPermissionRequest:
    return admin_pb2.CheckPermissionRequest(
        principal=principal,
        operation=admin_pb2.ACL_OPERATION_READ,
        resource_type=admin_pb2.ACL_RESOURCE_TYPE_TOPIC,
        resource_name="mine",
    )


def _act(message: Any, ids: list[str] | None = None, prefix: str = "") -> Message:
    selector = admin_pb2.TransactionSelector(transactional_ids=ids or [], transactional_id_prefix=prefix)
    made: Message = message(selector=selector)
    return made


ADMINISTRATION: Final = (
    Case("DescribeLimits", lambda _front, _n: _admin.DescribeLimitsRequest()),
    Case(
        "AbortTransactions",
        lambda _front, n: _act(_Abort, [n.prepared]),
        (WRITE_ID, END_PROMISED),
    ),
    Case(
        "AbortTransactions by prefix",
        lambda _front, _n: _act(_Abort, prefix="hidden"),
        hidden=WRITE_ID,
    ),
    Case(
        "FenceProducers",
        lambda _front, n: _act(_Fence, [n.prepared]),
        (WRITE_ID, END_PROMISED),
    ),
    Case("FenceProducers by prefix", lambda _front, _n: _act(_Fence, prefix="hidden"), hidden=WRITE_ID),
    Case(
        "ExplainPartition",
        lambda _front, n: _admin.ExplainPartitionRequest(topic=n.topic, history_limit=5),
        (SEE_TOPIC,),
        ((_P.READ, _T), (_P.DESCRIBE, _I), (_P.DESCRIBE, _G)),
    ),
    Case("ListHangingTransactions", lambda _front, _n: _admin.ListHangingTransactionsRequest(), (LOOK,)),
    Case(
        "AbortHangingTransactions",
        lambda _front, n: _admin.AbortHangingTransactionsRequest(topic=n.topic),
        (ADMINISTER,),
    ),
    Case("ListShards", lambda _front, _n: _admin.ListShardsRequest(), (LOOK,)),
    Case("LoadShard", lambda _front, _n: _admin.LoadShardRequest(coordinator="log"), (ADMINISTER,)),
    Case("UnloadShard", lambda _front, _n: _admin.UnloadShardRequest(coordinator="log"), (ADMINISTER,)),
    Case("CreateBackup", lambda _front, _n: _admin.CreateBackupRequest(), (one(_P.BACKUP, _C),)),
    Case("ListBackups", lambda _front, _n: _admin.ListBackupsRequest(), (LOOK,)),
    Case("CreateAcls", lambda _front, _n: _admin.CreateAclsRequest(acls=[_rule()]), (ADMINISTER,)),
    Case(
        "DeleteAcls",
        lambda _front, _n: _admin.DeleteAclsRequest(filters=[_admin.AclFilter(resource_name="x")]),
        (ADMINISTER,),
    ),
    Case("DescribeAcls", lambda _front, _n: _admin.DescribeAclsRequest(), (LOOK,)),
    Case("CheckPermission", lambda _front, _n: _question("User:somebody"), (LOOK,)),
    Case("CheckPermission of oneself", lambda _front, _n: _question(STRANGER.principal)),
    Case(
        "ListPartitions",
        lambda _front, _n: _admin.ListPartitionsRequest(),
        hidden=((_P.DESCRIBE, _T), (_P.DESCRIBE, _I)),
    ),
    Case("DescribeRates", lambda _front, _n: _admin.DescribeRatesRequest(), (LOOK,)),
    Case("ListEvents", lambda _front, _n: _admin.ListEventsRequest(), (LOOK,)),
    Case(
        "DescribeServerConfig", lambda _front, _n: _admin.DescribeServerConfigRequest(), (one(_P.DESCRIBE_CONFIGS, _C),)
    ),
    Case("DescribeQuotas", lambda _front, _n: _admin.DescribeQuotasRequest(), (LOOK,)),
    Case("ListSnapshots", lambda _front, _n: _admin.ListSnapshotsRequest(), (LOOK,)),
)
