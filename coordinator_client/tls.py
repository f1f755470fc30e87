"""TLS settings of a client: the CA that must have signed the server's certificate, and the client's own credentials.

The server is always verified, and there is no default CA: a program that trusts the public ones names the bundle of its
system. The files are read when a channel is opened, and again once they have changed.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Final, TypeAlias

from coordinator_client.errors import misconfigured
from coordinator_protocol.errors import ErrorCode

FileName: TypeAlias = str | PathLike[str]

ALPN: Final = "h2"
"""HTTP/2, the only protocol that gRPC speaks."""


class TlsProblem(Exception):
    """A file cannot be used. The message names the file, the reason and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS settings for the server. It holds only names of files, so it may be printed, pickled and logged.

    Raises at construction: Misconfigured if a file is missing, has the wrong content, or does not fit the others.
    """

    ca_file: FileName
    """PEM file with the CA certificates, one of which must have signed the server's. For a server with a certificate of
    a public CA: the bundle of the system, such as /etc/ssl/certs/ca-certificates.crt."""

    certificate_file: FileName | None = None
    """PEM file with the client's certificate, followed by those between it and the CA. For servers that require one;
    needs a key_file."""

    key_file: FileName | None = None
    """PEM file with the key of that certificate, without a passphrase."""

    server_name: str | None = None
    """Name that the certificate of the server must contain, if it is not the host of the endpoint."""

    token_file: FileName | None = None
    """File with the token that this client sends with every call, for servers that require one. It is never sent over a
    connection without TLS, and is read again when it changes."""

    def __post_init__(self) -> None:
        if (self.certificate_file is None) != (self.key_file is None):
            raise misconfigured(
                ErrorCode.INVALID_CONFIG, "certificate_file and key_file go together: a certificate needs its key"
            )
        try:
            new_context(self)
            if self.token_file is not None:
                read_token(self.token_file)
        except TlsProblem as problem:
            raise misconfigured(ErrorCode.INVALID_CONFIG, str(problem)) from problem

    @property
    def files(self) -> tuple[FileName, ...]:
        """The files that are named."""
        named = (self.ca_file, self.certificate_file, self.key_file, self.token_file)
        return tuple(file for file in named if file is not None)


def new_context(tls: Tls) -> ssl.SSLContext:
    """Return a context of Python's own TLS with the current content of the files. Raises: TlsProblem."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols([ALPN])
    try:
        context.load_verify_locations(cadata=read_file(tls.ca_file).decode("ascii", "replace"))
    except (ssl.SSLError, ValueError) as error:
        raise TlsProblem(
            f"{fspath(tls.ca_file)} holds no CA certificate in PEM (-----BEGIN CERTIFICATE-----)"
        ) from error
    if tls.certificate_file is not None and tls.key_file is not None:
        for file in (tls.certificate_file, tls.key_file):
            read_file(file)
        try:
            context.load_cert_chain(tls.certificate_file, tls.key_file, password=_refuse_passphrase)
        except ssl.SSLError as error:
            raise TlsProblem(_why_no_pair(tls, error)) from error
    return context


class _EncryptedKey(ssl.SSLError):
    """The key asks for a passphrase, which cannot be entered here."""


def _refuse_passphrase() -> str:
    raise _EncryptedKey


def _why_no_pair(tls: Tls, error: ssl.SSLError) -> str:
    certificate, key = tls.certificate_file, tls.key_file
    if isinstance(error, _EncryptedKey):
        return f"the key in {key} is encrypted: write it without a passphrase, readable by this user alone"
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"the key in {key} is not that of the certificate in {certificate}"
    return f"{certificate} and {key} do not hold a certificate and its key in PEM ({error.reason or error})"


def read_file(file: FileName) -> bytes:
    """Return the current content of the file. Raises: TlsProblem."""
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise TlsProblem(f"{fspath(file)} cannot be read: {error.strerror}") from error


def read_token(file: FileName) -> str:
    """Return the token that the file holds now. Raises: TlsProblem, which does not show it."""
    token = read_file(file).decode("ascii", "replace").strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise TlsProblem(f"{fspath(file)} holds no token: a token is one word, on one line")
    return token


Signature: TypeAlias = "tuple[tuple[int, int, int] | None, ...]"


def signature_of(tls: Tls) -> Signature:
    """Return a value that changes once one of the files is replaced, or rewritten."""
    return tuple(map(_file_signature, tls.files))


def _file_signature(file: FileName) -> tuple[int, int, int] | None:
    try:
        status = Path(file).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def why_no_handshake(error: ssl.SSLError, host: str) -> str:
    """Return an explanation of a failed handshake: the program that listens there, or this client's settings."""
    if isinstance(error, ssl.SSLCertVerificationError):
        match error.verify_code:
            case 62 | 64:
                return f"its certificate is not for {host}: name a host that is in it, or the server_name to expect"
            case 10:
                return "its certificate has expired: the server needs a new one"
            case 9:
                return "its certificate is not valid yet: compare the clocks"
            case _:
                return f"its certificate is not signed by the CA in the file given for it ({error.verify_message})"
    if error.reason in _NOT_TLS:
        return "what listens there does not speak TLS: leave the CA file out, if the network is to be trusted"
    return f"no TLS connection can be made: {error.reason or error}"


_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE", "HTTP_REQUEST"})


def why_silent(tls: Tls) -> str:
    """Return the meaning of a connection that the server ends after the handshake."""
    if tls.certificate_file is None:
        return "it ends the connection after the TLS handshake: it demands a certificate of its clients"
    return (
        f"it ends the connection after the TLS handshake: it does not accept the certificate in"
        f" {fspath(tls.certificate_file)}, which may be signed by another CA, or have expired"
    )
