"""Access rules in the catalog: one row for each rule, and a version that every change raises.

A change is one operation, so all of its rules take effect together, once it is durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from coordinator_protocol.acls import Acl, AclFilter
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import CATALOG_KEY, Decision, Record
from coordinator_runtime.timeline import Journal, TimelineMap
from partition_log.catalog.state import AclCreated, AclDeleted, AclRecord, AclVersion

ACLS_MAX: Final = 10_000
"""Largest number of rules of one server. All of them fit into one answer, and into some milliseconds of the loop."""

_ONLY: Final = None
"""Key of a map that holds one value."""


class AclsChanged(Struct, frozen=True):
    """Result of a change of the rules, or of its validation."""

    acls: tuple[Acl, ...]
    """Rules that were created and did not exist before, or that were deleted."""
    version: int
    """Version of the rules after the change."""


class AclTable:
    """All rules, live and durable."""

    def __init__(self, journal: Journal) -> None:
        self._acls: TimelineMap[Acl, int] = TimelineMap(journal)
        self._version: TimelineMap[None, int] = TimelineMap(journal)

    def durable_version(self) -> int:
        """Return the version of the rules that are on disk, 0 before the first."""
        return self._version.durable(_ONLY) or 0

    def durable(self) -> list[Acl]:
        """Return the rules that are on disk, in no order."""
        return [acl for acl, _version in self._acls.durable_items()]

    def decide_create(self, wanted: Sequence[Acl], *, validate_only: bool) -> Decision:
        """Add rules that have passed `check_acl`. Rules that exist already stay. The reply is AclsChanged.

        Raises Refused POLICY_VIOLATION if there would be too many."""
        new = tuple(acl for acl in dict.fromkeys(wanted) if acl not in self._acls)
        if len(self._acls) + len(new) > ACLS_MAX:
            raise Refused(
                ErrorCode.POLICY_VIOLATION,
                f"there are {len(self._acls)} ACLs and at most {ACLS_MAX} are allowed, so {len(new)} more have no room:"
                " say it with prefixes, or delete unused ones",
            )
        records = tuple(AclCreated(acl, self._next_version) for acl in new)
        return self._change(new, records, "create_acl", validate_only=validate_only)

    def decide_delete(self, filters: Sequence[AclFilter], *, validate_only: bool) -> Decision:
        """Delete every rule that matches one of the filters. The reply is AclsChanged."""
        found = tuple(acl for acl, _version in self._acls.items() if any(each.matches(acl) for each in filters))
        return self._change(found, tuple(map(AclDeleted, found)), "delete_acl", validate_only=validate_only)

    def _change(
        self, acls: tuple[Acl, ...], changes: Sequence[AclRecord], cause: str, *, validate_only: bool
    ) -> Decision:
        if validate_only or not acls:
            return Decision(reply=AclsChanged(acls, self._next_version - 1))
        version = Record(CATALOG_KEY, AclVersion(self._next_version))
        return Decision(
            reply=AclsChanged(acls, self._next_version),
            records=(*(Record(CATALOG_KEY, each, cause=cause) for each in changes), version),
        )

    @property
    def _next_version(self) -> int:
        return (self._version.get(_ONLY) or 0) + 1

    def replay(self, value: AclRecord) -> None:
        match value:
            case AclCreated(acl, version):
                self._acls.put(acl, version)
            case AclDeleted(acl):
                self._acls.remove(acl)
            case AclVersion(version):
                self._version.put(_ONLY, version)
