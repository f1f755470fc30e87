"""Root of the `txnctl` command tree. Users never see a traceback, unless they ask for one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Annotated

import typer

from coordinator_runtime.running_version import running_version
from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands import acl, backup, cluster, group, log, shard, sink, store, token, topic
from txnctl.commands.administration import abort, hanging
from txnctl.commands.completing import complete_names, place_completion
from txnctl.commands.doctor import doctor
from txnctl.commands.empty_values import refuse_empty_values
from txnctl.commands.explain import explain
from txnctl.commands.health import health
from txnctl.commands.log import consume
from txnctl.commands.migrate import migrate
from txnctl.commands.options import SERVER_TLS, SERVER_WAIT, ServerTls, parse_duration_ms
from txnctl.commands.page import page
from txnctl.commands.placing import place_options
from txnctl.commands.probe import probe
from txnctl.commands.produce import produce
from txnctl.commands.serve import config, dev, serve
from txnctl.commands.top import top
from txnctl.commands.transactions import describe, list_transactions
from txnctl.commands.work import PROGRESS_LINES
from txnctl.output import COLOR, ColorChoice, is_coloured
from txnctl.tables import CellMark, painted

PROGRAM = "txnctl"
"""Name in messages, and for the shell that asks for completions, however it was started."""
TRACEBACK_VARIABLE = "TXNCTL_TRACEBACK"
"""Environment variable that shows the traceback of a defect in the program. Any value counts."""

app = typer.Typer(
    name="txnctl",
    help="A record log with transactions: run a server, and inspect one.\n\n"
    "Options may stand before or behind the command. --json is short for --output json.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(serve)
app.command()(dev)
app.add_typer(topic.app)
app.add_typer(group.app)
app.command()(produce)
app.command()(consume)
app.command("list")(list_transactions)
app.command()(describe)
app.command()(explain)
app.command()(abort)
app.command()(hanging)
app.command()(top)
app.add_typer(acl.app)
app.add_typer(sink.app)
app.add_typer(shard.app)
app.add_typer(log.app)
app.add_typer(store.app)
app.add_typer(backup.app)
app.command()(backup.restore)
app.command()(migrate)
app.add_typer(cluster.app)
app.add_typer(token.app)
app.add_typer(config)
app.command()(doctor)
app.command()(probe)
app.command()(health)
app.command()(page)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"txnctl {running_version()}")
        raise typer.Exit


@app.callback()
def options(  # noqa: PLR0913  each option is a parameter
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    wait_ms: Annotated[
        int,
        typer.Option(
            "--wait",
            metavar="SPAN",
            parser=parse_duration_ms,
            show_default=False,
            help="Time to wait for a server that is not ready yet, as in 30s. [default: 0s]",
        ),
    ] = 0,
    color: Annotated[
        ColorChoice,
        typer.Option(help="Colours for what is wrong. auto: in a terminal, unless the variable NO_COLOR is set."),
    ] = ColorChoice.AUTO,
    progress: Annotated[
        bool, typer.Option("--progress", help="Show the progress of long work on a stderr that is no terminal, too.")
    ] = False,
    tls_ca_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            envvar="TXNCTL_TLS_CA_FILE",
            help="Use TLS, and trust servers whose certificate is signed by a CA in this PEM file.",
        ),
    ] = None,
    tls_certificate_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            envvar="TXNCTL_TLS_CERTIFICATE_FILE",
            help="Client certificate in PEM, for servers that ask for one.",
        ),
    ] = None,
    tls_key_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", envvar="TXNCTL_TLS_KEY_FILE", help="Private key of that certificate, in PEM."),
    ] = None,
    tls_server_name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            envvar="TXNCTL_TLS_SERVER_NAME",
            help="Name expected in the certificate of the server. [default: the host of --server]",
        ),
    ] = None,
    token_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            envvar="TXNCTL_TOKEN_FILE",
            help="File with the token that authenticates this client; needs --tls-ca-file.",
        ),
    ] = None,
) -> None:
    """A record log with transactions: run a server, and inspect one."""
    given = ServerTls(
        ca_file=tls_ca_file,
        certificate_file=tls_certificate_file,
        key_file=tls_key_file,
        server_name=tls_server_name,
        token_file=token_file,
    )
    if given.ca_file is None and any(given):
        raise CommandFailed(
            ExitStatus.USAGE,
            "--token-file and the other --tls options need --tls-ca-file, by which the server is checked",
        )
    SERVER_TLS.set(given)
    COLOR.set(color)
    PROGRESS_LINES.set(progress)
    SERVER_WAIT.set(wait_ms / 1_000)


def main() -> None:
    """Run the `txnctl` program."""
    # gRPC would write lines of its own to stderr about errors that we report ourselves.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        tree = command_tree()
        place_completion(tree)
        tree(place_options(tree, sys.argv[1:]), PROGRAM)
    except CommandFailed as failure:
        _complain(failure.message)
        sys.exit(failure.status)
    except KeyboardInterrupt:
        sys.exit(128 + 2)
    except Exception as defect:
        if TRACEBACK_VARIABLE in os.environ:
            raise
        _complain(
            f"this is a defect of txnctl, please report it: {type(defect).__name__}: {defect}\n"
            f"set {TRACEBACK_VARIABLE}=1 to see where it happened"
        )
        sys.exit(ExitStatus.FAILED)


@cache
def command_tree() -> Callable[[list[str], str], object]:
    """Return the tree of all commands, built from their signatures. Cached, because building it takes longer than most
    commands and tests run many."""
    tree = typer.main.get_command(app)
    refuse_empty_values(tree)
    complete_names(tree)
    return tree


def _complain(message: str) -> None:
    name = painted("txnctl:", CellMark.BAD) if is_coloured(sys.stderr) else "txnctl:"
    for line in message.splitlines():
        print(f"{name} {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
