"""Records of share groups over gRPC: the answer is written around the stored payloads."""

from __future__ import annotations

import grpc

from coordinator_api.v1 import group_pb2, group_pb2_grpc, share_pb2, share_pb2_grpc
from coordinator_client import Admin, Producer
from tests.harness.threaded_server import threaded_server


def test_records_are_fetched_and_acknowledged_over_grpc() -> None:
    with threaded_server() as address, Admin(address) as admin, grpc.insecure_channel(address) as channel:
        admin.create_topic("jobs", 1)
        admin.alter_group_configs("workers", {"share_auto_offset_reset": "earliest"})
        with Producer(address) as producer:
            for number in range(3):
                producer.send("jobs", b"v%d" % number)
            producer.flush()
        members = group_pb2_grpc.GroupServiceStub(channel)
        names = group_pb2.TopicNames(names=["jobs"])
        join = group_pb2.ShareGroupHeartbeatRequest(group_id="workers", member_id="a", subscribed_topic_names=names)
        assert not members.ShareGroupHeartbeat(join).error_code
        records = share_pb2_grpc.ShareServiceStub(channel)
        begin = share_pb2.ShareFetchRequest(
            group_id="workers", member_id="a", partitions=[share_pb2.SharePartition(topic="jobs")]
        )
        fetched = records.ShareFetch(begin)
        assert (fetched.error_code, fetched.lock_duration_ms) == (0, 30_000)
        (result,) = fetched.results
        assert [(each.first_offset, each.last_offset) for each in result.acquired] == [(0, 2)]
        assert sum(batch.record_count for batch in result.batches) == 3
        assert all(batch.payload for batch in result.batches)
        acknowledgement = share_pb2.AcknowledgementBatch(
            first_offset=0, last_offset=2, types=[share_pb2.ACKNOWLEDGE_TYPE_ACCEPT]
        )
        partition = share_pb2.SharePartition(topic="jobs", acknowledgements=[acknowledgement])
        done = records.ShareAcknowledge(
            share_pb2.ShareAcknowledgeRequest(
                group_id="workers", member_id="a", session_epoch=1, partitions=[partition]
            )
        )
        assert [each.error_code for each in done.results] == [0]
        again = records.ShareFetch(share_pb2.ShareFetchRequest(group_id="workers", member_id="a", session_epoch=2))
        assert (again.error_code, len(again.results)) == (0, 0)
