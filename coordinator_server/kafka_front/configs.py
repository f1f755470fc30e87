"""DescribeConfigs: settings of topics, of groups, and of this server.

Source: Kafka's `ConfigHelper`; KIP-226 (synonyms), KIP-569 (types and documentation), KIP-848 (groups).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import partial

from coordinator_core.assembly import Core
from coordinator_protocol.acls import Permission
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_protocol.methods import Method
from coordinator_runtime.pending import Pending, settled
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.broker_settings import broker_settings, group_settings
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.front_settings import FrontSettings
from coordinator_server.kafka_front.items import each_by_itself, only
from coordinator_server.kafka_front.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from coordinator_server.kafka_front.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from coordinator_server.kafka_front.shown_settings import ShownSetting
from coordinator_server.kafka_front.topic_settings import shown_topic_settings
from partition_log.requests import DescribeTopicConfigs, TopicName


class ConfigResource(IntEnum):
    """Kinds of things that have settings here, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigApi:
    """Serves DescribeConfigs."""

    def __init__(self, core: Core, settings: FrontSettings) -> None:
        self._topics = core.log.topics
        self._groups = core.groups.administration
        self._acls = core.admin.acls
        self._config = core.config
        self._settings = settings

    def serve(self, request: DescribeConfigsRequest, exchange: KafkaExchange) -> Pending[DescribeConfigsResponse]:
        """Return the settings of each resource."""

        def describe(resource: DescribeConfigsResource) -> Pending[DescribeConfigsResult]:
            shown = self._shown(resource, exchange)
            return settled(_result(resource, _named(shown, resource.configuration_keys), request))

        described = each_by_itself(request.resources, describe, partial(_refused, exchange))
        return described.map(lambda results: DescribeConfigsResponse(results=results))

    def _shown(self, resource: DescribeConfigsResource, exchange: KafkaExchange) -> Sequence[ShownSetting]:
        name = resource.resource_name
        match resource.resource_type:
            case ConfigResource.TOPIC:
                return self._of_topic(name, exchange)
            case ConfigResource.GROUP:
                context = exchange.context_of(Method.DESCRIBE_GROUP_CONFIGS)
                return group_settings(self._groups.describe_config(name, context), self._config.groups)
            case ConfigResource.BROKER:
                self._acls.require_of_cluster(Permission.DESCRIBE_CONFIGS, exchange.context)
                return self._of_broker(name, exchange.node.node_id)
        raise no_such_resource(resource.resource_type)

    def _of_broker(self, name: str, node_id: int) -> Sequence[ShownSetting]:
        if not name:
            # Settings that all brokers share and that can be changed: there are none.
            return ()
        if name != str(node_id):
            text = f"there is no broker {name!a:.80}; the only one is {node_id}"
            raise Refused(ErrorCode.INVALID_REQUEST, text)
        return broker_settings(self._config, self._settings, node_id)

    def _of_topic(self, name: str, exchange: KafkaExchange) -> Sequence[ShownSetting]:
        described = only(self._topics.describe_topic_configs(DescribeTopicConfigs([TopicName(name)]), exchange.context))
        if described.error is not None:
            raise described.error
        return shown_topic_settings(described.settings)

    def refused(
        self, request: DescribeConfigsRequest, exchange: KafkaExchange, error: CoordinatorError
    ) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(results=[_refused(exchange, each, error) for each in request.resources])


def no_such_resource(resource_type: int) -> Refused:
    """Return the refusal of a kind of thing that has no settings here."""
    kinds = ", ".join(f"{each.name.lower()} ({each})" for each in ConfigResource)
    text = f"resources of type {resource_type} have no settings on this server; there are {kinds}"
    return Refused(ErrorCode.INVALID_REQUEST, text)


def _named(shown: Sequence[ShownSetting], names: Sequence[str] | None) -> Sequence[ShownSetting]:
    """Return the settings of these names; all if none is named."""
    return [each for each in shown if each.name in names] if names else shown


def _result(
    resource: DescribeConfigsResource, shown: Sequence[ShownSetting], request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_setting(each, request) for each in shown],
    )


def _setting(shown: ShownSetting, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = shown.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=shown.name,
        value=shown.value,
        read_only=shown.is_read_only,
        config_source=shown.source,
        config_type=shown.value_type,
        synonyms=[DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source) for each in synonyms],
        documentation=shown.documentation if request.include_documentation else None,
    )


def _refused(
    exchange: KafkaExchange, resource: DescribeConfigsResource, error: CoordinatorError
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=exchange.code(error),
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def config_handlers(core: Core, settings: FrontSettings) -> Iterator[tuple[ApiKey, ApiHandler]]:
    """Yield the handler of DescribeConfigs."""
    configs = ConfigApi(core, settings)
    yield ApiKey.DESCRIBE_CONFIGS, ApiHandler(configs.serve, configs.refused)
