"""All APIs of one server that the core answers, with their codecs and handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from coordinator_core.assembly import Core
from coordinator_server.kafka_front.access_bits import AccessBits
from coordinator_server.kafka_front.acls import acl_handlers
from coordinator_server.kafka_front.alter_configs import alter_config_handlers
from coordinator_server.kafka_front.apis import APIS, Api, ApiKey
from coordinator_server.kafka_front.classic_groups import classic_group_handlers
from coordinator_server.kafka_front.cluster import cluster_handlers
from coordinator_server.kafka_front.committed_offsets import offset_handlers
from coordinator_server.kafka_front.configs import config_handlers
from coordinator_server.kafka_front.consumer_groups import consumer_group_handlers
from coordinator_server.kafka_front.exchange import ApiHandler
from coordinator_server.kafka_front.fetch import fetch_handlers
from coordinator_server.kafka_front.front_settings import FrontSettings
from coordinator_server.kafka_front.group_admin import group_admin_handlers
from coordinator_server.kafka_front.kafka_call import ApiEndpoint, endpoint_of
from coordinator_server.kafka_front.messages.tables import API_DEFINITIONS
from coordinator_server.kafka_front.metadata import metadata_handlers
from coordinator_server.kafka_front.positions import position_handlers
from coordinator_server.kafka_front.produce import produce_handlers
from coordinator_server.kafka_front.share_groups import share_group_handlers
from coordinator_server.kafka_front.share_offsets import share_offset_handlers
from coordinator_server.kafka_front.share_records import share_record_handlers
from coordinator_server.kafka_front.streams_groups import streams_group_handlers
from coordinator_server.kafka_front.topic_partitions import topic_partitions_handlers
from coordinator_server.kafka_front.topics import topic_handlers
from coordinator_server.kafka_front.transaction_admin import transaction_admin_handlers
from coordinator_server.kafka_front.transactions import transaction_handlers
from coordinator_server.kafka_front.writing import Piece


def endpoints_of(core: Core, settings: FrontSettings) -> Mapping[int, ApiEndpoint]:
    """Return the endpoints of all APIs that the core answers."""
    return {key: endpoint_of(APIS[key], handler, *codec_of(APIS[key])) for key, handler in handlers(core, settings)}


def handlers(core: Core, settings: FrontSettings) -> Iterator[tuple[ApiKey, ApiHandler]]:
    """Yield the handlers of all families of APIs."""
    yield from metadata_handlers(core, settings)
    yield from topic_partitions_handlers(core)
    yield from cluster_handlers(core, settings)
    yield from topic_handlers(core, settings)
    yield from config_handlers(core, settings)
    yield from alter_config_handlers(core)
    yield from acl_handlers(core)
    access = AccessBits(core.admin.acls)
    yield from transaction_handlers(core.transactions.service, core.fast_path)
    yield from transaction_admin_handlers(core.transactions.reader, core.log.records, core.admin.transactions)
    yield from classic_group_handlers(core.groups.classic)
    yield from consumer_group_handlers(core.groups.consumer, access)
    yield from share_group_handlers(core.groups.share, access)
    yield from share_record_handlers(core.groups.share_records, core.log.records.fetcher, core.checks.worker)
    yield from share_offset_handlers(core.groups.share_offsets)
    yield from streams_group_handlers(core.groups.streams, access)
    yield from offset_handlers(core.groups.offsets)
    yield from group_admin_handlers(core.groups.administration, access)
    log = core.log
    yield from produce_handlers(log.records, core.fast_path)
    yield from fetch_handlers(log.records, core.checks.worker)
    yield from position_handlers(log.records, log.positions)


def codec_of(api: Api) -> tuple[Callable[[memoryview, int], Any], Callable[[Any, int], list[Piece]]]:
    definition = API_DEFINITIONS[api.key]
    return definition.decoder(), definition.encoder()
