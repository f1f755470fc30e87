"""Settings of callers: listeners, authentication, and quotas."""

from __future__ import annotations

import re
from typing import Final

from pydantic_settings import BaseSettings, SettingsConfigDict

from coordinator_protocol.acls import ANONYMOUS
from coordinator_runtime.clock import Clock
from coordinator_server.addresses import AddressText, ListenText
from coordinator_server.listeners import (
    AuthenticationText,
    KafkaListener,
    Listener,
    PrincipalText,
    checked_principal,
    why_unsafe,
)
from coordinator_server.security.authentication import AuthenticationMethod, JwtRules, NameRule, NameSource
from coordinator_server.security.tls import ClientAuth
from coordinator_server.settings.setting_types import MoreKafkaListeners, MoreListeners, Positive
from coordinator_server.traffic.quotas.opening import Quotas
from coordinator_server.validation import SettingPath

ENVIRONMENT_PREFIX: Final = "TXN_"
METRICS_PREFIX: Final = "metrics_"
"""Prefix of the settings of the listener for metrics."""
KAFKA_PREFIX: Final = "kafka_"
"""Prefix of the settings of the first listener for Kafka's protocol."""


class AccessConfig(BaseSettings):
    """The part of `Config` that is about callers."""

    # Deferred, because only `Config` is instantiated, not the parts that it inherits from: a server starts sooner.
    model_config = SettingsConfigDict(
        defer_build=True, env_prefix=ENVIRONMENT_PREFIX, extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    listen: ListenText = "127.0.0.1:7070"
    """HOST:PORT that the gRPC server listens on; port 0 takes a free one. Any host but a loopback one is open to other
    machines, so it needs TLS and authentication, or `insecure`. It may also be unix:PATH, a Unix socket with mode 0600.
    Then only root and the user that runs the server can connect, until the mode of the file is changed. Put it into a
    directory with mode 0700, too."""

    tls_certificate_file: SettingPath | None = None
    """PEM file with the certificate of the server, then those between it and the CA. With it, `listen` speaks TLS (1.2
    or 1.3) and nothing else. This and the other files are checked every second. Once all of them are valid after a
    change, new connections use them, and open ones go on."""

    tls_key_file: SettingPath | None = None
    """PEM file with the key of that certificate, without a passphrase. Give it mode 0600."""

    tls_client_ca_file: SettingPath | None = None
    """PEM file with the CA certificates that sign those of callers (mTLS). Set together with tls_client_auth."""

    tls_client_auth: ClientAuth = ClientAuth.NONE
    """Policy on the certificates of callers. `none`: callers show none. `requested`: optional, but one that is shown
    must be valid (with the compiled transport only). `required`: no caller connects without one."""

    authentication: AuthenticationText = ""
    """Credentials that callers of `listen` can show, separated by commas. `certificate` needs tls_client_auth =
    required, or requested if others show tokens. `token` needs TLS and tokens_file. `jwt` needs TLS and
    jwt_key_set_file. A caller without valid credentials is refused. Empty: no authentication."""

    principal: PrincipalText = ANONYMOUS
    """Principal of all callers of `listen` without authentication: the `User:NAME` that ACLs and quotas refer to. As
    soon as one listener has authentication, ACLs apply on all, also to this name."""

    tokens_file: SettingPath | None = None
    """TOML file with the tokens of callers, as hashes; `txnctl token create` makes them. Checked for changes every
    second."""

    jwt_key_set_file: SettingPath | None = None
    """JSON file with the public keys (JWKS) that verify JSON Web Tokens of callers; for authentication = jwt, together
    with jwt_issuer and jwt_audience. Nothing is fetched. Checked for changes every second. Algorithms: RS256, PS256,
    ES256, EdDSA."""

    jwt_issuer: str | None = None
    """Required `iss` of JSON Web Tokens."""

    jwt_audience: str | None = None
    """Required `aud` of JSON Web Tokens: the name of this server at their issuer."""

    jwt_principal_claim: str = "sub"
    """Claim of a JSON Web Token that is the name in `User:NAME`."""

    principal_source: NameSource = NameSource.SUBJECT
    """Field of a caller's certificate that names its principal. It is subject (such as CN=etl,O=Example), cn, or one of
    the subject alternative names: uri, dns, email. A certificate with none or several of them is refused."""

    principal_pattern: str | None = None
    """Regular expression that the whole name must match; its first group is the name in `User:NAME`. Names that do not
    match are ignored. Not set: the whole name is taken."""

    quotas_file: SettingPath | None = None
    """TOML file with the quotas of principals and their clients (docs/quotas.md). Checked for changes every second. Not
    set: rates are unlimited. With authentication, the amounts that a principal may hold have built-in limits."""

    super_users: str = ""
    """Principals that may do everything whatever the ACLs say, separated by semicolons: User:NAME;... Empty: with
    authentication no caller may make the first ACL."""

    insecure: bool = False
    """Permit listeners without TLS, or without authentication, that other machines can reach. Not set: the server
    refuses to start with one. Set: anyone who reaches the address may read and change everything. This is logged, and
    txn_insecure_listeners counts it. Only for networks in which everyone may do that."""

    listeners: MoreListeners = ()
    """Further addresses to listen on, each with its own TLS: tables `[[listeners]]`, or the same as a list in JSON.
    Their settings are listen, tls_certificate_file, tls_key_file, tls_client_ca_file, tls_client_auth, authentication
    and principal. No values are taken over from those of `listen`. All listeners share `connections_max` evenly:
    with one more, each has half."""

    kafka_listen: AddressText | None = None
    """HOST:PORT for clients of Kafka's protocol (docs/kafka.md); port 0 takes a free one. Not set: no such listener.
    Any host but a loopback one needs TLS and authentication, or `insecure`."""

    kafka_advertised: AddressText | None = None
    """HOST:PORT that clients of `kafka_listen` get, and use after their first connection, if it differs from
    `kafka_listen`. It does behind a proxy, in a container, or with 0.0.0.0."""

    kafka_tls_certificate_file: SettingPath | None = None
    """PEM file with the certificate of `kafka_listen`, which then speaks TLS only; as tls_certificate_file."""

    kafka_tls_key_file: SettingPath | None = None
    """PEM file with the key of that certificate."""

    kafka_tls_client_ca_file: SettingPath | None = None
    """PEM file with the CA certificates that sign those of clients (mTLS)."""

    kafka_tls_client_auth: ClientAuth = ClientAuth.NONE
    """Policy on the certificates of clients; as tls_client_auth."""

    kafka_authentication: AuthenticationText = ""
    """Credentials that clients of `kafka_listen` can show, separated by commas; as authentication. `token`: SASL
    PLAIN, with any user name and the token as password. `scram`: SCRAM-SHA-256, with the id of the token as user name.
    `jwt`: OAUTHBEARER. All of these need TLS, except on a loopback host."""

    kafka_principal: PrincipalText = ANONYMOUS
    """Principal of all clients of `kafka_listen` without authentication; as principal."""

    kafka_listeners: MoreKafkaListeners = ()
    """Further addresses for Kafka's protocol: tables `[[kafka_listeners]]`, or the same as a list in JSON. They have
    the settings of `listeners`, and advertised."""

    kafka_connections_max: Positive = 2_000
    """Maximum number of connections of Kafka's clients, which open several each. Further ones are closed at once. All
    such listeners share it evenly. Too small: clients are kept out. Too large: each may hold memory for a request."""

    kafka_auto_create_topics: bool = False
    """Create a topic when a Kafka client asks for its metadata and allows that, as most producers do. The client needs
    the permission to create it. Not set: such a client gets UNKNOWN_TOPIC_OR_PARTITION. Set: a mistyped name makes a
    topic, which stays."""

    kafka_auto_create_partitions: Positive = 1
    """Number of partitions of a topic that a Kafka client creates without a number of its own, or that is created for
    it. Too small: few consumers can share the topic. Too large: each idle partition costs memory."""

    def all_listeners(self) -> tuple[Listener, ...]:
        """Return all listeners, that of `listen` first."""
        own = self.model_dump(include=set(Listener.model_fields))
        return (Listener.model_construct(**own), *self.listeners)

    def check_kafka_settings(self) -> None:
        """Refuse settings of `kafka_listen` if it is not set: they would have no effect. Raises ValueError."""
        if self.kafka_listen is not None:
            return
        for name, field in KafkaListener.model_fields.items():
            setting = KAFKA_PREFIX + name
            if name != "listen" and getattr(self, setting) != field.default:
                raise ValueError(f"{setting} is set, and kafka_listen is not: set kafka_listen = HOST:PORT, too")

    def all_kafka_listeners(self) -> tuple[KafkaListener, ...]:
        """Return all listeners for Kafka's protocol, that of `kafka_listen` first."""
        if self.kafka_listen is None:
            return self.kafka_listeners
        own = {name: getattr(self, KAFKA_PREFIX + name) for name in KafkaListener.model_fields}
        return (KafkaListener.model_construct(**own), *self.kafka_listeners)

    def listeners_of_all_fronts(self) -> tuple[Listener, ...]:
        """Return the listeners of callers, whatever protocol they speak."""
        return (*self.all_listeners(), *self.all_kafka_listeners())

    def check_identities(self) -> None:
        of_tokens = {AuthenticationMethod.TOKEN, AuthenticationMethod.SCRAM}
        asks_for_tokens = any(of_tokens & each.methods for each in self.listeners_of_all_fronts())
        if asks_for_tokens and self.tokens_file is None:
            raise ValueError("authentication = token needs tokens_file; `txnctl token create` makes tokens")
        given = (self.jwt_key_set_file, self.jwt_issuer, self.jwt_audience)
        if any(given) and not all(given):
            raise ValueError("jwt_key_set_file, jwt_issuer and jwt_audience go together: set all of them")
        if any(AuthenticationMethod.JWT in each.methods for each in self.listeners_of_all_fronts()) and not all(given):
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
        """Return the principals that no ACL restricts."""
        return tuple(name.strip() for name in self.super_users.split(";") if name.strip())

    def jwt_rules(self) -> JwtRules | None:
        """Return the conditions of valid JSON Web Tokens; None if none are accepted."""
        if self.jwt_key_set_file is None or self.jwt_issuer is None or self.jwt_audience is None:
            return None
        return JwtRules(self.jwt_key_set_file, self.jwt_issuer, self.jwt_audience, self.jwt_principal_claim)

    def quotas(self, clock: Clock) -> Quotas:
        """Return the quotas of callers. Raises QuotasRefused."""
        listeners = self.listeners_of_all_fronts()
        unasked = (each.principal for each in listeners if not each.methods)
        return Quotas.read(
            self.quotas_file,
            clock,
            are_callers_asked=any(each.methods for each in listeners),
            unbound=(*self.super_user_names(), *unasked),
        )

    def name_rule(self) -> NameRule:
        """Return the rule by which certificates name principals."""
        return NameRule(self.principal_source, self.principal_pattern)

    def check_safety(self, listener: Listener, prefix: str) -> None:
        problem = None if self.insecure else why_unsafe(listener, is_asking=prefix != METRICS_PREFIX)
        if problem is not None:
            missing = f"{prefix}tls_certificate_file and {prefix}tls_key_file"
            if listener.tls_certificate_file is not None:
                missing = "authentication"
            raise ValueError(
                f"{prefix}listen = {listener.listen}: {problem}; set {missing},"
                " listen on 127.0.0.1, or accept it with --insecure (insecure = true)"
            )
