"""Credentials of listeners, reloaded when their files change.

Faults in a file are reported to the operator in detail; a caller only sees a failed handshake. Files that change while
the server runs are used for new connections, if they are complete and valid. Until then the old ones serve. This covers
the time between the two steps of a rotation that replaces key and certificate one after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, Protocol

import structlog

from coordinator_runtime.clock import Clock
from coordinator_server.file_signature import FileSignature, signature_of
from coordinator_server.regular_looks import RegularLooks
from coordinator_server.security.tls import ClientAuth, Credentials, TlsFiles, TlsRefused

LOOK_SECONDS: Final = 1.0
"""Interval of the checks of the files. A check without changes costs a few microseconds."""

_log = structlog.get_logger("tls")

_Signature = tuple[FileSignature | None, ...]
"""Values that change when a file is replaced or rewritten."""


class ReloadingCredentials:
    """The newest valid credentials of one listener."""

    def __init__(self, files: TlsFiles, clock: Clock) -> None:
        """Read the files. Raises TlsRefused."""
        self._files = files
        self._clock = clock
        self._seen = _signature(files)
        self._lock = threading.Lock()
        self._has_expired = False
        self.handshakes = 0
        """Handshakes that began with them."""
        self.current = _read(files, clock.wall_ms())
        self.on_changed: Callable[[Credentials], None] = lambda _new: None
        """Called with new credentials before they are used, on the checking thread. If it raises ValueError they are
        not used."""
        self.refusal: str | None = None
        """Reason for which the current files are not used; None if they are used."""

    @property
    def files(self) -> TlsFiles:
        return self._files

    @property
    def client_auth(self) -> ClientAuth:
        return self._files.client_auth

    def count_handshake(self) -> None:
        """Count a handshake that begins. On any thread."""
        with self._lock:
            self.handshakes += 1

    def look(self) -> None:
        """Reload the files if they have changed and are valid. Reads files."""
        now_ms = self._clock.wall_ms()
        signature = _signature(self._files)
        # Refused files are tried again: a certificate may become valid without a change.
        if signature != self._seen or self.refusal is not None:
            self._seen = signature
            self._read_again(now_ms)
        if self.current.ends_ms <= now_ms and not self._has_expired:
            self._has_expired = True
            _log.error(
                "certificate_expired",
                file=str(self._files.certificate_file),
                advice="callers refuse it: replace the file, and it is used at once",
            )

    def _read_again(self, now_ms: int) -> None:
        try:
            found = _read(self._files, now_ms)
        except TlsRefused as refusal:
            self._refuse(str(refusal))
            return
        if found == self.current:
            self.refusal = None
            return
        try:
            self.on_changed(found)
        except ValueError as error:
            self._refuse(str(error))
            return
        self.refusal = None
        self.current = found
        self._has_expired = False
        _log.info(
            "credentials_changed",
            file=str(self._files.certificate_file),
            expires=datetime.fromtimestamp(found.ends_ms / 1000, UTC).isoformat(),
        )

    def _refuse(self, reason: str) -> None:
        if reason != self.refusal:
            self.refusal = reason
            _log.warning("credentials_refused", reason=reason, advice="the old ones serve until these are right")


class Taken:
    """The credentials that one endpoint of TLS uses for its handshakes."""

    def __init__(self, credentials: ReloadingCredentials) -> None:
        self._credentials = credentials
        self.current = credentials.current

    def renew(self) -> bool:
        """Take the newest credentials. Return True if they are new. Call it for each handshake that begins. On any
        thread, without waiting for a disk."""
        self._credentials.count_handshake()
        newest = self._credentials.current
        is_new = newest is not self.current
        self.current = newest
        return is_new


def _signature(files: TlsFiles) -> _Signature:
    return tuple(
        signature_of(file)
        for file in (files.certificate_file, files.key_file, files.client_ca_file)
        if file is not None
    )


def _read(files: TlsFiles, now_ms: int) -> Credentials:
    from coordinator_server.security.certificates import read_credentials  # Late: its library takes 9 MB of memory.

    return read_credentials(files, now_ms)


class Reloading(Protocol):
    """Something that is reloaded from files."""

    def look(self) -> None:
        """Reload the files if they have changed and are valid. Reads files."""


class CredentialsWatch:
    """Checks the files of certificates and tokens at regular intervals."""

    def __init__(self, reloading: Sequence[Reloading]) -> None:
        self._reloading = reloading
        self._looks = RegularLooks(self._look_at_all, LOOK_SECONDS)

    def start(self) -> None:
        """Check until `stop`."""
        if self._reloading:
            self._looks.start()

    def stop(self) -> None:
        """Check no more."""
        self._looks.stop()

    def _look_at_all(self) -> None:
        for each in self._reloading:
            each.look()
