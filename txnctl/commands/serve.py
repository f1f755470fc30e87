"""`txnctl serve`, `txnctl dev` and `txnctl config`.

`serve` runs a server on a permanent directory, `dev` on a temporary one. `config` shows the settings that a server
would use."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.options import Output
from txnctl.commands.page_process import DEFAULT_LISTEN, MISSING, OFF, PageProcess, is_page_installed
from txnctl.output import Column, OutputFormat, Row, Value, print_list

if TYPE_CHECKING:
    from coordinator_server.addresses import Address
    from coordinator_server.listeners import OpenListener
    from coordinator_server.settings.config_sources import LoadedConfig

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", readable=False, help="Directory of the store; created if missing."),
]
Listen = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Address to listen on, or unix:PATH; port 0 takes a free one. If other machines can reach it, TLS and "
        "authentication are needed, or --insecure. [default: 127.0.0.1:7070]",
    ),
]
KafkaListen = Annotated[
    str | None,
    typer.Option(
        "--kafka-listen",
        metavar="HOST:PORT",
        help="Address for Kafka's own clients; port 0 takes a free one. [default: none]",
    ),
]
TwoPhaseName = Annotated[
    str | None,
    typer.Option(
        "--two-phase",
        metavar="fused|split",
        help="fused: one flush per commit. split: three steps that can be observed. [default: fused]",
    ),
]
StoreAddress = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="s3://BUCKET/PREFIX",
        help="Store in object storage; also gs:// and az://. The data directory is then only a cache. [default: none]",
    ),
]
HasLease = Annotated[
    bool,
    typer.Option(
        "--lease",
        help="Serve only while this server holds the lease of the store, and wait for it until then. Start two such"
        " servers: when one ends, the other takes over.",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", help="Listen without TLS or authentication on addresses that other machines can reach."),
]
AcceptDataLoss = Annotated[
    bool, typer.Option("--accept-data-loss", help="Start even if durable data is missing from the store.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Any other setting, by its name in the configuration; repeatable."
    ),
]


def serve(
    data_dir: DataDir = None,
    store: StoreAddress = None,
    lease: HasLease = False,
    listen: Listen = None,
    kafka_listen: KafkaListen = None,
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", readable=False, help="TOML file with settings; flags and TXN_* override it."
        ),
    ] = None,
    two_phase: TwoPhaseName = None,
    accept_data_loss: AcceptDataLoss = False,
    insecure: Insecure = False,
    settings: Settings = None,
) -> None:
    """Run a server on a permanent directory.

    Ends with status 0 after SIGTERM, SIGHUP or Ctrl-C. 3: the directory is refused. 4: the address is refused. 70: the
    store failed. 71: another server has taken it over. 72: the lease of the store ended.
    """
    flags = parse_settings(settings or [])
    given = {
        "data_dir": data_dir,
        "store": store,
        "lease": lease or None,
        "listen": listen,
        "kafka_listen": kafka_listen,
        "two_phase": two_phase,
        "accept_data_loss": accept_data_loss or None,
        "insecure": insecure or None,
    }
    flags |= {name: value for name, value in given.items() if value is not None}
    run_server(load_settings(config_file, flags))


def parse_settings(settings: list[str]) -> dict[str, object]:
    """Split the NAME=VALUE of every --set. Raises CommandFailed."""
    parsed: dict[str, object] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise CommandFailed(ExitStatus.USAGE, f"--set {setting}: write NAME=VALUE, as in --set shard_count=64")
        parsed[name.replace("-", "_")] = value
    return parsed


def load_settings(file: Path | None, flags: dict[str, object]) -> LoadedConfig:
    """Return the configuration from all sources. Raises CommandFailed."""
    from coordinator_server.settings.config_sources import ConfigRefused, load_config

    try:
        return load_config(file, flags)
    except ConfigRefused as refusal:
        raise CommandFailed(ExitStatus.USAGE, str(refusal)) from refusal


def run_server(loaded: LoadedConfig) -> None:
    """Run a server until the end of the process. Raises CommandFailed if it cannot start."""
    from coordinator_server.process import end_process, run

    config = loaded.config

    def announce(listeners: Sequence[OpenListener], kafka: Sequence[Address]) -> None:
        first, *others = listeners
        typer.echo(f"txnctl: serving gRPC on {first.address}, data in {config.place} ({_how(first)})")
        for each in others:
            typer.echo(f"txnctl: serving gRPC on {each.address}, too ({_how(each)})")
        for address in kafka:
            typer.echo(f"txnctl: serving Kafka's protocol on {address}")

    end_process(run(config, announce, origins=loaded.origins))


def _how(listener: OpenListener) -> str:
    transport = f"{listener.transport.name} transport"
    return transport if listener.credentials is None else f"{transport}, {listener.protection}"


def dev(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0 takes a free one.")
    ] = "127.0.0.1:7070",
    kafka_listen: KafkaListen = None,
    two_phase: TwoPhaseName = None,
    insecure: Insecure = False,
    settings: Settings = None,
    page: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address of the page for the browser; `off` for none.")
    ] = DEFAULT_LISTEN,
) -> None:
    """Run a server for trying things out. Its directory is removed at the end, and gRPC reflection is on."""
    from coordinator_server.process import end_process, run

    flags = {"listen": listen, "reflection": True, "log_level": "warning"} | parse_settings(settings or [])
    given = {"kafka_listen": kafka_listen, "two_phase": two_phase, "insecure": insecure or None}
    flags |= {name: value for name, value in given.items() if value is not None}
    data_dir = Path(tempfile.mkdtemp(prefix="txnctl-dev-"))

    def announce(listeners: Sequence[OpenListener], kafka: Sequence[Address]) -> None:
        first = listeners[0]
        typer.echo(
            f"txnctl dev: gRPC on {first.address}, data in {data_dir} until Ctrl-C, which removes it ({_how(first)})"
        )
        for address in kafka:
            typer.echo(f"txnctl dev: Kafka's protocol on {address}")
        if (started := _page_beside(first, page)) is not None:
            beside.append(started)

    beside: list[PageProcess] = []
    try:
        loaded = load_settings(None, {"data_dir": data_dir} | flags)
        status = run(loaded.config, announce, origins=loaded.origins)
    finally:
        for each in beside:
            each.stop()
        shutil.rmtree(data_dir, ignore_errors=True)
    end_process(status)


def _page_beside(listener: OpenListener, listen: str) -> PageProcess | None:
    """Start the page of a server, or say why there is none."""
    if listen == OFF:
        return None
    if not is_page_installed():
        typer.echo(f"txnctl dev: no page for the browser: {MISSING}")
        return None
    if listener.credentials is not None:
        typer.echo("txnctl dev: no page for the browser: with TLS, start `txnctl page` with --tls-ca-file")
        return None
    return PageProcess(str(listener.address), listen)


config = typer.Typer(
    name="config",
    help="Show the configuration that a server would start with.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_NOT_SET: Final = "not set"


@config.command()
def show(
    data_dir: DataDir = None,
    store: StoreAddress = None,
    lease: HasLease = False,
    listen: Listen = None,
    kafka_listen: KafkaListen = None,
    config_file: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="TOML file with settings; flags and TXN_* override it."),
    ] = None,
    two_phase: TwoPhaseName = None,
    accept_data_loss: AcceptDataLoss = False,
    insecure: Insecure = False,
    settings: Settings = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show every setting, its value and its source.

    The source is the default, the file, the environment or a flag. Takes the flags of `serve`, reads the same sources,
    and refuses the same values. Only data_dir need not be set. No running server is asked: name its file with --config,
    and set its variables TXN_*.
    """
    flags = parse_settings(settings or [])
    given: dict[str, object] = {
        "data_dir": data_dir,
        "store": store,
        "lease": lease or None,
        "listen": listen,
        "kafka_listen": kafka_listen,
        "two_phase": two_phase,
        "accept_data_loss": accept_data_loss or None,
        "insecure": insecure or None,
    }
    flags |= {name: value for name, value in given.items() if value is not None}
    loaded = _loaded(config_file, flags)
    values: dict[str, Value] = loaded.config.model_dump(mode="json")
    rows: list[Row] = [{"name": name, "value": value, "origin": loaded.origins[name]} for name, value in values.items()]
    if loaded.origins["data_dir"] == _NOT_SET:
        rows = [{**row, "value": None} if row["name"] == "data_dir" else row for row in rows]
    columns = (Column("NAME", "name"), Column("VALUE", "value"), Column("FROM", "origin"))
    print_list(rows, columns, output, empty="")


def _loaded(file: Path | None, flags: dict[str, object]) -> LoadedConfig:
    """Return the configuration, even if it lacks data_dir, the only setting without a default. Raises CommandFailed."""
    from coordinator_server.settings.config_sources import ConfigRefused, LoadedConfig, load_config

    try:
        return load_config(file, flags)
    except ConfigRefused as refusal:
        if not str(refusal).startswith("data_dir is not set"):
            raise CommandFailed(ExitStatus.USAGE, str(refusal)) from refusal
        try:
            loaded = load_config(file, {"data_dir": Path(), **flags})
        except ConfigRefused:
            raise CommandFailed(ExitStatus.USAGE, str(refusal)) from refusal
        return LoadedConfig(loaded.config, {**loaded.origins, "data_dir": _NOT_SET})
