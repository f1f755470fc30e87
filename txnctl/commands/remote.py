"""Connection from a command to a running server. Every failure becomes a message for the person at the terminal."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from coordinator_client.admin.admin import Admin, TopicDescription
from coordinator_client.calls import Deadlines, ReplyT, RequestT, Rpc
from coordinator_client.clock import SystemClock
from coordinator_client.errors import (
    Fenced,
    Loss,
    Misconfigured,
    OutcomeUnknown,
    Rejected,
    Retriable,
    TransactionError,
)
from coordinator_client.tls import Tls
from coordinator_client.transport.connection import Connection
from coordinator_client.transport.first_contact import GIVE_UP_MS
from coordinator_client.transport.grpc_library import grpc
from coordinator_client.transport.grpc_transport import UnaryTransport, cached_channel
from coordinator_client.transport.known_servers import addresses_of, followed_servers
from coordinator_client.transport.server_look import look_at
from coordinator_client.transport.transport import UNIX_SCHEMES
from coordinator_protocol.errors import ErrorCode
from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.options import SERVER_TLS, SERVER_VARIABLE, SERVER_WAIT
from txnctl.commands.waiting import SERVICE, Look, look_for_work, wait_while
from txnctl.output import end_if_reader_left, print_note

CLIENT_ID = "txnctl"
"""Client id that the server writes to its history."""


class PrintingTransport(UnaryTransport):
    """Transport for commands that print records as they read. Sends no more requests once the reader of stdout is
    gone."""

    def ask(self, rpc: Rpc[RequestT, ReplyT], request: RequestT, *, timeout_ms: int) -> ReplyT | Loss:
        end_if_reader_left()
        return super().ask(rpc, request, timeout_ms=timeout_ms)


@contextmanager
def connected(server: str, transport: type[UnaryTransport] = UnaryTransport) -> Iterator[Connection]:
    """Open a connection to the server, and close it at the end. Errors inside the block are raised as CommandFailed."""
    check_address(server)
    tls = tls_for(server)
    servers = followed_servers(server, tls, SystemClock().monotonic_ms())
    connection = Connection(
        server, client_id=CLIENT_ID, tls=tls, open_transport=partial(transport, tls=tls), servers=servers
    )
    with failures_in_words(server), connection:
        check_reachable(server)
        yield connection


def check_address(server: str) -> None:
    """Raise CommandFailed for an invalid address and for unusable TLS files."""
    try:
        Connection(server, tls=tls_for(server))
    except Rejected as refusal:
        raise CommandFailed(ExitStatus.USAGE, refusal.reason) from refusal


def tls_for(server: str) -> Tls | None:
    """Return the TLS settings for the server from the options of `txnctl`; None for a Unix socket. Raises
    CommandFailed."""
    given = SERVER_TLS.get()
    if given.ca_file is None or server.startswith(UNIX_SCHEMES):
        return None
    try:
        return Tls(
            ca_file=given.ca_file,
            certificate_file=given.certificate_file,
            key_file=given.key_file,
            server_name=given.server_name,
            token_file=given.token_file,
        )
    except Misconfigured as refusal:
        raise CommandFailed(ExitStatus.USAGE, refusal.reason) from refusal


@contextmanager
def open_channel(server: str) -> Iterator[grpc.Channel]:
    """Open a plain gRPC channel to the server, for services outside our API. Raises CommandFailed."""
    kept = cached_channel(server, tls_for(server))
    try:
        yield kept.current()
    finally:
        kept.close()


@contextmanager
def failures_in_words(server: str) -> Iterator[None]:
    """Turn errors of the client into one message and an exit status. Raises CommandFailed."""
    try:
        yield
    except TransactionError as error:
        raise CommandFailed(_status_of(error), _message_of(error, server)) from error


def deadlines(timeout_ms: int) -> Deadlines:
    """Return the deadlines of a request of a command: each attempt may take the whole timeout."""
    return Deadlines(total_ms=max(1, timeout_ms), attempt_ms=max(1, timeout_ms))


def topic_there(connection: Connection, name: str, timeout_ms: int) -> TopicDescription:
    """Return the topic. Raises CommandFailed if it does not exist, and suggests the closest name."""
    with Admin(connection, deadline_ms=timeout_ms) as admin:
        try:
            return admin.describe_topic(name)
        except Rejected as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            names = [topic.name for topic in admin.describe_topics()]
            near = difflib.get_close_matches(name, names, n=1)
            advice = (
                f"did you mean {near[0]}?" if near else "`txnctl topic list` shows all, `txnctl topic create` makes one"
            )
            message = f"there is no topic {name!r} on {connection.endpoint}; {advice}"
            raise CommandFailed(ExitStatus.PROBLEM, message) from error


def check_reachable(server: str, timeout_ms: int = GIVE_UP_MS, *, service: str = SERVICE) -> str:
    """Return the address of the server that answers; of several the first whose `service` takes work, or the first if
    none does. With `--wait`, also wait for one that takes work, until the time is over.

    Raises CommandFailed if no server answers. Without `--wait` it does so at once, while gRPC would retry until the
    deadline."""
    reaches = {address: _reach(address) for address in addresses_of(server)}
    wait_ms = round(SERVER_WAIT.get() * 1_000)
    if wait_ms:
        with ExitStack() as channels:
            looks = [
                look_for_work(address, reach, channels.enter_context(open_channel(address)), service)
                for address, reach in reaches.items()
            ]
            wait_while(partial(_problem_of_all, looks), wait_ms=wait_ms, clock=SystemClock(), note=print_note)
    look_ms = min(timeout_ms, GIVE_UP_MS)
    problems = {address: reach(look_ms) for address, reach in reaches.items()}
    answering = [address for address, problem in problems.items() if problem is None]
    if not answering:
        raise unreachable(server, "; ".join(dict.fromkeys(filter(None, problems.values()))))
    if len(answering) > 1:
        for address in answering:
            with open_channel(address) as channel:
                if look_for_work(address, reaches[address], channel, service)(look_ms) is None:
                    return address
    return answering[0]


def _reach(address: str) -> Look:
    look = look_at(address, SystemClock(), tls_for(address))
    return (lambda _timeout_ms: None) if look is None else look.now


def _problem_of_all(looks: Sequence[Look], timeout_ms: int) -> str | None:
    """Return None once one of the looks finds its server at work, else the problem of the last one."""
    problem: str | None = None
    for look in looks:
        problem = look(timeout_ms)
        if problem is None:
            return None
    return problem


def unreachable(server: str, why: str) -> CommandFailed:
    """Return the error to raise if no server answers."""
    return CommandFailed(
        ExitStatus.UNREACHABLE,
        f"no server answers at {server} ({why}): start one with `txnctl serve --data-dir DIR`, or name another with"
        f" --server or {SERVER_VARIABLE}; `txnctl --wait 30s ...` waits for one",
    )


def _status_of(error: TransactionError) -> ExitStatus:
    match error:
        case OutcomeUnknown():
            return ExitStatus.OUTCOME_UNKNOWN
        case Retriable():
            return ExitStatus.UNREACHABLE
        case _:
            return ExitStatus.PROBLEM


def error_name(code: int) -> str:
    """Return the name of an error code, or its number if this version does not know the code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"code {code}"


def _message_of(error: TransactionError, server: str) -> str:
    name = error_name(error.code)
    notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
    match error:
        case OutcomeUnknown():
            advice = "it may have been done nevertheless: look before you repeat it"
        case Retriable():
            advice = f"nothing was changed; see the log of the server at {server}, or try again with a longer --timeout"
        case Fenced():
            advice = "another producer took the transactional id over; nothing of this one counts"
        case _:
            advice = _ADVICE.get(error.code, "")
    return f"{error.reason}{notes} [{name}]" + (f"\n{advice}" if advice else "")


_ADVICE: dict[int, str] = {
    ErrorCode.TOPIC_ALREADY_EXISTS: "`txnctl topic describe` shows it; --if-not-exists is content with it",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "`txnctl list` shows the transactional ids that the server knows",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "--pattern is a regular expression for the whole id, as in 'billing-.*'",
    ErrorCode.UNSUPPORTED_VERSION: "server and txnctl differ in version, or another program listens there",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "the server does not allow this",
}
