"""Access rules for a caller of the Kafka front, on a world that enforces them."""

from __future__ import annotations

from coordinator_protocol.acls import Acl, Permission, ResourceType
from coordinator_protocol.methods import Method
from coordinator_runtime.ports import CallContext
from partition_log.catalog.state import NewTopic
from partition_log.requests import CreateTopics
from tests.harness.guarded import SUPER_USER
from tests.harness.world import World

CLERK = CallContext(principal="User:clerk", client_id="a-kafka-client", host="1.2.3.4", connection="kafka-2")
"""A caller that may do nothing at first."""


def allow(world: World, *allowed: tuple[Permission, ResourceType, str]) -> None:
    """Permit the clerk these operations on the resources of this type and name."""
    rules = [
        Acl(principal=CLERK.principal, resource_type=resource_type, resource_name=name, operation=permission)
        for permission, resource_type, name in allowed
    ]
    created = world.inside.core.admin.acls.create(rules, _boss(Method.CREATE_ACLS), validate_only=False)
    world.settle()
    assert created.error is None


def create_topics(world: World, *names: str) -> None:
    """Create topics of one partition as the superuser."""
    topics = [NewTopic(name, 1) for name in names]
    created = world.inside.topics.create_topics(CreateTopics(topics), _boss(Method.CREATE_TOPICS))
    world.settle()
    assert [each.error for each in created.result()] == [None] * len(names)


def _boss(method: Method) -> CallContext:
    return CallContext(principal=SUPER_USER, method=method.value)
