"""`txnctl backup` and `txnctl restore`: copies of a store, made while it serves, and restoring them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.late import remote, sdk
from txnctl.commands.options import (
    DEFAULT_PATIENCE_MS,
    DEFAULT_SERVER,
    DryRun,
    Output,
    Patience,
    Server,
    parse_duration_ms,
)
from txnctl.commands.watching import watched
from txnctl.commands.work import progress_of
from txnctl.output import (
    Column,
    OutputFormat,
    Row,
    marked_words,
    moment,
    print_document,
    print_facts,
    print_list,
    print_note,
    size,
)

if TYPE_CHECKING:
    from coordinator_runtime.backups import Manifest, StoredBackup
    from coordinator_runtime.backups.files import CopyProgress

app = typer.Typer(
    name="backup", help="Make, list, check and remove backups.", no_args_is_help=True, rich_markup_mode=None
)

LOOK_MS: Final = 500
"""Interval between requests for the progress of a backup (ms)."""

Shelf = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of the backups.", show_default=False)]

_COLUMNS: Final = (
    Column("NAME", "name"),
    Column("STATE", "state", mark=marked_words(bad=["failed"])),
    Column("CREATED", "created_ms", moment),
    Column("VERSION", "version", is_number=True),
    Column("LINE", "incarnation", is_number=True),
    Column("SIZE", "size_bytes", size, is_number=True),
    Column("STORE ID", "store_id"),
    Column("REASON", "reason"),
)


@app.command()
def create(
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Data directory of a stopped server to back up; needs --to.", show_default=False
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="With --data-dir: directory of the backups.", show_default=False),
    ] = None,
    independent: Annotated[
        bool, typer.Option("--independent", help="Share no file with other backups: takes more space and time.")
    ] = False,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Annotated[
        int,
        typer.Option(
            "--timeout",
            metavar="SPAN",
            parser=parse_duration_ms,
            show_default=False,
            help="Time to wait for the reply to each request; the copy itself may take longer. [default: 10s]",
        ),
    ] = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Make a backup of a running or a stopped server.

    A running server writes the backup to its `backup_directory`, and the command waits until it is complete. It
    contains everything that was acknowledged before.

    Ends with status 1 if no backup was made, 3 if the directory of a stopped server is refused.
    """
    if (data_dir is None) != (to is None):
        raise CommandFailed(ExitStatus.USAGE, "--data-dir and --to belong together: a directory, and where to copy it")
    _refuse_addresses(data_dir, to)
    if data_dir is None or to is None:
        row = _create_on_server(server, timeout_ms, is_independent=independent)
    else:
        from coordinator_runtime.backups import create_backup_of_stopped
        from coordinator_runtime.clock import SystemClock

        with _refusals_in_words(), _progress("copied") as progress:
            row = _row_of(
                create_backup_of_stopped(
                    data_dir,
                    to,
                    now_ms=SystemClock().wall_ms(),
                    is_independent=independent,
                    progress=progress,
                )
            )
    print_list([row], _COLUMNS, output, empty="")


def _refuse_addresses(data_dir: Path | None, to: Path | None) -> None:
    """Refuse places in object storage. Raises CommandFailed."""
    source, target = _address_in(data_dir), _address_in(to)
    if source is not None:
        raise CommandFailed(
            ExitStatus.USAGE,
            f"{source} is in object storage, of which no backup is made: use the versions of the bucket, or stop the"
            f" server, export with `txnctl migrate {source} DIR`, and back up DIR",
        )
    if target is not None:
        raise CommandFailed(
            ExitStatus.USAGE, f"{target} is no directory: make the backup in one, and copy that to the bucket"
        )


def _address_in(path: Path | None) -> str | None:
    """Return the address in object storage that was given as a path; None for the path of a file."""
    if path is None or path.parts[:1] not in (("s3:",), ("gs:",), ("az:",)):
        return None
    return f"{path.parts[0]}//{'/'.join(path.parts[1:])}"


def _create_on_server(server: str, timeout_ms: int, *, is_independent: bool) -> Row:
    """Ask a running server for a backup and wait until it is complete. Raises CommandFailed if none was made."""
    with (
        remote.connected(server) as connection,
        sdk.Admin(connection, deadline_ms=timeout_ms) as admin,
        progress_of("copied", "bytes") as progress,
    ):
        begun = admin.create_backup(is_independent=is_independent)
        print_note(f"backup {begun.name} of version {begun.version} is being made")
        while True:
            found = next((each for each in admin.list_backups() if each.name == begun.name), None)
            if found is None or found.state == "failed":
                reason = "another one took its place" if found is None else found.reason
                raise CommandFailed(ExitStatus.PROBLEM, f"the backup {begun.name} was not made: {reason}")
            if found.state != "copying":
                return _row_on_server(found)
            progress.total = found.size_bytes
            progress.reach(found.done_bytes)
            connection.clock.pause(LOOK_MS)


