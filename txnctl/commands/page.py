"""`txnctl page`: a read-only page of a running server for the browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.options import DEFAULT_SERVER, SERVER_TLS, Server
from txnctl.commands.page_process import DEFAULT_LISTEN, MISSING, is_page_installed

if TYPE_CHECKING:
    from txnctl.page.serving import PageAddress


def page(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address of the page; port 0 takes a free one.")
    ] = DEFAULT_LISTEN,
    names: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="HOST", help="Further host name under which browsers call it; repeatable."),
    ] = None,
    certificate_file: Annotated[
        str | None,
        typer.Option("--page-certificate-file", metavar="FILE", help="Certificate of the page in PEM, for HTTPS."),
    ] = None,
    key_file: Annotated[
        str | None, typer.Option("--page-key-file", metavar="FILE", help="Private key of that certificate.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen without HTTPS on an address that other machines can reach.")
    ] = False,
    is_leashed: Annotated[bool, typer.Option("--leash", hidden=True, help="End when standard input ends.")] = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    """Serve a read-only page of a running server for the browser.

    With --tls-ca-file every user logs in with a token or a certificate, and sees what that allows. Ends with status 0
    after SIGTERM or Ctrl-C, 4 if the address is refused.
    """
    if not is_page_installed():
        raise CommandFailed(ExitStatus.USAGE, MISSING)
    from txnctl.page.logins import ServerAddress
    from txnctl.page.serving import serve_page

    tls = SERVER_TLS.get()
    if tls.certificate_file or tls.token_file:
        raise CommandFailed(
            ExitStatus.USAGE,
            "the page shows each user what that user may see, and has no credentials of its own: leave out "
            "--token-file and --tls-certificate-file, and log in on the page",
        )
    place = _place(listen, names or [], certificate_file, key_file, is_insecure=insecure)
    try:
        serve_page(
            ServerAddress(server, tls.ca_file, tls.server_name),
            place,
            lambda address: typer.echo(f"txnctl page: {address} shows the server on {server}"),
            is_leashed=is_leashed,
        )
    except OSError as error:
        raise CommandFailed(
            ExitStatus.ADDRESS_REFUSED, f"cannot listen on {listen}: {error.strerror or error}; choose another --listen"
        ) from error


def _place(
    listen: str, names: list[str], certificate_file: str | None, key_file: str | None, *, is_insecure: bool
) -> PageAddress:
    from coordinator_server.addresses import is_local, parse_address
    from txnctl.page.serving import PageAddress

    try:
        address = parse_address(listen)
    except ValueError as error:
        raise CommandFailed(ExitStatus.USAGE, f"--listen: {error}") from error
    if (certificate_file is None) != (key_file is None):
        raise CommandFailed(ExitStatus.USAGE, "--page-certificate-file and --page-key-file go together")
    if not is_local(address.host) and certificate_file is None and not is_insecure:
        raise CommandFailed(
            ExitStatus.USAGE,
            f"other machines can reach {listen}, and read along what users send: name --page-certificate-file and "
            "--page-key-file, or say --insecure",
        )
    return PageAddress(
        host=address.host, port=address.port, names=names, certificate_file=certificate_file, key_file=key_file
    )
