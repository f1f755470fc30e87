"""AlterConfigs and IncrementalAlterConfigs: changes of the settings of topics and groups.

AlterConfigs replaces all settings that Kafka has a name for. Settings of topics that Kafka does not have stay.

IncrementalAlterConfigs also adds items to lists, and removes them.

Source: Kafka's `ConfigAdminManager` and `ConfigurationControlManager`; KIP-339 (incremental changes).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import TypeVar

from msgspec import Struct

from coordinator_core.assembly import Core
from coordinator_protocol.acls import Permission
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_protocol.methods import Method
from coordinator_runtime.pending import Pending
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.broker_settings import GROUP_NAMES, core_group_names, core_group_settings
from coordinator_server.kafka_front.configs import ConfigResource, no_such_resource
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.items import each_by_itself, only
from coordinator_server.kafka_front.messages import (
    alter_configs_request,
    alter_configs_response,
    incremental_alter_configs_request,
    incremental_alter_configs_response,
)
from coordinator_server.kafka_front.messages.alter_configs_request import AlterConfigsRequest
from coordinator_server.kafka_front.messages.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from coordinator_server.kafka_front.topic_settings import MAPPED, core_items, core_names, core_settings, no_list
from group_coordinator.administration.requests import AlterGroupConfig
from partition_log.catalog.settings import RETENTION_MS, SettingsChange
from partition_log.catalog.state import TopicToAlter
from partition_log.requests import AlterTopicConfigs, TopicConfigs


class Change(IntEnum):
    """Changes of a setting by IncrementalAlterConfigs, with Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Altered(Struct, frozen=True):
    """The settings of one resource after a change, as far as the request says."""

    wanted: tuple[tuple[str, str], ...]
    """New values by Kafka's names."""
    unset: tuple[str, ...]
    """Kafka's names of settings that return to their defaults."""
    appended: tuple[tuple[str, str], ...] = ()
    """Items to be added to lists, by Kafka's names."""
    subtracted: tuple[tuple[str, str], ...] = ()
    """Items to be removed from lists, by Kafka's names."""


Resource = alter_configs_request.AlterConfigsResource | incremental_alter_configs_request.AlterConfigsResource
ResourceT = TypeVar(
    "ResourceT", alter_configs_request.AlterConfigsResource, incremental_alter_configs_request.AlterConfigsResource
)
Outcome = tuple[Resource, CoordinatorError | None]


class AlterConfigApis:
    """Serves AlterConfigs and IncrementalAlterConfigs."""

    def __init__(self, core: Core) -> None:
        self._topics = core.log.topics
        self._groups = core.groups.administration
        self._acls = core.admin.acls

    def replace_all(
        self, request: AlterConfigsRequest, exchange: KafkaExchange
    ) -> Pending[alter_configs_response.AlterConfigsResponse]:
        """Replace the settings of each resource. Durable and in effect when answered."""
        altered = self._alter_each(request.resources, _replacement, exchange, validate_only=request.validate_only)
        return altered.map(lambda outcomes: _replaced(outcomes, exchange))

    def replace_refused(
        self, request: AlterConfigsRequest, exchange: KafkaExchange, error: CoordinatorError
    ) -> alter_configs_response.AlterConfigsResponse:
        return _replaced([(resource, error) for resource in request.resources], exchange)

    def change(
        self, request: IncrementalAlterConfigsRequest, exchange: KafkaExchange
    ) -> Pending[incremental_alter_configs_response.IncrementalAlterConfigsResponse]:
        """Change settings of each resource. Durable and in effect when answered."""
        altered = self._alter_each(request.resources, _increment, exchange, validate_only=request.validate_only)
        return altered.map(lambda outcomes: _changed(outcomes, exchange))

    def change_refused(
        self, request: IncrementalAlterConfigsRequest, exchange: KafkaExchange, error: CoordinatorError
    ) -> incremental_alter_configs_response.IncrementalAlterConfigsResponse:
        return _changed([(resource, error) for resource in request.resources], exchange)

    def _alter_each(
        self,
        resources: Sequence[ResourceT],
        change_of: Callable[[ResourceT], Altered],
        exchange: KafkaExchange,
        *,
        validate_only: bool,
    ) -> Pending[list[Outcome]]:
        times = Counter((each.resource_type, each.resource_name) for each in resources)

        def alter(resource: ResourceT) -> Pending[Outcome]:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "the request names this resource more than once; name it once")
            _check_once(resource)
            done = self._alter(resource, change_of(resource), exchange, validate_only=validate_only)
            return done.map(lambda _done: (resource, None))

        return each_by_itself(resources, alter, lambda resource, error: (resource, error))

    def _alter(
        self, resource: Resource, altered: Altered, exchange: KafkaExchange, *, validate_only: bool
    ) -> Pending[None]:
        name = resource.resource_name
        if resource.resource_type == ConfigResource.TOPIC:
            to_alter = _topic_to_alter(name, altered, validate_only=validate_only)
            changed = self._topics.alter_topic_configs(AlterTopicConfigs([to_alter]), exchange.context)
            return changed.map(lambda results: _raise_error(only(results)))
        if resource.resource_type == ConfigResource.GROUP:
            _check_no_items(altered)
            command = AlterGroupConfig(
                group_id=name,
                wanted=core_group_settings(altered.wanted),
                unset=core_group_names(altered.unset),
                validate_only=validate_only,
            )
            return self._groups.alter_config(command, exchange.context_of(Method.ALTER_GROUP_CONFIGS))
        if resource.resource_type == ConfigResource.BROKER:
            self._acls.require_of_cluster(Permission.ALTER_CONFIGS, exchange.context)
            text = "settings of a server are in its configuration file, and cannot be changed from outside"
            raise Refused(ErrorCode.INVALID_REQUEST, text)
        raise no_such_resource(resource.resource_type)


