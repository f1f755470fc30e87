"""Settings of who may connect, how, and how much of the service each may take."""

from __future__ import annotations

import re
from typing import Final

from pydantic_settings import BaseSettings, SettingsConfigDict

from coordinator_protocol.acls import ANONYMOUS
from coordinator_runtime.clock import Clock
from coordinator_server.addresses import ListenText
from coordinator_server.listeners import AuthenticationText, Listener, PrincipalText, checked_principal, why_unsafe
from coordinator_server.security.authentication import AuthenticationMethod, JwtRules, NameRule, NameSource
from coordinator_server.security.tls import ClientAuth
from coordinator_server.settings.setting_types import MoreListeners
from coordinator_server.traffic.quotas.opening import Quotas
from coordinator_server.validation import SettingPath

ENVIRONMENT_PREFIX: Final = "TXN_"


class AccessConfig(BaseSettings):
    """The part of `Config` that is about callers."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    listen: ListenText = "127.0.0.1:7070"
    """HOST:PORT that the gRPC server listens on; port 0 takes a free one. Anything but a loopback host lets others
    in, so it needs TLS, or `insecure`. Or unix:PATH, a Unix socket with mode 0600: only the user that runs the
    server can connect, until the mode of the file is changed. Put it into a directory with mode 0700, too."""

    tls_certificate_file: SettingPath | None = None
    """PEM file with the certificate of the server, then those between it and the CA; with it, `listen` speaks TLS (1.2
    or 1.3) and nothing else. It and the other files are looked at every second: once all of them are right again after
    a change, connections made from then on use them, and open ones go on."""

    tls_key_file: SettingPath | None = None
    """PEM file with the key of that certificate, without a passphrase: give it mode 0600."""

    tls_client_ca_file: SettingPath | None = None
    """PEM file with the CA certificates that sign those of callers (mTLS). Set together with tls_client_auth."""

    tls_client_auth: ClientAuth = ClientAuth.NONE
    """Whether callers show a certificate: none; requested, one that is shown must be right (with the compiled
    transport only); required, nobody connects without one."""

    authentication: AuthenticationText = ""
    """What callers of `listen` can show of themselves, with commas between: certificate (needs tls_client_auth =
    required, or requested where others show tokens), token (needs TLS and tokens_file), jwt (needs TLS and
    jwt_key_set_file). Who shows nothing that counts is refused. Empty: nobody is asked."""

    principal: PrincipalText = ANONYMOUS
    """Who callers of `listen` are where nobody is asked: the `User:NAME` that rules of access are about."""

    tokens_file: SettingPath | None = None
    """TOML file with the tokens of callers, as hashes: `txnctl token create` makes them. Looked at every second."""

    jwt_key_set_file: SettingPath | None = None
    """JSON file with the public keys (JWKS) that sign JSON Web Tokens of callers; for authentication = jwt, together
    with jwt_issuer and jwt_audience. Nothing is fetched; it is looked at every second. Algorithms: RS256, PS256, ES256,
    EdDSA."""

    jwt_issuer: str | None = None
    """The `iss` of tokens that count."""

    jwt_audience: str | None = None
    """The `aud` of tokens that count: this server, as their issuer knows it."""

    jwt_principal_claim: str = "sub"
    """The claim of a token that is the name in `User:NAME`."""

    principal_source: NameSource = NameSource.SUBJECT
    """What of a caller's certificate names its principal: subject (such as CN=etl,O=Example), cn, or, of the subject
    alternative names, uri, dns, email. A certificate with none or several of them is refused."""

    principal_pattern: str | None = None
    """Regular expression that all of that name must match; its first group is the name in `User:NAME`. Names that do
    not match are left out. Not set: the whole name is taken."""

    quotas_file: SettingPath | None = None
    """TOML file that says how much each principal, and each of its clients, may take (docs/quotas.md). Looked at every
    second. Not set: rates are unlimited, and what may be held has the bounds that are built in, where callers are
    asked who they are."""

    super_users: str = ""
    """Principals that may do everything whatever the rules of access say, with semicolons between: User:NAME;..."""

    insecure: bool = False
    """Whether to listen without TLS, or without asking who calls, where others than this machine can connect. Not set:
    such a start is refused. Set: whoever reaches the address may read and change everything; it is logged, and
    txn_insecure_listeners counts it. For networks in which everybody may do that."""

    listeners: MoreListeners = ()
    """More addresses to listen on beside `listen`, each with TLS of its own: tables `[[listeners]]` with the settings
    listen, tls_certificate_file, tls_key_file, tls_client_ca_file, tls_client_auth, authentication and principal, or
    the same as a list in JSON.
    Nothing is taken over from those of `listen`. All listeners share `connections_max` evenly."""

    def all_listeners(self) -> tuple[Listener, ...]:
        """Where the server listens, that of `listen` first."""
        own = self.model_dump(include=set(Listener.model_fields))
        return (Listener.model_construct(**own), *self.listeners)

    def check_identities(self) -> None:
        asks_for_tokens = any(AuthenticationMethod.TOKEN in each.methods for each in self.all_listeners())
        if asks_for_tokens and self.tokens_file is None:
            raise ValueError("authentication = token needs tokens_file; `txnctl token create` makes tokens")
        given = (self.jwt_key_set_file, self.jwt_issuer, self.jwt_audience)
        if any(given) and not all(given):
            raise ValueError("jwt_key_set_file, jwt_issuer and jwt_audience go together: set all of them")
        if any(AuthenticationMethod.JWT in each.methods for each in self.all_listeners()) and not all(given):
            raise ValueError("authentication = jwt needs jwt_key_set_file, jwt_issuer and jwt_audience")
        if self.principal_pattern is not None:
            try:
                re.compile(self.principal_pattern)
            except re.error as error:
                raise ValueError(f"principal_pattern is no regular expression: {error}") from error
        for name in self.super_user_names():
            try:
                checked_principal(name)
            except ValueError as error:
                raise ValueError(f"super_users = {self.super_users}: {error}") from error

    def super_user_names(self) -> tuple[str, ...]:
        """Those whom no rule binds."""
        return tuple(name.strip() for name in self.super_users.split(";") if name.strip())

    def jwt_rules(self) -> JwtRules | None:
        """Which JSON Web Tokens count; None: none do."""
        if self.jwt_key_set_file is None or self.jwt_issuer is None or self.jwt_audience is None:
            return None
        return JwtRules(self.jwt_key_set_file, self.jwt_issuer, self.jwt_audience, self.jwt_principal_claim)

    def quotas(self, clock: Clock) -> Quotas:
        """How much callers may take. Raises QuotasRefused."""
        listeners = self.all_listeners()
        unasked = (each.principal for each in listeners if not each.methods)
        return Quotas.read(
            self.quotas_file,
            clock,
            are_callers_asked=any(each.methods for each in listeners),
            unbound=(*self.super_user_names(), *unasked),
        )

    def name_rule(self) -> NameRule:
        """How certificates name principals."""
        return NameRule(self.principal_source, self.principal_pattern)

    def check_safety(self, listener: Listener, prefix: str) -> None:
        problem = None if self.insecure else why_unsafe(listener, is_asking=not prefix)
        if problem is not None:
            missing = f"{prefix}tls_certificate_file and {prefix}tls_key_file"
            if listener.tls_certificate_file is not None:
                missing = "authentication"
            raise ValueError(
                f"{prefix}listen = {listener.listen}: {problem}; set {missing},"
                " listen on 127.0.0.1, or accept it with --insecure (insecure = true)"
            )
