"""Runs a server with security, loses its disk and restores a backup: TLS, tokens, permissions and the audit log.

    .venv/bin/python examples/demo_secure.py          all 336,776 flights; `make demo-secure` does this
    .venv/bin/python examples/demo_secure.py --rows 20000

An administrator sets the permissions. A loader writes the flights in transactions, and an analyst reads them. Calls
that they may not make, and those of an unauthenticated caller, are refused and recorded in the audit log. Half of the
flights are in a backup when the server is killed and its disk is lost. The backup is restored, the loader continues
where it ends, and every row is compared with the data set.

The report goes to stdout, progress to stderr. Exit status: 0 = every row is there, once, and right, and every forbidden
call was refused; 1 = something differs or failed; 130 = interrupted. No process is left running. Of the directory, only
the log is left after a failure, and all of it with --keep.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from examples.demo import INTERRUPTED, fail, parser, tell, tidy
from examples.demo_parts.failures import DemoFailed, Differs
from examples.demo_parts.interrupts import Interrupts
from examples.demo_parts.people import People, txnctl
from examples.demo_parts.server import Server

TOPIC: Final = "departures"
PARTITIONS: Final = 4
ROWS_PER_TRANSACTION: Final = 2_000
ADMIN, LOADER, ANALYST = "admin", "loader", "analyst"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return the exit status."""
    asked = parser("demo_secure.py", "Writes flights with security on, loses the disk, and restores a backup.")
    options = asked.parse_args(arguments)
    # While the server is dead, gRPC would write lines of its own to stderr. They are expected here.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    Interrupts()
    directory = Path(tempfile.mkdtemp(prefix="txn-demo-"))
    is_failure = True
    server: Server | None = None
    try:
        people = People(directory, ADMIN, LOADER, ANALYST)
        server = Server(directory, settings(directory, people))
        Story(directory, server, people, options.rows).run()
        is_failure = False
    except KeyboardInterrupt:
        is_failure = False
        tell("interrupted")
        return INTERRUPTED
    except DemoFailed as error:
        return fail(str(error))
    finally:
        if server is not None:
            server.stop()
        tidy(directory, [directory / "server.log"], is_kept=options.keep, is_failure=is_failure)
    return 0


def settings(directory: Path, people: People) -> dict[str, object]:
    """Return the server settings that differ from the defaults."""
    return {
        "tls_certificate_file": people.ca_file,
        "tls_key_file": people.key_file,
        "authentication": "token",
        "tokens_file": people.tokens_file,
        "super_users": f"User:{ADMIN}",
        "audit_file": directory / "audit.log",
        "backup_directory": directory / "backups",
    }