def _replacement(resource: alter_configs_request.AlterConfigsResource) -> Altered:
    """Return the change after which a resource has these settings alone. Raises Refused INVALID_REQUEST."""
    wanted = tuple([(each.name, _value(each.name, each.value)) for each in resource.configs])
    named = {name for name, _value in wanted}
    known = GROUP_NAMES if resource.resource_type == ConfigResource.GROUP else MAPPED
    return Altered(wanted, tuple([name for name in known if name not in named]))


def _increment(resource: incremental_alter_configs_request.AlterConfigsResource) -> Altered:
    """Return the change of the named settings. Raises Refused INVALID_REQUEST."""
    changes: dict[Change, list[tuple[str, str]]] = {change: [] for change in Change}
    for each in resource.configs:
        if each.config_operation not in tuple(Change):
            text = f"there is no change {each.config_operation} of a setting, as asked for {each.name!a:.80}"
            raise Refused(ErrorCode.INVALID_REQUEST, text)
        change = Change(each.config_operation)
        changes[change].append((each.name, "" if change is Change.DELETE else _value(each.name, each.value)))
    return Altered(
        wanted=tuple(changes[Change.SET]),
        unset=tuple([name for name, _value in changes[Change.DELETE]]),
        appended=tuple(changes[Change.APPEND]),
        subtracted=tuple(changes[Change.SUBTRACT]),
    )


def _value(name: str, value: str | None) -> str:
    if value is None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{name!a:.80} has no value; give one")
    return value


def _check_once(resource: Resource) -> None:
    for name, times in Counter(each.name for each in resource.configs).items():
        if times > 1:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{name!a:.80} is named {times} times; name it once")


def _check_no_items(altered: Altered) -> None:
    """Return only if no list of a group is to be changed: groups have none. Raises Refused INVALID_CONFIG."""
    for change, items in ((Change.APPEND, altered.appended), (Change.SUBTRACT, altered.subtracted)):
        for name, _items in items:
            raise no_list(change.name, name)


def _topic_to_alter(topic: str, altered: Altered, *, validate_only: bool) -> TopicToAlter:
    """Return the change for the core. Raises Refused INVALID_CONFIG."""
    change = SettingsChange(
        core_settings(topic, altered.wanted),
        core_names(topic, altered.unset),
        core_items(Change.APPEND.name, altered.appended),
        core_items(Change.SUBTRACT.name, altered.subtracted),
    )
    if change.names:
        return TopicToAlter(topic, b"", change, validate_only)
    # Only settings without effect are named. The core checks that the topic exists and the caller may change it.
    return TopicToAlter(topic, b"", SettingsChange({}, (RETENTION_MS,)), validate_only=True)


def _raise_error(result: TopicConfigs) -> None:
    if result.error is not None:
        raise result.error


def _replaced(outcomes: Iterable[Outcome], exchange: KafkaExchange) -> alter_configs_response.AlterConfigsResponse:
    response = alter_configs_response.AlterConfigsResourceResponse
    responses = [response(*_fields(resource, error, exchange)) for resource, error in outcomes]
    return alter_configs_response.AlterConfigsResponse(responses=responses)


def _changed(
    outcomes: Iterable[Outcome], exchange: KafkaExchange
) -> incremental_alter_configs_response.IncrementalAlterConfigsResponse:
    response = incremental_alter_configs_response.AlterConfigsResourceResponse
    responses = [response(*_fields(resource, error, exchange)) for resource, error in outcomes]
    return incremental_alter_configs_response.IncrementalAlterConfigsResponse(responses=responses)


def _fields(
    resource: Resource, error: CoordinatorError | None, exchange: KafkaExchange
) -> tuple[int, str | None, int, str]:
    """Return code, message, type and name: the fields of an outcome in both messages."""
    message = None if error is None else error.message
    return exchange.code(error), message, resource.resource_type, resource.resource_name


def alter_config_handlers(core: Core) -> Iterator[tuple[ApiKey, ApiHandler]]:
    """Yield the handlers of AlterConfigs and IncrementalAlterConfigs."""
    configs = AlterConfigApis(core)
    yield ApiKey.ALTER_CONFIGS, ApiHandler(configs.replace_all, configs.replace_refused)
    yield ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiHandler(configs.change, configs.change_refused)
