"""`txnctl shard`: list, load and unload shards of a running server."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from txnctl.commands.late import remote, sdk
from txnctl.commands.options import DEFAULT_PATIENCE_MS, DEFAULT_SERVER, Output, Patience, Server
from txnctl.commands.watching import watched
from txnctl.output import Column, OutputFormat, Row, marked_words, print_list

app = typer.Typer(
    name="shard", help="List, load and unload the shards of a server.", no_args_is_help=True, rich_markup_mode=None
)

CoordinatorName = Annotated[
    str,
    typer.Argument(
        metavar="COORDINATOR",
        help="Coordinator of the shard: transactions, groups, log or share_partitions.",
        show_default=False,
    ),
]
Number = Annotated[int, typer.Argument(metavar="SHARD", help="Number of the shard.")]

_COLUMNS = (
    Column("COORDINATOR", "coordinator"),
    Column("SHARD", "shard", is_number=True),
    Column("STATE", "state", mark=marked_words(bad=["failed"], warning=["loading", "unloaded"])),
    Column("EPOCH", "coordinator_epoch", is_number=True),
    Column("REASON", "reason"),
)


@app.command("list")
@watched
def list_shards(
    coordinator: Annotated[
        str,
        typer.Argument(
            metavar="COORDINATOR", help="Only shards of this coordinator, such as transactions.", show_default=False
        ),
    ] = "",
    state: Annotated[str, typer.Option(metavar="STATE", help="Only shards in this state, such as failed.")] = "",
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List shards and their states. Only active shards serve."""
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        rows: list[Row] = [asdict(each) for each in admin.list_shards(coordinator) if state in ("", each.state)]
    print_list(rows, _COLUMNS, output, empty="no shard is in this state")


@app.command()
def load(
    coordinator: CoordinatorName,
    number: Number,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Load a shard from the store and let it serve.

    The shard was unloaded, or failed and is repaired. A shard that serves is loaded again."""
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        loaded = admin.load_shard(coordinator, number)
    print_list([asdict(loaded)], _COLUMNS, output, empty="")


@app.command()
def unload(
    coordinator: CoordinatorName,
    number: Number,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Stop serving a shard until it is loaded again. Its callers are refused and retry; nothing is lost."""
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        unloaded = admin.unload_shard(coordinator, number)
    print_list([asdict(unloaded)], _COLUMNS, output, empty="")
