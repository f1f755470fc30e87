"""Write pages from the code, and check that they are up to date.

These are docs/reference, the drawings of ARCHITECTURE.md and the tables of docs/kafka.md. The commands document
themselves with `--help`, settings and exit statuses with the strings below their definitions, and metrics in their
table. A second text about them would only drift. The results of the acceptance cases come from their tests, and those
of Kafka's clients from a recorded run, as the page of curves with its charts does.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import typer

from bench.curves.page import files as curve_files
from coordinator_core.permissions import PERMISSIONS, Ask
from coordinator_server import exits
from coordinator_server.settings.config import CONFIG_FILE_VARIABLE, ENVIRONMENT_PREFIX, Config
from partition_log.catalog.settings import FOR_EVER
from scripts.drawings import with_drawings
from scripts.metrics_page import metrics_page
from tests.conformance.page import conformance_page
from tests.kafka_clients.page import with_client_tables
from txnctl.cli import TRACEBACK_VARIABLE, app, command_tree
from txnctl.commands.options import DEFAULT_SERVER, SERVER_VARIABLE

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 80
NOTICE = "<!-- Written by `make docs` from the code. Change the code, not this file. -->"


def main() -> int:
    """Write the pages, or with `--check` only name outdated ones (exit status 1)."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if anything would change")
    is_check = parser.parse_args().check
    stale = []
    for name, page in PAGES.items():
        path = ROOT / name
        text = page()
        if not path.exists() or path.read_text() != text:
            stale.append(path)
            if not is_check:
                path.write_text(text)
                print(f"{path.relative_to(ROOT)}: written")
    if stale and is_check:
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        print(f"{names}: not fresh; run `make docs` and commit the result", file=sys.stderr)
        return 1
    return 0


def cli_page() -> str:
    """Return the content of docs/reference/cli.md."""
    commands = "\n\n".join(_command(path) for path in ((), *_commands(app)))
    rows = "\n".join(f"| {number} | `{name}` | {words} |" for number, name, words in _statuses())
    return (
        f"{NOTICE}\n"
        + _CLI_HEAD.format(
            server_variable=SERVER_VARIABLE, default_server=DEFAULT_SERVER, traceback_variable=TRACEBACK_VARIABLE
        )
        + f"\n| status | name | meaning |\n| --- | --- | --- |\n{rows}\n"
        + "| 130 | | Ctrl-C. `produce` aborts its open transaction first. |\n"
        + f"\n## Commands\n\n{commands}\n"
    )


def configuration_page() -> str:
    """Return the content of docs/reference/configuration.md."""
    schema = Config.model_json_schema()
    settings = "\n".join(
        (f"### {_SECTIONS[name]}\n\n" if name in _SECTIONS else "") + _setting(name, schema)
        for name in Config.model_fields
    )
    parts = "\n".join(f"- [{title}](#{title.lower().replace(' ', '-')})" for title in _SECTIONS.values())
    head = _CONFIGURATION_HEAD.format(prefix=ENVIRONMENT_PREFIX, file_variable=CONFIG_FILE_VARIABLE)
    for names, reason in _TO_DECIDE.items():
        head += f"| {', '.join(f'[{name}](#{name})' for name in names.split())} | {reason} |\n"
    return f"{NOTICE}\n{head}\n## Settings\n\n{parts}\n\n{settings}"


def acceptance_page() -> str:
    """Return the content of docs/reference/conformance.md."""
    return f"{NOTICE}\n{conformance_page()}"


def permissions_page() -> str:
    """Return the content of docs/reference/permissions.md."""
    rows = "\n".join(
        f"| `{method}` | {' '.join(cells)} |" for method, asks in PERMISSIONS.items() for cells in _asked(asks)
    )
    return f"{NOTICE}\n{_PERMISSIONS_HEAD}\n{rows}\n"


def _asked(asks: Sequence[Ask]) -> Iterator[list[str]]:
    """Yield the cells after the name of a procedure, one row for each permission."""
    for ask in asks:
        yield [ask.permission.value, "|", ask.resource_type.value, "|", ask.when, "|", ask.extent.value]
    if not asks:
        yield ["none", "|", "", "|", "callers need only be known", "|", ""]


PAGES: dict[str, Callable[[], str]] = {
    "docs/reference/cli.md": cli_page,
    "docs/reference/configuration.md": configuration_page,
    "docs/reference/metrics.md": lambda: f"{NOTICE}\n{metrics_page()}",
    "docs/reference/conformance.md": acceptance_page,
    "docs/reference/permissions.md": permissions_page,
    "ARCHITECTURE.md": lambda: with_drawings((ROOT / "ARCHITECTURE.md").read_text()),
    "docs/kafka.md": lambda: with_client_tables((ROOT / "docs/kafka.md").read_text()),
    **{name: partial(str, text) for name, text in curve_files().items()},
}

