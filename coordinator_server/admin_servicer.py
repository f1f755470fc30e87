"""AdminService on the wire: what concerns the server as a whole."""

from __future__ import annotations

from coordinator_api.v1 import admin_pb2
from coordinator_protocol.limits import Limits
from coordinator_protocol.version import VERSION
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext


class AdminServicer:
    """One method per RPC."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def Limits(self, request: admin_pb2.LimitsRequest, context: CallContext) -> Pending[admin_pb2.LimitsResponse]:
        limits = self._limits
        return settled(
            admin_pb2.LimitsResponse(
                transactional_id_bytes_max=limits.transactional_id_bytes_max,
                group_id_bytes_max=limits.group_id_bytes_max,
                topic_name_length_max=limits.topic_name_length_max,
                partitions_per_topic_max=limits.partitions_per_topic_max,
                partitions_per_transaction_max=limits.partitions_per_transaction_max,
                batch_bytes_max=limits.batch_bytes_max,
                message_bytes_max=limits.message_bytes_max,
                transaction_max_timeout_ms=limits.transaction_max_timeout_ms,
                server_version=VERSION,
            )
        )
