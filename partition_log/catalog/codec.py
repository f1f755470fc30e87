"""Bytes of the catalog's records."""

from __future__ import annotations

from typing import Final

from coordinator_api.storage.v1 import log_pb2
from coordinator_protocol.acls import Acl, PatternType, Permission, PermissionType, ResourceType
from coordinator_runtime.rows import EncodedRecord
from coordinator_runtime.unknown_rows import UnknownRow
from partition_log.catalog.state import (
    AclCreated,
    AclDeleted,
    AclVersion,
    CatalogRecord,
    OrdinalsAllocated,
    Topic,
    TopicDeleted,
    TopicSet,
)

TOPIC_TYPE: Final = 1
ORDINAL_ALLOCATOR_TYPE: Final = 2
ACL_TYPE: Final = 3
ACL_VERSION_TYPE: Final = 4


class CatalogCodec:
    """Implements `coordinator_runtime.rows.StateCodec`."""

    def encode(self, value: CatalogRecord) -> EncodedRecord:
        match value:
            case TopicSet(topic):
                stored = log_pb2.TopicValue(
                    topic_id=topic.topic_id,
                    partition_ordinals=topic.partition_ordinals,
                    created_ms=topic.created_ms,
                    settings=dict(topic.settings),
                    created_by=topic.created_by,
                )
                # A map has no order of its own, but equal topics must have equal rows.
                return EncodedRecord(TOPIC_TYPE, topic.name.encode(), stored.SerializeToString(deterministic=True))
            case TopicDeleted(name):
                return EncodedRecord(TOPIC_TYPE, name.encode(), None)
            case OrdinalsAllocated(next_ordinal, incarnation):
                allocator = log_pb2.OrdinalAllocatorValue(next_ordinal=next_ordinal, incarnation=incarnation)
                return EncodedRecord(ORDINAL_ALLOCATOR_TYPE, b"", allocator.SerializeToString(), has_history=False)
            case AclCreated(acl, version):
                return EncodedRecord(ACL_TYPE, _acl_key(acl), log_pb2.AclValue(version=version).SerializeToString())
            case AclDeleted(acl):
                return EncodedRecord(ACL_TYPE, _acl_key(acl), None)
            case AclVersion(version):
                stored_version = log_pb2.AclVersionValue(version=version).SerializeToString()
                return EncodedRecord(ACL_VERSION_TYPE, b"", stored_version, has_history=False)

    def decode(self, record_type: int, key: bytes, value: bytes) -> CatalogRecord | None:
        if record_type == TOPIC_TYPE:
            stored = log_pb2.TopicValue.FromString(value)
            return TopicSet(
                Topic(
                    key.decode(),
                    stored.topic_id,
                    tuple(stored.partition_ordinals),
                    stored.created_ms,
                    tuple(sorted(stored.settings.items())),
                    stored.created_by,
                )
            )
        if record_type == ORDINAL_ALLOCATOR_TYPE:
            allocator = log_pb2.OrdinalAllocatorValue.FromString(value)
            return OrdinalsAllocated(allocator.next_ordinal, allocator.incarnation)
        if record_type == ACL_TYPE:
            return AclCreated(_acl_of(key), log_pb2.AclValue.FromString(value).version)
        if record_type == ACL_VERSION_TYPE:
            return AclVersion(log_pb2.AclVersionValue.FromString(value).version)
        return None


def _acl_key(acl: Acl) -> bytes:
    """Return a key that contains all of a rule, because rules with the same contents are one. No part contains NUL."""
    parts = (
        acl.resource_type,
        acl.pattern_type,
        acl.resource_name,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )
    return "\0".join(parts).encode()


def _acl_of(key: bytes) -> Acl:
    """Return the rule of a key. Raises UnknownRow for a rule of a newer program, because a denial must not be
    ignored."""
    resource_type, pattern_type, name, principal, host, operation, permission_type = key.decode().split("\0")
    try:
        return Acl(
            principal=principal,
            resource_type=ResourceType(resource_type),
            resource_name=name,
            operation=Permission(operation),
            permission_type=PermissionType(permission_type),
            pattern_type=PatternType(pattern_type),
            host=host,
        )
    except ValueError as error:
        raise UnknownRow(
            f"an ACL has a part that this program does not know ({error}): start the version that wrote it, or a later"
            " one"
        ) from None