@app.command("list")
@watched
def list_backups(
    directory: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="Directory of the backups. [default: ask the server]"),
    ] = None,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List backups, the oldest first.

    Lists the backups in a directory, or those of a running server with the one that is being made. A backup that was
    never finished is not listed. `txnctl backup verify` checks that the files are still as written.
    """
    if directory is None:
        with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
            rows = [_row_on_server(each) for each in admin.list_backups()]
    else:
        from coordinator_runtime.backups import backups_in

        with _refusals_in_words():
            rows = [_row_of_stored(each) for each in backups_in(directory)]
    print_list(rows, _COLUMNS, output, empty="there are no backups")


@app.command()
def verify(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="A backup, or a directory of backups to check all of.")],
    output: Output = OutputFormat.TABLE,
) -> None:
    """Read every byte of backups, and compare checksums.

    The checksums are those of the manifest. Changes nothing. Ends with status 1 if a backup is damaged or there is
    none, 3 if the directory cannot be read.
    """
    from coordinator_runtime.backups import backups_in
    from coordinator_runtime.backups.manifest import MANIFEST_NAME

    with _refusals_in_words():
        paths = [path] if (path / MANIFEST_NAME).exists() else [each.path for each in backups_in(path)]
        rows = [_verified(each) for each in paths]
    print_list(rows, _VERIFIED, output, empty=f"there is no backup in {path}")
    damaged = sum(bool(row["problems"]) for row in rows)
    if damaged or not rows:
        raise CommandFailed(ExitStatus.PROBLEM, f"{damaged} of {len(rows)} backups are not what was written")


_VERIFIED: Final = (
    Column("NAME", "name"),
    Column("VERDICT", "verdict", mark=marked_words(bad=["damaged"])),
    Column("SIZE", "size_bytes", size, is_number=True),
    Column("PROBLEMS", "problems"),
)


def _verified(path: Path) -> Row:
    from coordinator_runtime.backups import BackupRefused, verify_backup

    try:
        with _progress(f"{path.name}: read") as progress:
            manifest, problems = verify_backup(path, progress)
    except BackupRefused as refusal:
        return {"name": path.name, "verdict": "damaged", "size_bytes": None, "problems": [str(refusal)]}
    verdict = "damaged" if problems else "whole"
    return {"name": path.name, "verdict": verdict, "size_bytes": manifest.size_bytes, "problems": list(problems)}


@app.command()
def prune(
    directory: Shelf,
    keep: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="Number of newest backups to keep of each store.")],
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Remove old backups and the remains of interrupted ones. Backups that share files with them stay complete."""
    from coordinator_runtime.backups import prunable
    from coordinator_runtime.backups import prune as prune_now

    with _refusals_in_words():
        found = prunable(directory, keep) if dry_run else prune_now(directory, keep)
    state = "would be removed" if dry_run else "removed"
    print_list(
        [{**_row_of_stored(each), "state": state} for each in found], _COLUMNS, output, empty="nothing to remove"
    )


def restore(
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="Directory of one backup.", show_default=False)],
    data_dir: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="An empty directory, or one that does not exist yet.", show_default=False),
    ],
    store_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Refuse a backup of any store but this one.")
    ] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Make the data directory of a server from a backup.

    Every byte is checked. The restored store begins a new incarnation: producers initialise again and members join
    again. Readers that have read past the backup get OFFSET_OUT_OF_RANGE, or the offset where the log diverged if they
    send leader epochs. Ends with status 3 and restores nothing if anything is refused.
    """
    from coordinator_client.clock import SystemClock as ClientClock
    from coordinator_runtime.backups import restore as restore_now
    from coordinator_runtime.clock import SystemClock

    with _refusals_in_words(), _progress("restored") as progress:
        restored = restore_now(
            backup,
            data_dir,
            clock=SystemClock(),
            pause=ClientClock().pause,
            store_id=store_id,
            progress=progress,
        )
    manifest = restored.manifest
    row: Row = {
        "directory": str(data_dir),
        "store_id": manifest.store_id,
        "version": manifest.version,
        "created_ms": manifest.created_ms,
        "incarnation": restored.incarnation.number,
        "shard_count": manifest.shard_count,
        "size_bytes": manifest.size_bytes,
    }
    if output is OutputFormat.TABLE:
        print_facts(row, _RESTORED)
    else:
        print_document(row, output)


_RESTORED: Final = (
    Column("DIRECTORY", "directory"),
    Column("STORE ID", "store_id"),
    Column("VERSION", "version"),
    Column("AS OF", "created_ms", moment),
    Column("LINE", "incarnation"),
    Column("SHARDS", "shard_count"),
    Column("SIZE", "size_bytes", size),
)


@contextmanager
def _progress(what: str) -> Iterator[CopyProgress]:
    """Show the progress of work on files, and return its counter."""
    from coordinator_runtime.backups.files import CopyProgress

    with progress_of(what, "bytes") as shown:

        def on_step(progress: CopyProgress) -> None:
            shown.total = progress.total_bytes
            shown.reach(progress.done_bytes)

        yield CopyProgress(on_step)


@contextmanager
def _refusals_in_words() -> Iterator[None]:
    """Turn a refused backup into CommandFailed."""
    from coordinator_runtime.backups import BackupRefused

    try:
        yield
    except BackupRefused as refusal:
        raise CommandFailed(ExitStatus.STORE_REFUSED, str(refusal)) from refusal


def _row_of(manifest: Manifest) -> Row:
    return {
        "name": manifest.name,
        "state": "complete",
        "created_ms": manifest.created_ms,
        "version": manifest.version,
        "incarnation": manifest.incarnation,
        "size_bytes": manifest.size_bytes,
        "done_bytes": manifest.size_bytes,
        "store_id": manifest.store_id,
        "reason": None,
    }


def _row_of_stored(stored: StoredBackup) -> Row:
    if stored.manifest is not None:
        return _row_of(stored.manifest)
    return {"name": stored.path.name, "state": "unreadable", "reason": stored.problem}


def _row_on_server(found: sdk.BackupDescription) -> Row:
    return {
        "name": found.name,
        "state": found.state,
        "created_ms": found.created_ms or None,
        "version": found.version or None,
        "incarnation": found.incarnation,
        "size_bytes": found.size_bytes,
        "done_bytes": found.done_bytes,
        "store_id": found.store_id or None,
        "reason": found.reason or None,
    }
