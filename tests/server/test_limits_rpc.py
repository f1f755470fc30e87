"""DescribeLimits says what the server was configured with."""

from __future__ import annotations

from coordinator_api.v1 import admin_pb2, admin_pb2_grpc
from coordinator_runtime.running_version import running_version
from tests.harness.in_process import in_process_server


async def test_a_client_learns_the_maxima_of_this_server() -> None:
    async with in_process_server(transaction_max_timeout_ms=5_000, batch_bytes_max=2_000) as server:
        limits = await admin_pb2_grpc.AdminServiceStub(server.channel).DescribeLimits(admin_pb2.DescribeLimitsRequest())
        assert limits.transaction_max_timeout_ms == 5_000
        assert limits.batch_bytes_max == 2_000
        assert limits.message_bytes_max == 16 << 20
        assert limits.transactional_id_bytes_max == 1_000
        assert limits.server_version == running_version()