_PERMISSIONS_HEAD = """\
# Permissions

The operations that each procedure of the API needs, in small letters as `txnctl acl add` takes them; elsewhere they
are written READ, WRITE and so on, as in Kafka. [security.md](../security.md#who-may-do-what) has the rules of ACLs, and
those of common programs.

| procedure | operation | on | when | a refusal refuses |
| --- | --- | --- | --- | --- |"""

_CLI_HEAD = """\
# txnctl

One program that runs a server, queries a running one, and inspects the directory of a stopped one.

- **Which server.** `--server HOST:PORT`, else the variable `{server_variable}`, else {default_server}.
- **Options.** Each may stand before the command or behind it: `txnctl --json topic list` is
  `txnctl topic list --json`. Behind a word `--` all words are arguments.
- **Output.** `-o table` is for people, and its layout may change. `-o json`, in short `--json`, and `-o yaml` are for
  programs: they carry every field, with the units in the names (`start_ms`, `size_bytes`). A stream (`consume`,
  `log dump`) comes as one JSON object per line, or as the items of one YAML list. Bytes that are no UTF-8 are written
  as `{{"base64": "..."}}`, and `produce` takes them back: `txnctl consume a --json | txnctl produce b --format json`
  copies a topic.
- **Tables.** In a terminal they are as wide as it is, and numbers, times and UUIDs are never cut. In a pipe nothing is
  folded. Colours mark what is wrong, in a terminal only; `--color` and the variable `NO_COLOR` decide.
- **Watching.** Lists take `--watch`, and show themselves again every two seconds, or `--watch 10`, until Ctrl-C. JSON
  then has a line for each look. A server that is away is named, and asked again.
- **At a glance.** `txnctl top` shows live what a server does; `txnctl top --once --json` gives the same to a program.
- **Progress.** Work that takes over two seconds (`produce`, `consume` and `log dump` into a file, `store verify`,
  `cluster check-store`, `migrate`, backups) shows in a terminal how much is done, how fast, and the time that is left.
  `--progress` shows it in the log of a script, too.
- **Streams.** Stdout has only the result; messages go to stderr. A reader that leaves early (`| head`) ends the
  command quietly, with status 0.
- **Waiting.** Commands fail at once if the server cannot be reached. `txnctl --wait 30s COMMAND ...` first waits up to
  30 seconds for a server that takes work, and reports that on stderr. Use it in scripts that have just started a
  server: `txnctl --wait 60s health`.
- **TLS.** `txnctl --tls-ca-file FILE COMMAND ...` connects with TLS to a server whose certificate a CA in that file
  signed. `--tls-certificate-file` and `--tls-key-file` are for servers that demand a certificate,
  `--tls-server-name` is for a certificate with a name other than the host's, and `--token-file` has the token.
  Each has a variable: `TXNCTL_TLS_CA_FILE`, ..., `TXNCTL_TOKEN_FILE`.
- **Safeguards.** Commands that change topics, groups, transactions, sinks and rules, or remove backups, take
  `--dry-run`; `group reset-offsets` only shows its plan without `--execute`. Commands that delete topics,
  records, groups, offsets or rules ask for confirmation unless `--yes` is given.
- **Completion.** `txnctl --install-completion` sets it up for bash, zsh or fish: commands, options, and from the server
  the names of topics, partitions, groups and transactional ids. A server that is away gives no names, after a second at
  most. Names with letters that mean something to a shell are left out.
- **Defects.** An unexpected error prints one line; set `{traceback_variable}` to see its traceback.

## Exit statuses
"""

_SECTIONS = {
    "listen": "Listeners and callers",
    "kafka_listen": "Listeners for Kafka clients",
    "store": "Object storage",
    "group_share_size_max": "Share groups",
    "group_streams_size_max": "Streams groups",
    "group_session_timeout_ms_min": "Groups and offsets",
    "data_dir": "Server",
    "transaction_max_timeout_ms": "Transactions and producers",
    "default_retention_ms": "Retention and timestamps",
    "batch_bytes_max": "Sizes of requests and transactions",
    "parked_wait_ms_max": "Calls and connections",
    "group_bytes_max": "Memory of the store",
    "backup_directory": "Backups",
    "metrics_listen": "Metrics",
    "disk_free_min_bytes": "Full disk and shutdown",
    "log_format": "Logs",
}
"""Headings of the page of settings, by the first setting below each, in the order of `Config`."""

_TO_DECIDE = {
    "data_dir": "a disk of its own, with fast syncs",
    "store lease": "with a bucket nothing is lost with the machine, and a second server can take over",
    "listen advertised": "the address that clients connect to, and the one that they are given",
    "tls_certificate_file tls_key_file": "needed as soon as other machines connect",
    "authentication super_users": "the same; without a superuser no caller may make the first ACL",
    "quotas_file": "rates are unlimited without it",
    "default_retention_ms default_retention_bytes": "without a limit all records are kept, and the disk fills",
    "transaction_max_timeout_ms": "a dead producer holds back readers for that long",
    "backup_directory backup_interval_ms": "there are no backups without them",
    "metrics_listen metrics_lag_groups": "there are no metrics and no alerts without them",
    "shard_count": "it is fixed when the directory is created; the default suits most servers",
}
"""Settings to decide on before production, and the reason."""