class Story:
    """The steps of the demo, in order. Each raises DemoFailed if it does not succeed."""

    def __init__(self, directory: Path, server: Server, people: People, rows: int) -> None:
        self._directory = directory
        self._server = server
        self._people = people
        self._rows = rows

    def run(self) -> None:
        tell(f"server started in {self._server.start():.1f} s, with TLS, and asks who calls")
        self._say_who_may_do_what()
        half = self._rows // 2
        self._load(1, half)
        refused = self._show_what_is_refused()
        self._admin("backup", "create")
        tell(f"{half} flights are in a backup")
        # These rows will be lost with the disk: only the rows of the backup are safe.
        self._load(half + 1, min(half + ROWS_PER_TRANSACTION, self._rows))
        self._lose_the_disk_and_restore()
        kept = self._count()
        if kept != half:
            raise Differs(f"the backup had {half} flights, and {kept} are there after its restore")
        self._load(kept + 1, self._rows)
        matching = self._compare()
        on_record = self._on_record()
        print(f"refused: {'; '.join(refused)}")
        print(f"on record: {', '.join(f'{count} {event}' for event, count in sorted(on_record.items()))}")
        print(f"restored: {half} flights of the backup after the disk was lost, and the loader went on behind them")
        print(f"demo-secure: OK, {matching} of {self._rows} flights, 0 missing, 0 duplicated", flush=True)

    def _admin(self, *arguments: str) -> str:
        return self._people.txnctl(ADMIN, *arguments, server=self._server.endpoint)

    def _say_who_may_do_what(self) -> None:
        self._admin("topic", "create", TOPIC, "--partitions", str(PARTITIONS))
        self._admin("acl", "add", f"User:{LOADER}", "write", "--topic", TOPIC)
        self._admin("acl", "add", f"User:{LOADER}", "write", "--transactional-id", "load-", "--prefix")
        self._admin("acl", "add", f"User:{ANALYST}", "read", "--topic", TOPIC)
        tell("the loader may write to the topic, the analyst may read it")

    def _show_what_is_refused(self) -> list[str]:
        """Let each caller try a forbidden call; return the callers and errors. Raises: Differs if a call succeeds."""
        from coordinator_client import Producer, TransactionError, read
        from coordinator_protocol.errors import ErrorCode

        def reads(name: str | None) -> None:
            next(iter(read(TOPIC, self._server.endpoint, tls=self._people.tls(name))), None)

        def writes() -> None:
            tls = self._people.tls(ANALYST)
            with (
                Producer(self._server.endpoint, transactional_id="load-other", tls=tls) as producer,
                producer.transaction() as transaction,
            ):
                transaction.send(TOPIC, b"{}")

        tries: list[tuple[str, Callable[[], None]]] = [
            ("a stranger who reads", lambda: reads(None)),
            ("the loader who reads", lambda: reads(LOADER)),
            ("the analyst who writes", writes),
        ]
        told: list[str] = []
        for who, attempt in tries:
            try:
                attempt()
            except TransactionError as error:
                told.append(f"{who} ({ErrorCode(error.code).name})")
            else:
                raise Differs(f"{who} was let through")
        return told

    def _load(self, first: int, last: int) -> None:
        """Write these rows, in transactions over all partitions."""
        from coordinator_client import Producer
        from examples.demo_parts.flights import records

        tls = self._people.tls(LOADER)
        with Producer(self._server.endpoint, transactional_id="load-departures", tls=tls) as producer:
            for start in range(first, last + 1, ROWS_PER_TRANSACTION):
                with producer.transaction() as transaction:
                    for flight in records(start, min(start + ROWS_PER_TRANSACTION, last + 1)):
                        transaction.send(TOPIC, flight.value, key=flight.key)
        tell(f"flights {first} to {last} are committed")

    def _lose_the_disk_and_restore(self) -> None:
        self._server.kill()
        shutil.rmtree(self._server.data_dir)
        tell("the server is killed, and its disk is lost")
        (newest,) = (path for path in (self._directory / "backups").iterdir() if path.is_dir())
        txnctl("restore", str(newest), str(self._server.data_dir))
        tell(f"the backup is restored, and the server is back after {self._server.start():.1f} s")

    def _count(self) -> int:
        from coordinator_client import read

        return sum(1 for _ in read(TOPIC, self._server.endpoint, tls=self._people.tls(ANALYST)))

    def _compare(self) -> int:
        """Return the number of correct rows, as the analyst sees them. Raises: Differs."""
        from coordinator_client import read
        from examples.demo_parts.compared import compare

        tell("every row is compared")
        found = read(TOPIC, self._server.endpoint, tls=self._people.tls(ANALYST))
        matching, differences = compare(found, self._rows)
        status = self._server.stop()
        if status:
            differences.append(f"the server ended with status {status} when it was asked to stop")
        if differences:
            raise Differs("\n".join(differences))
        return matching

    def _on_record(self) -> Counter[str]:
        """Return the number of lines of each kind in the audit log. Raises: Differs if a refusal is missing."""
        lines = [json.loads(line) for line in (self._directory / "audit.log").read_text().splitlines()]
        refused = {line.get("principal") for line in lines if line["event"] == "refused"}
        if not refused >= {f"User:{LOADER}", f"User:{ANALYST}"}:
            raise Differs(f"the audit log has refusals of {refused or 'no one'}")
        return Counter(line["event"] for line in lines)


if __name__ == "__main__":
    sys.exit(main())
