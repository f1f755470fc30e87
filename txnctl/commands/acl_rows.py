"""Rows for access rules."""

from __future__ import annotations

from typing import Final

from coordinator_protocol.acls import Acl
from txnctl.output import Column, Row

ACL_COLUMNS: Final = (
    Column("RESOURCE", "resource_type"),
    Column("NAME", "resource_name"),
    Column("PATTERN", "pattern_type"),
    Column("PRINCIPAL", "principal"),
    Column("HOST", "host"),
    Column("OPERATION", "operation"),
    Column("PERMISSION", "permission_type"),
)
"""Columns of rules."""


def acl_row(acl: Acl) -> Row:
    """Return a rule as a row."""
    return {
        "resource_type": acl.resource_type.value,
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type.value,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.value,
        "permission_type": acl.permission_type.value,
    }
