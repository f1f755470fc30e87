"""`txnctl token`: tokens that authenticate callers."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.options import Output, parse_duration_ms
from txnctl.output import Column, OutputFormat, Row, print_list, print_note

if TYPE_CHECKING:
    from coordinator_server.security.tokens import TokenRow

app = typer.Typer(
    name="token", help="Create and list the tokens of callers.", no_args_is_help=True, rich_markup_mode=None
)

TokensFile = Annotated[Path, typer.Argument(metavar="FILE", help="Tokens file of the server: its setting tokens_file.")]

_COLUMNS: Final = (Column("ID", "id"), Column("PRINCIPAL", "principal"), Column("EXPIRES", "expires"))


@app.command()
def create(
    file: TokensFile,
    principal: Annotated[str, typer.Option(metavar="User:NAME", help="Principal that the token authenticates.")],
    token_id: Annotated[
        str,
        typer.Option("--id", metavar="ID", help="Name of the token in the file and the log: letters, digits, dashes."),
    ],
    expires_ms: Annotated[
        int | None,
        typer.Option(
            "--expires", metavar="TIME", parser=parse_duration_ms, help="Time until the token expires, such as 90d."
        ),
    ] = None,
    scram: Annotated[
        bool,
        typer.Option(
            "--scram", help="Also usable with SASL SCRAM-SHA-256 by Kafka's clients, with the id as user name."
        ),
    ] = False,
) -> None:
    """Create a token, add its hash to the file, and print it.

    The token is printed only once: it is stored nowhere. A server loads the changed file within seconds. To revoke a
    token, remove its table from the file."""
    from coordinator_runtime.clock import SystemClock
    from coordinator_runtime.identity import new_secret
    from coordinator_server.security.tokens import new_token

    known = _known(file) if file.exists() else {}
    if token_id in known:
        raise CommandFailed(ExitStatus.USAGE, f"{file} has a token {token_id} already: choose another id")
    expires = None
    if expires_ms is not None:
        expires = datetime.fromtimestamp((SystemClock().wall_ms() + expires_ms) // 1_000, UTC)
    try:
        token, table = new_token(token_id, new_secret(), principal, expires, new_secret() if scram else None)
    except ValueError as error:
        raise CommandFailed(ExitStatus.USAGE, _in_words(error)) from error
    _append(file, table)
    typer.echo(token)
    print_note(f"added token {token_id} of {principal} to {file}; keep what is above in a file with mode 0600")


@app.command("list")
def list_tokens(file: TokensFile, output: Output = OutputFormat.TABLE) -> None:
    """Show the tokens of a file, their principals and their expiry. The file has no secrets."""
    rows: list[Row] = [
        {
            "id": token.id,
            "principal": token.principal,
            "expires": None if token.expires is None else token.expires.isoformat(),
        }
        for token in _known(file).values()
    ]
    print_list(rows, _COLUMNS, output, empty="no tokens")


def _known(file: Path) -> dict[str, TokenRow]:
    from coordinator_server.security.tokens import TokensRefused, read_tokens

    try:
        return dict(read_tokens(file))
    except TokensRefused as refused:
        raise CommandFailed(ExitStatus.USAGE, str(refused)) from refused


def _append(file: Path, table: str) -> None:
    """Write the whole file anew and replace the old one, so that a server never reads half of it."""
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    written = file.with_name(f"{file.name}.new")
    try:
        descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as new:
            new.write(before + ("" if not before or before.endswith("\n\n") else "\n") + table)
            new.flush()
            os.fsync(new.fileno())
        written.replace(file)
    except OSError as error:
        raise CommandFailed(ExitStatus.FAILED, f"{file} cannot be written: {error.strerror}") from error


def _in_words(error: ValueError) -> str:
    from pydantic import ValidationError

    from coordinator_server.validation import plain

    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_input=False, include_url=False)[0]
    return f"--{first['loc'][0]}: {plain(first)}"
