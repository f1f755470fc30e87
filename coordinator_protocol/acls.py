"""Access rules (ACLs): their terms, checks of their validity, and filters that select them.

This is Kafka's model. A rule (an *ACL*) allows or denies one operation to one principal from one host. It applies to
one resource, or to all resources with a name prefix. The server combines the rules into decisions
(`coordinator_core/acl_index.py`).

Source: Kafka, `docs/security/authorization-and-acls.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from ipaddress import ip_address
from typing import Final
from unicodedata import is_normalized, normalize

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.names import check_group_id, check_topic_name, check_transactional_id

WILDCARD: Final = "*"
"""Any resource of the type, as a literal name; any host, as a host."""
PRINCIPAL_PREFIX: Final = "User:"
ANONYMOUS: Final = PRINCIPAL_PREFIX + "ANONYMOUS"
"""Principal of unauthenticated callers: their listener does not authenticate."""
ANY_PRINCIPAL: Final = PRINCIPAL_PREFIX + WILDCARD
CLUSTER_NAME: Final = "cluster"
"""Name of the only resource of the type cluster: this server, with everything in it."""
UNIX_HOST: Final = "unix"
"""Host of callers on a Unix socket."""
PRINCIPAL_BYTES_MAX: Final = 250


class Permission(StrEnum):
    """Operations that a caller may be permitted: Kafka's operations, and some of ours."""

    ALL = "all"
    """In rules only: every operation of the resource type."""
    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    CLUSTER_ACTION = "cluster_action"
    """Operations between servers."""
    DESCRIBE_CONFIGS = "describe_configs"
    ALTER_CONFIGS = "alter_configs"
    IDEMPOTENT_WRITE = "idempotent_write"
    """InitProducerId without a transactional id. A caller that may write to any topic may do that too (KIP-679)."""
    TWO_PHASE_COMMIT = "two_phase_commit"
    """Take part in a two-phase commit of another system, and end the transactions that wait for it (KIP-939)."""
    BACKUP = "backup"
    """Let the server make a backup. This and the next ones are ours: Kafka has none."""
    DECIDE = "decide"
    """Commit or give up the batches of a sink. The tasks of the sink do not need it."""
    SNAPSHOT = "snapshot"
    """Hold records for readers of a snapshot, against retention and deletion."""


class ResourceType(StrEnum):
    """Types of resources with permissions."""

    TRANSACTIONAL_ID = "transactional_id"
    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"


class PatternType(StrEnum):
    """Interpretation of the name in a rule."""

    LITERAL = "literal"
    """The resource of this name; `*`: all."""
    PREFIXED = "prefixed"
    """All resources whose names begin with this name."""


class PermissionType(StrEnum):
    """Effect of a rule. One that denies wins over all that allow."""

    ALLOW = "allow"
    DENY = "deny"


_P = Permission
PERMISSIONS_OF: Final[Mapping[ResourceType, frozenset[Permission]]] = {
    ResourceType.TOPIC: frozenset(
        {
            _P.READ,
            _P.WRITE,
            _P.CREATE,
            _P.DELETE,
            _P.ALTER,
            _P.DESCRIBE,
            _P.DESCRIBE_CONFIGS,
            _P.ALTER_CONFIGS,
            _P.SNAPSHOT,
        }
    ),
    ResourceType.GROUP: frozenset({_P.READ, _P.DELETE, _P.DESCRIBE, _P.DESCRIBE_CONFIGS, _P.ALTER_CONFIGS}),
    ResourceType.TRANSACTIONAL_ID: frozenset({_P.WRITE, _P.DESCRIBE, _P.TWO_PHASE_COMMIT, _P.DECIDE}),
    ResourceType.CLUSTER: frozenset(
        {
            _P.CREATE,
            _P.ALTER,
            _P.DESCRIBE,
            _P.CLUSTER_ACTION,
            _P.DESCRIBE_CONFIGS,
            _P.ALTER_CONFIGS,
            _P.IDEMPOTENT_WRITE,
            _P.BACKUP,
        }
    ),
}
"""Operations of each resource type. A rule may name one of them, or all."""

IMPLIED_BY: Final[Mapping[Permission, frozenset[Permission]]] = {
    _P.DESCRIBE: frozenset({_P.READ, _P.WRITE, _P.DELETE, _P.ALTER}),
    _P.DESCRIBE_CONFIGS: frozenset({_P.ALTER_CONFIGS}),
}
"""Permissions that are allowed together with another one, as in Kafka: each key by any of its values. Denials imply
nothing."""


WIRE_NAMES: Final[Mapping[type, str]] = {
    ResourceType: "ACL_RESOURCE_TYPE_",
    PatternType: "ACL_PATTERN_TYPE_",
    Permission: "ACL_OPERATION_",
    PermissionType: "ACL_PERMISSION_TYPE_",
}
"""Prefixes of the members' names in the enums of the wire."""


class Acl(Struct, frozen=True, kw_only=True):
    """One rule. Two rules with the same contents are one."""

    principal: str
    """`User:name`; `User:*` for all principals."""
    resource_type: ResourceType
    resource_name: str
    operation: Permission
    permission_type: PermissionType = PermissionType.ALLOW
    pattern_type: PatternType = PatternType.LITERAL
    host: str = WILDCARD
    """Address of the caller, `unix` for a Unix socket; `*` for any."""

    def __str__(self) -> str:
        name = repr(self.resource_name) + ("..." if self.pattern_type is PatternType.PREFIXED else "")
        where = "" if self.host == WILDCARD else f" from {self.host}"
        return f"{self.permission_type} {self.principal} {self.operation} {self.resource_type} {name}{where}"


