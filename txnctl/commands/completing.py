"""Names from the server for the completion of a shell: topics, partitions, groups, transactional ids.

The shell calls `txnctl` at each press of the tab key. So a server that is away, or slow, or refuses gives no names, and
no message. A name may be foreign text: those with letters that mean something to a shell are left out.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Final, TypeAlias

import typer
import typer.core
from typer._click.shell_completion import CompletionItem

from txnctl.commands.late import remote, sdk
from txnctl.commands.options import DEFAULT_SERVER, SERVER_TLS, ServerTls
from txnctl.commands.placing import Command, place_options

DEADLINE_MS: Final = 1_000
"""Longest wait for names (ms), because a user waits for them at the keyboard."""
NAMES_MAX: Final = 1_000
VARIABLE: Final = "_TXNCTL_COMPLETE"
"""Environment variable with which the script of a shell asks for completions."""

_HARMLESS: Final = re.compile(r"[A-Za-z0-9._/@+,%-]+")
_BASH_WORDS, _BASH_POSITION, _LINE = "COMP_WORDS", "COMP_CWORD", "_TYPER_COMPLETE_ARGS"

Finder: TypeAlias = "Callable[[sdk.Admin, str], Iterable[str]]"


def _topics(admin: sdk.Admin, _begun: str) -> Iterable[str]:
    return (topic.name for topic in admin.describe_topics())


def _partitions(admin: sdk.Admin, _begun: str) -> Iterable[str]:
    return (f"{topic.name}-{each.partition}" for topic in admin.describe_topics() for each in topic.partitions)


def _topics_and_partitions(admin: sdk.Admin, begun: str) -> Iterable[str]:
    return (*_topics(admin, begun), *_partitions(admin, begun))


def _groups(admin: sdk.Admin, _begun: str) -> Iterable[str]:
    return (group.group_id for group in admin.list_groups())


def _transactional_ids(admin: sdk.Admin, begun: str) -> Iterable[str]:
    found = admin.oldest_transactions(limit=NAMES_MAX, pattern=f"{re.escape(begun)}.*")
    return (each.transactional_id for each in found.transactions)


_FINDERS: Final[Mapping[str, Finder]] = {
    "TOPIC": _topics,
    "TOPIC[:N,N]": _topics,
    "TOPIC-PARTITION": _partitions,
    "TOPIC[-PARTITION]": _topics_and_partitions,
    "GROUP": _groups,
}
"""Finders of names by the metavar of an argument or option."""
_IDS: Final = frozenset({"transactional_id", "transactional_ids"})
_NEW: Final = frozenset({("topic", "create")})
"""Commands that name something new."""


def complete_names(command: object, path: tuple[str, ...] = ()) -> None:
    """Let all commands complete names from the server."""
    assert isinstance(command, Command)
    if isinstance(command, typer.core.TyperGroup):
        for name, each in command.commands.items():
            complete_names(each, (*path, name))
        return
    for parameter in command.params if path not in _NEW else ():
        finder = _transactional_ids if parameter.name in _IDS else _FINDERS.get(str(parameter.metavar))
        if finder is not None:
            setattr(parameter, "shell_complete", functools.partial(_complete, finder))  # noqa: B010


def _complete(finder: Finder, context: typer.Context, begun: str) -> list[CompletionItem]:
    try:
        names = sorted(set(_found(finder, context, begun)))
    except Exception:  # noqa: BLE001  a message would break the line that the user types
        return []
    return [CompletionItem(name) for name in names[:NAMES_MAX]]


def _found(finder: Finder, context: typer.Context, begun: str) -> list[str]:
    """Return the names that begin so and mean nothing to a shell. Raises CommandFailed and the errors of the client."""
    from coordinator_client.transport.connection import Connection

    given = context.find_root().params
    SERVER_TLS.set(
        ServerTls(
            ca_file=given.get("tls_ca_file"),
            certificate_file=given.get("tls_certificate_file"),
            key_file=given.get("tls_key_file"),
            server_name=given.get("tls_server_name"),
            token_file=given.get("token_file"),
        )
    )
    server = str(context.params.get("server") or DEFAULT_SERVER)
    remote.check_reachable(server, DEADLINE_MS)
    tls = remote.tls_for(server)
    with (
        Connection(server, client_id=remote.CLIENT_ID, tls=tls, wait_ms=DEADLINE_MS) as connection,
        sdk.Admin(connection, deadline_ms=DEADLINE_MS) as admin,
    ):
        return [name for name in finder(admin, begun) if name.startswith(begun) and _HARMLESS.fullmatch(name)]


def place_completion(tree: object, environment: MutableMapping[str, str] = os.environ) -> None:
    """Put the words before the one that is completed into the order that the parser expects, as `place_options`
    does."""
    if VARIABLE not in environment:
        return
    if _BASH_WORDS in environment:
        words, at = _split(environment[_BASH_WORDS]), int(environment[_BASH_POSITION])
        placed = place_options(tree, words[1:at])
        environment[_BASH_WORDS] = shlex.join([words[0], *placed, *words[at:]])
        environment[_BASH_POSITION] = str(len(placed) + 1)
    elif _LINE in environment:
        line = environment[_LINE]
        words = _split(line)
        begun = [] if line.endswith(" ") or len(words) < 2 else words[-1:]
        placed = place_options(tree, words[1 : len(words) - len(begun)])
        environment[_LINE] = shlex.join([*words[:1], *placed, *begun]) + ("" if begun else " ")


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        # A quotation that is still open.
        return line.split()
