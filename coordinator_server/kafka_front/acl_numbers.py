"""Kafka's numbers and names in access rules, and the core's terms for them.

Source: Kafka's `ResourceType`, `PatternType`, `AclOperation`, `AclPermissionType`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeVar

from coordinator_protocol.acls import CLUSTER_NAME, AclFilter, PatternType, Permission, PermissionType, ResourceType
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_server.kafka_front.access_bits import OPERATION_NUMBERS

TermT = TypeVar("TermT", ResourceType, PatternType, Permission, PermissionType)

KAFKA_CLUSTER: Final = "kafka-cluster"
"""Kafka's name of the only cluster."""
ANY: Final = 1
MATCH: Final = 2

RESOURCE_TYPES: Final[Mapping[int, ResourceType]] = MappingProxyType(
    {2: ResourceType.TOPIC, 3: ResourceType.GROUP, 4: ResourceType.CLUSTER, 5: ResourceType.TRANSACTIONAL_ID}
)
PATTERN_TYPES: Final[Mapping[int, PatternType]] = MappingProxyType({3: PatternType.LITERAL, 4: PatternType.PREFIXED})
OPERATIONS: Final[Mapping[int, Permission]] = MappingProxyType(
    {number: permission for permission, number in OPERATION_NUMBERS.items()}
)
PERMISSION_TYPES: Final[Mapping[int, PermissionType]] = MappingProxyType(
    {2: PermissionType.DENY, 3: PermissionType.ALLOW}
)

_WITHOUT_RULES: Final[Mapping[str, frozenset[int]]] = MappingProxyType(
    {"resource type": frozenset({6, 7}), "operation": frozenset({13, 14})}
)
"""Delegation tokens and users, and the operations on them. This server has no rules about them."""


def number_of(terms: Mapping[int, TermT], term: TermT) -> int:
    """Return Kafka's number of a term that it has."""
    return next(number for number, each in terms.items() if each is term)


def term_of(terms: Mapping[int, TermT], number: int, word: str) -> TermT:
    """Return the term with this number. Raises Refused INVALID_REQUEST."""
    term = terms.get(number)
    if term is None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"the {word} {number} has no meaning here; there are {sorted(terms)}")
    return term


def selected(terms: Mapping[int, TermT], number: int, word: str) -> Sequence[TermT]:
    """Return the terms that a filter selects; none for those without rules here. Raises Refused INVALID_REQUEST."""
    if number == ANY:
        return tuple(terms.values())
    if number in _WITHOUT_RULES.get(word, ()):
        return ()
    return (term_of(terms, number, word),)


def resource_name(resource_type: ResourceType, name: str) -> str:
    """Return the core's name of a resource. Raises Refused INVALID_REQUEST for a cluster that is not the only one."""
    if resource_type is not ResourceType.CLUSTER:
        return name
    if name != KAFKA_CLUSTER:
        text = f"{name!a:.300} is no cluster: the only one is {KAFKA_CLUSTER!r}"
        raise Refused(ErrorCode.INVALID_REQUEST, text)
    return CLUSTER_NAME


def kafka_name(resource_type: ResourceType, name: str) -> str:
    """Return Kafka's name of a resource."""
    return KAFKA_CLUSTER if resource_type is ResourceType.CLUSTER else name


def filters_of(
    wanted: AclFilter, resource_types: Iterable[ResourceType], operations: Iterable[Permission]
) -> list[AclFilter]:
    """Return the filters that together select the rules which Kafka has terms for."""
    operations = tuple(operations)
    return [_with(wanted, resource_type, operation) for resource_type in resource_types for operation in operations]


def _with(wanted: AclFilter, resource_type: ResourceType, operation: Permission) -> AclFilter:
    name = wanted.resource_name
    if resource_type is ResourceType.CLUSTER and name == KAFKA_CLUSTER:
        name = CLUSTER_NAME
    return AclFilter(
        principal=wanted.principal,
        resource_type=resource_type,
        resource_name=name,
        operation=operation,
        permission_type=wanted.permission_type,
        pattern_type=wanted.pattern_type,
        host=wanted.host,
        matches_name=wanted.matches_name,
    )