class AclFilter(Struct, frozen=True, kw_only=True):
    """Selection of rules: those that have all given values. None matches any value."""

    principal: str | None = None
    resource_type: ResourceType | None = None
    resource_name: str | None = None
    operation: Permission | None = None
    permission_type: PermissionType | None = None
    pattern_type: PatternType | None = None
    host: str | None = None
    matches_name: bool = False
    """Match the rules that apply to the resource of this name, also by `*` or a prefix, and not the rules with this
    very name."""

    def matches(self, acl: Acl) -> bool:
        """Return True if the filter selects this rule."""
        return (
            self.principal in (None, acl.principal)
            and self.resource_type in (None, acl.resource_type)
            and self.operation in (None, acl.operation)
            and self.permission_type in (None, acl.permission_type)
            and self.pattern_type in (None, acl.pattern_type)
            and self.host in (None, acl.host)
            and (self.resource_name is None or self._matches_name(acl, self.resource_name))
        )

    def _matches_name(self, acl: Acl, name: str) -> bool:
        if not self.matches_name:
            return acl.resource_name == name
        if acl.pattern_type is PatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name in (name, WILDCARD)


def canonical_host(host: str) -> str:
    """Return the canonical text of an address, so that equal addresses are equal text. Raises ValueError for any other
    text."""
    if host in (WILDCARD, UNIX_HOST):
        return host
    address = ip_address(host.partition("%")[0])
    return str(getattr(address, "ipv4_mapped", None) or address)


def check_principal(principal: str) -> None:
    """Return only if a rule may be about this principal. Raises Refused INVALID_REQUEST."""
    name = principal.removeprefix(PRINCIPAL_PREFIX)
    if not principal.startswith(PRINCIPAL_PREFIX) or not name:
        raise _wrong(f"{principal!a:.300} is no principal: write User:NAME, or User:* for everybody")
    if not name.isprintable() or len(name.encode(errors="replace")) > PRINCIPAL_BYTES_MAX:
        raise _wrong(
            f"{principal!a:.300} is no principal: its name has 1 to {PRINCIPAL_BYTES_MAX} bytes, and no control"
            " characters"
        )
    if not is_normalized("NFC", name):
        raise _wrong(f"{principal!a:.300} is no principal: write its letters composed, as Unicode's form NFC has them")
    if WILDCARD in name and name != WILDCARD:
        raise _wrong(f"{principal!a:.300} is no principal: only User:* stands for several, and no part of a name does")


def principal_named(name: str) -> str:
    """Return the principal that a credential names, in the form that rules have. Raises Refused INVALID_REQUEST."""
    principal = PRINCIPAL_PREFIX + normalize("NFC", name)
    check_principal(principal)
    if principal == ANY_PRINCIPAL:
        raise _wrong(f"{principal} is everybody, and no name")
    return principal


def check_acl(acl: Acl) -> None:
    """Return only for a rule that can have an effect. Raises Refused INVALID_REQUEST with the defect of the rule."""
    check_principal(acl.principal)
    check_question(acl.resource_type, acl.resource_name, acl.operation, pattern_type=acl.pattern_type)
    try:
        canonical = canonical_host(acl.host)
    except ValueError:
        raise _wrong(f"the host {acl.host!a:.300} is no address: write one such as 10.0.0.7, or * for any") from None
    if canonical != acl.host:
        raise _wrong(f"the host {acl.host!a:.300} must be written {canonical}")


def check_question(
    resource_type: ResourceType,
    name: str,
    operation: Permission,
    *,
    pattern_type: PatternType = PatternType.LITERAL,
) -> None:
    """Return only if a rule may name this operation on these resources. Raises Refused INVALID_REQUEST."""
    permissions = PERMISSIONS_OF[resource_type]
    if operation is not Permission.ALL and operation not in permissions:
        raise _wrong(
            f"{operation} is no operation on a {resource_type}: there are {', '.join(sorted(permissions))}, and all"
        )
    if not name:
        raise _wrong(f"the name of the {resource_type} is empty: give one, or * for any")
    if pattern_type is PatternType.PREFIXED:
        if resource_type is ResourceType.CLUSTER:
            raise _wrong(f"there is one cluster, {CLUSTER_NAME!r}, and its name has no prefix: make the rule literal")
        if name == WILDCARD:
            raise _wrong("the prefix is *, which would mean names that begin with a star: make the rule literal")
    elif name == WILDCARD:
        return
    _check_name(resource_type, name, pattern_type)


def _check_name(resource_type: ResourceType, name: str, pattern_type: PatternType) -> None:
    if resource_type is ResourceType.CLUSTER:
        if name != CLUSTER_NAME:
            raise _wrong(f"{name!a:.300} is no name of a cluster: there is one, {CLUSTER_NAME!r}")
        return
    # A prefix of valid names is mostly a valid name itself, but dots alone are not. So a prefix of only dots and
    # underscores is checked with a letter added.
    probe = name + "x" if pattern_type is PatternType.PREFIXED and set(name) <= {".", "_"} else name
    try:
        if resource_type is ResourceType.TOPIC:
            check_topic_name(probe, reserved_allowed=True)
        elif resource_type is ResourceType.GROUP:
            check_group_id(probe)
        else:
            check_transactional_id(probe)
    except Refused as refusal:
        raise _wrong(
            f"no {resource_type} can have this name, so the rule would never apply: {refusal.message}"
        ) from None


def _wrong(text: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, text)
