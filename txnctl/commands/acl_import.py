"""`txnctl acl export` and `txnctl acl import`: the access rules of a server as a file, and a server as a file declares
it."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from coordinator_protocol.acls import Acl, AclFilter
from txnctl.commands.acl_rows import ACL_COLUMNS, acl_row
from txnctl.commands.importing import (
    Check,
    ImportFile,
    PlanAction,
    Prune,
    make_sure_of_plan,
    print_plan,
    result_of,
)
from txnctl.commands.late import remote, sdk
from txnctl.commands.options import (
    DEFAULT_PATIENCE_MS,
    DEFAULT_SERVER,
    DryRun,
    Output,
    Patience,
    Server,
    Yes,
)
from txnctl.output import Column, OutputFormat, Row, write


def export_acls(
    principal: Annotated[str | None, typer.Option(metavar="PRINCIPAL", help="Only rules of this principal.")] = None,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
) -> None:
    """Print rules as TOML, for import."""
    from txnctl.commands.declarations import acl_tables

    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        found = admin.describe_acls(AclFilter(principal=principal))
    write(acl_tables(found))


def import_acls(
    path: ImportFile,
    prune: Prune = False,
    check: Check = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Add rules until all that a file declares are there.

    Shows the plan, asks, and does it. Other rules stay, unless --prune is given; they are removed after the new ones
    are in force. It can be repeated: rules that are there already are left alone."""
    from txnctl.commands.declarations import read_acls

    declared = read_acls(path)
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        added = admin.create_acls(declared, dry_run=True)
        kept = frozenset(declared)
        removed = [acl for acl in admin.describe_acls() if acl not in kept] if prune else []
        plan = [*((PlanAction.ADD, acl) for acl in added), *((PlanAction.REMOVE, acl) for acl in removed)]
        is_trial = dry_run or check
        if plan and not is_trial:
            if not yes:
                make_sure_of_plan(f"{action} {acl}" for action, acl in plan)
            if added:
                admin.create_acls(added)
            if removed:
                admin.delete_acls(map(_exactly, removed))
    rows: list[Row] = [
        {"action": action, "result": result_of(action, is_trial=is_trial), **acl_row(acl)} for action, acl in plan
    ]
    print_plan(rows, _COLUMNS, output, check=check)


def _exactly(acl: Acl) -> AclFilter:
    """Return the filter for one rule."""
    return AclFilter(
        principal=acl.principal,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        operation=acl.operation,
        permission_type=acl.permission_type,
        pattern_type=acl.pattern_type,
        host=acl.host,
    )


_COLUMNS: Final = (Column("RESULT", "result"), *ACL_COLUMNS)
