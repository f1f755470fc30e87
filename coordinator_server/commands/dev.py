"""`txnctl dev`: run a server on a directory that is thrown away."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coordinator_server.commands.serve import Settings, TwoPhaseName, load_settings, parse_settings

if TYPE_CHECKING:
    from coordinator_server.config import Address
    from coordinator_server.transports import TransportName


def dev(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.")
    ] = "127.0.0.1:7070",
    two_phase: TwoPhaseName = None,
    settings: Settings = None,
) -> None:
    """Run a server to try things out: its directory is removed at the end, and gRPC reflection is on."""
    from coordinator_server.process import end_process, run

    flags = {"listen": listen, "reflection": True, "log_level": "warning"} | parse_settings(settings or [])
    if two_phase is not None:
        flags["two_phase"] = two_phase
    data_dir = Path(tempfile.mkdtemp(prefix="txnctl-dev-"))

    def announce(address: Address, transport: TransportName) -> None:
        typer.echo(
            f"txnctl dev: gRPC on {address}, data in {data_dir} until Ctrl-C, which removes it ({transport} transport)"
        )

    try:
        status = run(load_settings(None, {"data_dir": data_dir} | flags), announce)
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)
    end_process(status)
