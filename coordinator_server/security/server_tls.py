"""TLS of a listener by Python's own library, with the newest files for each handshake."""

from __future__ import annotations

import ssl

import structlog

from coordinator_server.security.reloading_credentials import ReloadingCredentials, Taken
from coordinator_server.security.tls import ClientAuth

_log = structlog.get_logger("tls")


class NewestContext:
    """The TLS context of the newest files of a listener."""

    def __init__(self, credentials: ReloadingCredentials) -> None:
        """Read the files. Raises OSError."""
        self._credentials = credentials
        self._taken = Taken(credentials)
        self._context = server_context(credentials)

    def of_handshake(self) -> ssl.SSLContext:
        """Return the context for a handshake that begins, and count it."""
        if self._taken.renew():
            try:
                self._context = server_context(self._credentials)
            except OSError as error:
                # The files have changed once more since they were checked. They will be checked again.
                _log.warning("credentials_refused", reason=str(error), advice="the old ones serve")
        return self._context


def server_context(reloading: ReloadingCredentials) -> ssl.SSLContext:
    """Make a TLS context of the files as they are. Raises OSError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(reloading.files.certificate_file, reloading.files.key_file)
    if reloading.current.client_ca is not None:
        context.load_verify_locations(cadata=reloading.current.client_ca.decode("ascii", "replace"))
        is_required = reloading.client_auth is ClientAuth.REQUIRED
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
    return context


def reloading_context(credentials: ReloadingCredentials) -> ssl.SSLContext:
    """Return a context for a server that takes only one. Each handshake moves on to the newest. Raises OSError."""
    newest = NewestContext(credentials)
    entry = server_context(credentials)

    def move_on(connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _entry: ssl.SSLContext) -> None:
        connection.context = newest.of_handshake()

    # Called for every handshake, whether the caller names a server or not.
    entry.sni_callback = move_on
    return entry
