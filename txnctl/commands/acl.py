"""`txnctl acl`: access rules of a running server."""

from __future__ import annotations

from typing import Annotated

import typer

from coordinator_protocol.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    PatternType,
    Permission,
    PermissionType,
    ResourceType,
)
from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.acl_import import export_acls, import_acls
from txnctl.commands.acl_rows import ACL_COLUMNS, acl_row
from txnctl.commands.late import remote, sdk
from txnctl.commands.options import (
    DEFAULT_PATIENCE_MS,
    DEFAULT_SERVER,
    DryRun,
    Output,
    Patience,
    Server,
    Yes,
    make_sure,
)
from txnctl.commands.watching import watched
from txnctl.output import Column, OutputFormat, Row, print_list

app = typer.Typer(name="acl", help="Manage access rules (ACLs).", no_args_is_help=True, rich_markup_mode=None)

Principal = Annotated[str, typer.Argument(metavar="PRINCIPAL", help="User:NAME, or User:* for everyone.")]
Operations = Annotated[
    list[Permission], typer.Argument(metavar="OPERATION", help="Such as read or write; all stands for every operation.")
]
Operation = Annotated[Permission, typer.Argument(metavar="OPERATION", help="Such as read or write.")]
Topic = Annotated[str | None, typer.Option(metavar="NAME", help="On this topic; * means any.")]
Group = Annotated[str | None, typer.Option(metavar="NAME", help="On this group; * means any.")]
TransactionalId = Annotated[str | None, typer.Option(metavar="NAME", help="On this transactional id; * means any.")]
Cluster = Annotated[bool, typer.Option("--cluster", help="On the server itself.")]
Prefix = Annotated[bool, typer.Option("--prefix", help="On all names with this prefix.")]
Host = Annotated[str, typer.Option(metavar="ADDRESS", help="Only from this address; unix for a Unix socket.")]
Deny = Annotated[bool, typer.Option("--deny", help="Deny instead of allow. A deny rule overrides every allow rule.")]


@app.command()
def add(
    principal: Principal,
    operations: Operations,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    prefix: Prefix = False,
    deny: Deny = False,
    host: Host = "*",
    dry_run: DryRun = False,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Allow or deny operations to a principal. Prints the rules that are new; they take effect at once."""
    resource_type, name = _one_resource(topic, group, transactional_id, cluster=cluster)
    acls = [
        Acl(
            principal=principal,
            resource_type=resource_type,
            resource_name=name,
            operation=operation,
            permission_type=PermissionType.DENY if deny else PermissionType.ALLOW,
            pattern_type=PatternType.PREFIXED if prefix else PatternType.LITERAL,
            host=host,
        )
        for operation in operations
    ]
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        created = admin.create_acls(acls, dry_run=dry_run)
    print_list([*map(acl_row, created)], ACL_COLUMNS, output, empty="nothing to add: these rules are there already")


@app.command("list")
@watched
def list_acls(
    principal: Annotated[str | None, typer.Option(metavar="PRINCIPAL", help="Only rules of this principal.")] = None,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List all rules, or the rules that apply to a resource.

    Rules for * and for a prefix of its name apply to a resource, too."""
    resource = _resource(topic, group, transactional_id, cluster=cluster)
    wanted = AclFilter(
        principal=principal,
        resource_type=None if resource is None else resource[0],
        resource_name=None if resource is None else resource[1],
        matches_name=resource is not None,
    )
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        found = admin.describe_acls(wanted)
    print_list([*map(acl_row, found)], ACL_COLUMNS, output, empty="no rules; `txnctl acl add` makes one")


@app.command()
def remove(
    principal: Annotated[str | None, typer.Option(metavar="PRINCIPAL", help="Rules of this principal.")] = None,
    operation: Annotated[Permission | None, typer.Option(metavar="OPERATION", help="Rules for this operation.")] = None,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    prefix: Annotated[
        bool, typer.Option("--prefix", help="Rules for this prefix of names, not for this name.")
    ] = False,
    permission_type: Annotated[
        PermissionType | None, typer.Option("--permission", help="Only rules that allow, or only rules that deny.")
    ] = None,
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Rules with this host.")] = None,
    every: Annotated[bool, typer.Option("--every", help="All rules; needed if no other option is given.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Remove the rules that match all given options. Asks for confirmation first."""
    resource = _resource(topic, group, transactional_id, cluster=cluster)
    wanted = AclFilter(
        principal=principal,
        resource_type=None if resource is None else resource[0],
        resource_name=None if resource is None else resource[1],
        operation=operation,
        permission_type=permission_type,
        pattern_type=None if resource is None else PatternType.PREFIXED if prefix else PatternType.LITERAL,
        host=host,
    )
    if wanted == AclFilter() and not every:
        raise CommandFailed(ExitStatus.USAGE, "say which rules to remove, by their principal, say; --every means all")
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        found = admin.delete_acls([wanted], dry_run=True)
        if found and not dry_run:
            if not yes:
                make_sure(f"remove: {acl}" for acl in found)
            found = admin.delete_acls([wanted])
    print_list([*map(acl_row, found)], ACL_COLUMNS, output, empty="no rule is like that")


@app.command()
def check(
    principal: Principal,
    operation: Operation,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address that the principal would connect from.")] = "",
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Check a permission of a principal, and show the rule that decides. Status 1 if it is denied."""
    resource_type, name = _one_resource(topic, group, transactional_id, cluster=cluster)
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        found = admin.check_permission(principal, operation, resource_type, name, host=host)
    if found.is_super_user:
        because = "it is a superuser"
    else:
        because = "no rule allows it" if found.rule is None else str(found.rule)
    if not found.is_enforced:
        because += "; but this server does not authenticate, so every caller may do everything"
    row: Row = {
        "allowed": found.is_allowed,
        "because": because,
        "enforced": found.is_enforced,
        "rule": None if found.rule is None else acl_row(found.rule),
    }
    columns = (Column("ALLOWED", "allowed", lambda value: "yes" if value else "no"), Column("BECAUSE", "because"))
    print_list([row], columns, output, empty="")
    if not found.is_allowed:
        raise typer.Exit(ExitStatus.PROBLEM)


def _resource(
    topic: str | None, group: str | None, transactional_id: str | None, *, cluster: bool
) -> tuple[ResourceType, str] | None:
    named = [
        (kind, name)
        for kind, name in (
            (ResourceType.TOPIC, topic),
            (ResourceType.GROUP, group),
            (ResourceType.TRANSACTIONAL_ID, transactional_id),
            (ResourceType.CLUSTER, CLUSTER_NAME if cluster else None),
        )
        if name is not None
    ]
    if len(named) > 1:
        raise CommandFailed(
            ExitStatus.USAGE, "name one resource: --topic, --group, --transactional-id or --cluster, not several"
        )
    return named[0] if named else None


def _one_resource(
    topic: str | None, group: str | None, transactional_id: str | None, *, cluster: bool
) -> tuple[ResourceType, str]:
    resource = _resource(topic, group, transactional_id, cluster=cluster)
    if resource is None:
        raise CommandFailed(ExitStatus.USAGE, "name a resource: --topic, --group, --transactional-id or --cluster")
    return resource


app.command("export")(export_acls)
app.command("import")(import_acls)