_CONFIGURATION_HEAD = """\
# Configuration

Every setting has a default but the data directory. A value is taken from the first place that has one:

1. a flag: `--data-dir`, `--store`, `--lease`, `--listen`, `--kafka-listen`, `--two-phase`, `--accept-data-loss`,
   `--insecure`, or `--set NAME=VALUE` for any setting;
2. the environment: `{prefix}` and the name in capitals, such as `{prefix}LISTEN`;
3. a TOML file, named by `--config` or `{file_variable}`;
4. the default.

Unknown names are errors in all of them, with the name that may have been meant. `txnctl config show` prints every value
that a server would start with, and where it came from. Units are in the names: `_ms` milliseconds, `_bytes` bytes,
`_max` an upper bound. Further terms are in the [glossary](../../ARCHITECTURE.md#glossary).

**Settings are read at the start, so a change needs a restart.** The files that they name (certificates, keys, tokens,
key sets, quotas) are checked every second. A change of them applies without a restart. Settings of topics and groups
are changed by `txnctl topic alter` and `txnctl group config`. `shard_count` can never be changed.

```toml
data_dir = "data"
listen = "127.0.0.1:7070"
transaction_max_timeout_ms = 900_000
log_format = "json"
```

## Before production

Decide on these. [ops/config/prod.toml](../../ops/config/prod.toml) has lines for most of them. Other defaults suit most
servers.

| setting | reason |
| --- | --- |
"""


def _commands(group: typer.Typer, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield every command as its words, in the order of the help."""
    for command in group.registered_commands:
        assert command.callback is not None
        yield (*path, command.name or command.callback.__name__.replace("_", "-"))
    for sub in group.registered_groups:
        assert sub.typer_instance is not None
        name = sub.typer_instance.info.name
        assert name is not None
        yield from _commands(sub.typer_instance, (*path, name))


def _command(path: tuple[str, ...]) -> str:
    tree: Any = command_tree()
    shown = io.StringIO()
    # Not by typer's CliRunner, which builds the tree of all commands anew for each of them.
    with patch.dict(os.environ, {"COLUMNS": str(WIDTH), "TERM": "dumb"}), redirect_stdout(shown):
        tree([*path, "--help"], "txnctl", standalone_mode=False, terminal_width=WIDTH)
    text = "\n".join(line.rstrip() for line in shown.getvalue().strip().splitlines())
    return f"### {' '.join(('txnctl', *path))}\n\n```text\n{text}\n```"


def _statuses() -> Iterator[tuple[int, str, str]]:
    """Yield number, name and meaning of every exit status."""
    words = _strings_below(Path(exits.__file__), "ExitStatus")
    for status in exits.ExitStatus:
        yield int(status), status.name, words.get(status.name, "It is done.")


def _strings_below(path: Path, class_name: str) -> dict[str, str]:
    """Return the strings below the members of a class, by member. The interpreter discards these strings."""
    tree = ast.parse(path.read_text())
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name)
    words = {}
    for member, below in zip(found.body, found.body[1:], strict=False):
        match member, below:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(text))):
                words[name] = " ".join(text.split())
    return words


def _setting(name: str, schema: dict[str, Any]) -> str:
    found = schema["properties"][name]
    kind = ", ".join(_kind(found, schema))
    default = found.get("default")
    shown = "no default" if name in schema.get("required", ()) else f"default {_literal(default)}"
    text = textwrap.fill(" ".join(found["description"].split()), width=120)
    return f"#### {name}\n\n`{ENVIRONMENT_PREFIX}{name.upper()}`, {kind}, {shown}.\n\n{text}\n"


def _kind(found: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    if "$ref" in found:
        choices = schema["$defs"][found["$ref"].rpartition("/")[2]]["enum"]
        yield "one of " + ", ".join(f"`{choice}`" for choice in choices)
    elif "anyOf" in found:
        for kind in found["anyOf"]:
            if kind["type"] != "null":
                yield from _kind(kind, schema)
    elif found["type"] == "array":
        yield "tables, or a list in JSON"
    elif found["type"] == "integer":
        smallest, largest = found.get("minimum"), found.get("maximum")
        # -1 stands for no limit, and 0 is not a valid limit.
        first = "-1, or a number from 1" if smallest == FOR_EVER else f"a number from {smallest:,}"
        yield first + (" up" if largest is None else f" to {largest:,}")
    else:
        yield {"boolean": "true or false", "string": "a path" if found.get("format") == "path" else "text"}[
            found["type"]
        ]


def _literal(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return f"`{str(value).lower()}`"
        case int():
            return f"{value:,}"
        case []:
            return "none"
        case _:
            return f"`{value}`"


if __name__ == "__main__":
    sys.exit(main())
