"""`txnctl config`: what a server started here would run with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from coordinator_server.commands.options import Output
from coordinator_server.commands.serve import DataDir, Listen, Settings, TwoPhaseName, parse_settings
from coordinator_server.output import Column, CommandFailed, ExitStatus, OutputFormat, Row, Value, print_list

if TYPE_CHECKING:
    from coordinator_server.config import LoadedConfig

app = typer.Typer(name="config", help="Show what a server would run with.", no_args_is_help=True, rich_markup_mode=None)

_NOT_SET: Final = "not set"


@app.command()
def show(
    data_dir: DataDir = None,
    listen: Listen = None,
    config_file: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="TOML file with settings; flags and TXN_* win.")
    ] = None,
    two_phase: TwoPhaseName = None,
    settings: Settings = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show every setting with its value and where that came from: default, file, environment or flag.

    Takes the flags of `serve`, reads what `serve` would read, and fails where `serve` would.
    """
    flags = parse_settings(settings or [])
    given: dict[str, object] = {"data_dir": data_dir, "listen": listen, "two_phase": two_phase}
    flags |= {name: value for name, value in given.items() if value is not None}
    loaded = _loaded(config_file, flags)
    values: dict[str, Value] = loaded.config.model_dump(mode="json")
    rows: list[Row] = [{"name": name, "value": value, "origin": loaded.origins[name]} for name, value in values.items()]
    if loaded.origins["data_dir"] == _NOT_SET:
        rows = [{**row, "value": None} if row["name"] == "data_dir" else row for row in rows]
    columns = (Column("NAME", "name"), Column("VALUE", "value"), Column("FROM", "origin"))
    print_list(rows, columns, output, empty="")


def _loaded(file: Path | None, flags: dict[str, object]) -> LoadedConfig:
    """Return the configuration; one that lacks only the value without a default is shown, too. Raises CommandFailed."""
    from coordinator_server.config import ConfigRefused, LoadedConfig, load_config

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
