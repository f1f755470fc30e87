"""Shard control of AdminService on the wire: where shards stand, load one, let one go."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import structlog

from coordinator_api.v1 import admin_pb2
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.authorization import require
from coordinator_runtime.decision import Coordinator, ShardKey
from coordinator_runtime.loader import ShardLoader, ShardStanding
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import Authorizer, CallContext, Permission, ResourceType

ResponseT = TypeVar("ResponseT", admin_pb2.LoadShardResponse, admin_pb2.UnloadShardResponse)

_log = structlog.get_logger("shards")


class ShardServicer:
    """One method per RPC."""

    def __init__(self, loader: ShardLoader, authorizer: Authorizer) -> None:
        self._loader = loader
        self._authorizer = authorizer

    def ListShards(
        self, request: admin_pb2.ListShardsRequest, context: CallContext
    ) -> Pending[admin_pb2.ListShardsResponse]:
        require(self._authorizer, context, Permission.DESCRIBE, ResourceType.CLUSTER, "shards")
        wanted = {_coordinator(request.coordinator)} if request.coordinator else set(Coordinator)
        found = [_description(each) for each in self._loader.standings() if each.key.coordinator in wanted]
        return settled(admin_pb2.ListShardsResponse(shards=found))

    def LoadShard(
        self, request: admin_pb2.LoadShardRequest, context: CallContext
    ) -> Pending[admin_pb2.LoadShardResponse]:
        return self._act(request, context, self._loader.load, admin_pb2.LoadShardResponse)

    def UnloadShard(
        self, request: admin_pb2.UnloadShardRequest, context: CallContext
    ) -> Pending[admin_pb2.UnloadShardResponse]:
        return self._act(request, context, self._loader.unload, admin_pb2.UnloadShardResponse)

    def _act(
        self,
        request: admin_pb2.LoadShardRequest | admin_pb2.UnloadShardRequest,
        context: CallContext,
        act: Callable[[ShardKey], Pending[None]],
        response_type: type[ResponseT],
    ) -> Pending[ResponseT]:
        require(self._authorizer, context, Permission.CLUSTER_ACTION, ResourceType.CLUSTER, "shards")
        key = ShardKey(_coordinator(request.coordinator), request.shard)
        _log.info(
            "shard_control",
            action=context.method,
            coordinator=request.coordinator,
            shard=key.number,
            client_id=context.client_id,
            host=context.host,
        )
        return act(key).map(lambda _done: response_type(shard=_description(self._loader.standing(key))))


def _coordinator(name: str) -> Coordinator:
    """Raises Refused INVALID_REQUEST."""
    try:
        return Coordinator[name.upper()]
    except KeyError:
        names = ", ".join(coordinator.name.lower() for coordinator in Coordinator)
        raise Refused(ErrorCode.INVALID_REQUEST, f"there is no coordinator {name!a:.100}; there are {names}") from None


def _description(standing: ShardStanding) -> admin_pb2.ShardDescription:
    return admin_pb2.ShardDescription(
        coordinator=standing.key.coordinator.name.lower(),
        shard=standing.key.number,
        state=standing.state.value,
        coordinator_epoch=standing.coordinator_epoch,
        reason=standing.reason,
    )
