"""LogService on the wire: map in, call the use case, map out. Decisions are elsewhere."""

from __future__ import annotations

from coordinator_api.v1 import log_pb2
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext
from coordinator_server.wire.log import edge
from coordinator_server.wire.log.fetch_edge import FetchAnswer
from partition_log.foreign_markers import ForeignMarkers
from partition_log.requests import DeleteTopics, DescribeTopics
from partition_log.service import LogService
from partition_log.topics import TopicService


class LogServicer:
    """One method per RPC; errors of a whole call are raised or carried by the Pending, and answered by the
    dispatcher."""

    def __init__(self, topics: TopicService, log: LogService, markers: ForeignMarkers) -> None:
        self._topics = topics
        self._log = log
        self._markers = markers

    def CreateTopics(
        self, request: log_pb2.CreateTopicsRequest, context: CallContext
    ) -> Pending[log_pb2.CreateTopicsResponse]:
        created = self._topics.create_topics(edge.create_topics(request), context)
        return created.map(edge.create_topics_response)

    def DeleteTopics(
        self, request: log_pb2.DeleteTopicsRequest, context: CallContext
    ) -> Pending[log_pb2.DeleteTopicsResponse]:
        return self._topics.delete_topics(DeleteTopics(edge.topic_names(request.topics)), context).map(
            edge.delete_topics_response
        )

    def DescribeTopics(
        self, request: log_pb2.DescribeTopicsRequest, context: CallContext
    ) -> Pending[log_pb2.DescribeTopicsResponse]:
        described = self._topics.describe_topics(DescribeTopics(edge.topic_names(request.topics)), context)
        return settled(edge.describe_topics_response(described))

    def Produce(self, request: log_pb2.ProduceRequest, context: CallContext) -> Pending[log_pb2.ProduceResponse]:
        return self._log.produce(edge.produce(request), context).map(edge.produce_response)

    def Fetch(self, request: log_pb2.FetchRequest, context: CallContext) -> Pending[FetchAnswer]:
        return self._log.fetch(edge.fetch(request), context).map(FetchAnswer)

    def ListOffsets(
        self, request: log_pb2.ListOffsetsRequest, context: CallContext
    ) -> Pending[log_pb2.ListOffsetsResponse]:
        return self._log.list_offsets(edge.list_offsets(request), context).map(edge.list_offsets_response)

    def CountRecords(
        self, request: log_pb2.CountRecordsRequest, context: CallContext
    ) -> Pending[log_pb2.CountRecordsResponse]:
        return self._log.count_records(edge.count_records(request), context).map(edge.count_records_response)

    def WriteTxnMarkers(
        self, request: log_pb2.WriteTxnMarkersRequest, context: CallContext
    ) -> Pending[log_pb2.WriteTxnMarkersResponse]:
        written = self._markers.write(edge.write_txn_markers(request), context)
        return written.map(edge.markers_response)

    def DescribeProducers(
        self, request: log_pb2.DescribeProducersRequest, context: CallContext
    ) -> Pending[log_pb2.DescribeProducersResponse]:
        described = self._log.describe_producers(edge.describe_producers(request), context)
        return described.map(edge.producers_response)
