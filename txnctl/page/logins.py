"""Users that are logged in, each with a connection of their own to the server.

The SDK reads credentials from files. So those of a login lie in a directory that only the user of this process may
enter, and are removed with it.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coordinator_client.clock import Clock, SystemClock
from coordinator_client.errors import Misconfigured
from coordinator_client.random_source import RandomSource, SystemRandomSource
from coordinator_client.tls import Tls
from txnctl.page.source import DEADLINE_MS, ServerSource

IDLE_MS_MAX: Final = 8 * 3_600_000
"""Time without a page after which a login ends. A page that refreshes itself keeps it."""
LOGINS_MAX: Final = 200
CREDENTIAL_LENGTH_MAX: Final = 64 * 1_024
_TOKEN_PREFIX: Final = "txl_"


class LoginRefused(Exception):
    """The credentials cannot be used. The message says why, and does not show them."""


@dataclass(slots=True)
class Login:
    """One user that is logged in."""

    name: str
    """Name of the credentials, for the user to recognise."""
    source: ServerSource
    directory: Path | None
    used_ms: int


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The server, and how it is verified."""

    endpoint: str
    ca_file: str | None = None
    server_name: str | None = None
    deadline_ms: int = DEADLINE_MS
    """Longest wait for an answer."""


class Logins:
    """All logins of this process."""

    def __init__(
        self, server: ServerAddress, clock: Clock | None = None, random_source: RandomSource | None = None
    ) -> None:
        self._server = server
        self._clock = clock or SystemClock()
        self._random = random_source or SystemRandomSource()
        self.directory = Path(tempfile.mkdtemp(prefix="txnctl-page-"))
        """Holds the credentials of all logins."""
        self._logins: dict[str, Login] = {}
        self.is_needed = server.ca_file is not None
        """False for a server without TLS, which cannot know its callers: then everyone shares one login."""
        if not self.is_needed:
            self._everyone: Login | None = Login("", ServerSource(server.endpoint, None, server.deadline_ms), None, 0)
        else:
            self._everyone = None

    def __len__(self) -> int:
        return len(self._logins)

    def find(self, cookie: str) -> Login | None:
        """Return the login of a cookie; None if there is none, or if it has ended."""
        if self._everyone is not None:
            return self._everyone
        login = self._logins.get(cookie)
        if login is None:
            return None
        now_ms = self._clock.monotonic_ms()
        if now_ms - login.used_ms > IDLE_MS_MAX:
            return None
        login.used_ms = now_ms
        return login

    def prepare(self, token: str, certificate: str, key: str, *, is_anonymous: bool = False) -> Login:
        """Return a login that is not open yet, for a look if the server accepts it. `is_anonymous`: without
        credentials, for a server that authenticates no caller. Raises LoginRefused."""
        if max(map(len, (token, certificate, key))) > CREDENTIAL_LENGTH_MAX:
            raise LoginRefused("these credentials are too long to be any")
        if bool(token) + bool(certificate or key) + is_anonymous != 1:
            raise LoginRefused("give a token, or a certificate with its key")
        directory = Path(tempfile.mkdtemp(dir=self.directory))
        try:
            tls = self._tls(directory, token, certificate, key)
        except Misconfigured as error:
            shutil.rmtree(directory, ignore_errors=True)
            raise LoginRefused(_without_paths(error.reason, directory)) from error
        name = _token_name(token) if token else "without credentials" if is_anonymous else "certificate"
        source = ServerSource(self._server.endpoint, tls, self._server.deadline_ms)
        return Login(name, source, directory, self._clock.monotonic_ms())

    def _tls(self, directory: Path, token: str, certificate: str, key: str) -> Tls:
        assert self._server.ca_file is not None, "without TLS there is no login"
        files = {}
        for name, content in (("token_file", token), ("certificate_file", certificate), ("key_file", key)):
            if content:
                path = directory / name
                path.touch(mode=0o600)
                path.write_text(content.strip() + "\n")
                files[name] = path
        return Tls(ca_file=self._server.ca_file, server_name=self._server.server_name, **files)

    async def open(self, login: Login) -> str:
        """Keep a login, and return the value of its cookie."""
        now_ms = self._clock.monotonic_ms()
        for cookie, known in list(self._logins.items()):
            if now_ms - known.used_ms > IDLE_MS_MAX:
                await self.end(cookie)
        if len(self._logins) >= LOGINS_MAX:
            await self.end(min(self._logins, key=lambda cookie: self._logins[cookie].used_ms))
        cookie = (self._random.request_id() + self._random.request_id()).hex()
        self._logins[cookie] = login
        return cookie

    async def end(self, cookie: str) -> None:
        """Forget a login with its credentials."""
        login = self._logins.pop(cookie, None)
        if login is not None:
            await drop(login)

    async def close(self) -> None:
        """Forget all logins."""
        for cookie in list(self._logins):
            await self.end(cookie)
        if self._everyone is not None:
            await self._everyone.source.close()
        shutil.rmtree(self.directory, ignore_errors=True)


async def drop(login: Login) -> None:
    """Close the connection of a login, and remove its credentials."""
    await login.source.close()
    if login.directory is not None:
        shutil.rmtree(login.directory, ignore_errors=True)


def _token_name(token: str) -> str:
    """Return the id in a token of this product."""
    stripped = token.strip().removeprefix(_TOKEN_PREFIX)
    name, underscore, _secret = stripped.rpartition("_")
    return f"token {name}" if underscore and stripped != token.strip() and len(name) <= 100 else "token"


def _without_paths(reason: str, directory: Path) -> str:
    return (
        reason.replace(f"{directory}/token_file", "the token")
        .replace(f"{directory}/certificate_file", "the certificate")
        .replace(f"{directory}/key_file", "the key")
    )
