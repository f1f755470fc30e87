"""The compiled gRPC transport: tonic in one thread that never waits for Python.

Servers use `Server` (`coordinator_server.grpc_front.native_transport`), the SDK's sessions `Client`
(`coordinator_client.transport.native_channel`). The log uses `examine_batch` and the conversions with any transport of
its server.

An unauthenticated connection is one whose caller is not authenticated yet. The methods in `open_methods` are served
without authentication, such as health checks. In arrivals, `shown` are the credentials that the caller presents. ABUSE
is traffic that was refused or cut so that other callers are served.

An arrival is a tuple that begins with its kind and the token of its call or stream:

    (CALL, token, method, body, host, connection, ms_left, shown)
                                                a unary call. ms_left is None without a deadline; connection is a
                                                number. shown are the caller's credentials, (authorization,
                                                certificates): the metadata or None, and certificates in DER, the
                                                caller's own first. shown is None where callers need not authenticate
    (STREAM, token, method, host, connection, shown)
                                                a stream began, on a server
    (CALLER, token, host, connection, shown)    a caller with credentials that are new on its connection. Its call is
                                                not read until REPLY; END refuses it. A CALL or STREAM with a token
                                                of its own follows a REPLY
    (LEFT, connection)                          a connection with an earlier CALLER has ended
    (MESSAGE, token, body)                      a message of a stream, which used one credit
    (HALF_CLOSED, token)                        the caller of a stream sends no more, on a server
    (SENT, token)                               a message sent with wants_sent has left the queue; on a server, it was
                                                written
    (TAKEN, token)                              the reply given with wants_taken was written, or its caller is gone.
                                                The call has ended before
    (ABUSE, kind, details)                       abuse: a request or connection was refused or cut so that others are
                                                served. details is the host, or the system's error, or the host and
                                                the error of its handshake. At most one in ten seconds of each kind
    (GONE, token)                               the caller does not wait any more, on a server; nothing follows. A
                                                unary call that was not taken yet has neither CALL nor GONE
    (ANSWERED, token, body)                     the answer of a unary call, on a client: a `HeldBytes`. Nothing
                                                follows
    (ENDED, token, status, message)             a stream ended, or a unary call without an answer, on a client; status
                                                is gRPC's number. Nothing follows
    (STOPPED, failure)                          the I/O thread has ended; failure is None or the reason. Nothing
                                                follows

An item that Python gives is a tuple that begins in the same way. Items for calls that have ended are dropped.

    (REPLY, token, body, wants_taken)           the reply of a unary call: bytes, or a list of bytes and of views,
                                                which are sent one after the other. Large bytes, and large views
                                                of bytes, are sent in place
    (END, token, status, message)               the end of a call without a reply, or of a stream; status is gRPC's
                                                number, 0 where a stream ends well. With it a client cuts a stream or
                                                gives up a call, with any status, and gets no more arrivals of it
    (SEND, token, body, wants_sent)             a message of a stream
    (CREDIT, token, messages)                   number of further messages of a stream that may come
"""

from collections.abc import Sequence
from typing import Any, Final

INTERFACE: Final[int]
"""Version of this interface; the adapter in Python refuses one that it does not know."""

CALL: Final[int]
STREAM: Final[int]
MESSAGE: Final[int]
HALF_CLOSED: Final[int]
SENT: Final[int]
GONE: Final[int]
STOPPED: Final[int]
ENDED: Final[int]
TAKEN: Final[int]
ABUSE: Final[int]
CALLER: Final[int]
ANSWERED: Final[int]
LEFT: Final[int]

REPLY: Final[int]
END: Final[int]
SEND: Final[int]
CREDIT: Final[int]

def examine_batch(covered: bytes, payload: bytes, items_max: int, /) -> tuple[bytes, int, int | None]:
    """Return the rest of a batch's header with the checksum, the checksum, and the number of records in the payload.

    `covered` is the part of the header from the attributes on. The payload is read as Kafka's records if that says so,
    else as a message `Records`. The number is None if `items_max` is 0, or if Kafka's records and headers are more than
    that together. It is also None if the payload is not what it is read as, or if only some versions of protobuf accept
    it. Then the caller must parse it."""

def kafka_of_records(
    plain: bytes, has_deltas: bool, record_count: int, last_offset_delta: int, base_timestamp_ms: int, /
) -> bytes | None:
    """Return the records of a message `Records`, unpacked, as those of a Kafka batch with this base timestamp.

    None if they are not so many, or do not lie at ascending offset deltas up to the last. It is also None if the
    payload is not such a message for all versions of protobuf. Then the caller must parse it."""

def kafka_of_arrow(
    plain: bytes,
    places: list[tuple[int, int]],
    null_counts: list[int],
    record_count: int,
    last_offset_delta: int,
    base_timestamp_ms: int,
    /,
) -> bytes | None:
    """Return the records of an Arrow payload, as `kafka_of_records`. `places` and `null_counts` are of
    `coordinator_protocol.arrow_payload.ArrowBuffers`, for so many rows."""

def records_of_kafka(
    plain: bytes, has_deltas: bool, record_count: int, last_offset_delta: int, base_timestamp_ms: int, /
) -> bytes | None:
    """Return the records of a Kafka batch, unpacked, as a message `Records`, each with its offset delta if
    `has_deltas`. None if they are no such records: see `kafka_of_records`."""

class Server:
    """One server. It starts and stops once. RuntimeError in a forked child."""

    def __init__(
        self,
        *,
        streams: Sequence[str],
        message_bytes_max: int,
        stream_credit: int,
        waiting_calls_max: int,
        waiting_bytes_max: int,
        keepalive_ms: int,
        keepalive_timeout_ms: int,
        connection_age_ms_max: int,
        connection_age_grace_ms: int,
        connections_max: int,
        streams_max: int,
        unauthenticated_max: int,
        open_methods: Sequence[str] | None = None,
    ) -> None:
        """`streams` are the full names of the methods that are streams. `open_methods` are those of the methods that
        need no authentication; None: this server authenticates no caller, so all methods are served.
        `stream_credit` is the number of messages of a stream that come before credit is given.

        `waiting_calls_max` and `waiting_bytes_max` limit the calls that wait for `take`, and the bytes of their
        requests; a new call beyond them is answered with RESOURCE_EXHAUSTED. A connection beyond `connections_max` is
        closed at once. `streams_max` limits the open calls and streams of one connection.

        `unauthenticated_max` limits the unauthenticated connections, on which no call was accepted yet. Without
        authentication, these are the connections before the end of the TLS handshake. Beyond the limit the oldest one
        of the host with the most of them is cut."""

    def fileno(self) -> int:
        """Return the descriptor that is readable while something waits for `take`."""

    def start(self, sockets: Sequence[int]) -> None:
        """Serve the listening TCP sockets of these descriptors. They belong to the server from now on, so they must be
        detached. They must not block."""

    def set_credentials(self, certificate: bytes, key: bytes, client_ca: bytes | None, is_required: bool) -> None:
        """Serve connections made from now on with TLS 1.2 or 1.3, with these PEM files; open ones go on unchanged.
        With a CA, callers are asked for a certificate that it signed, and must show one if `is_required`. The first
        call must precede `start`; later ones may come on any thread. ValueError for files that cannot be used; then
        nothing changes."""

    def take(self, count: int) -> list[tuple[Any, ...]]:
        """Return up to `count` arrivals. Unary calls come in turns, one of each connection, and no more than 16 of one.
        Other arrivals come first, in their order, and have at least half of `count` if they need it."""

    def give(self, given: list[tuple[object, ...]]) -> None:
        """Hand over all of these, in this order."""

    def connections(self) -> tuple[int, int, list[tuple[str, int]]]:
        """Return the number of open connections, of TLS handshakes begun, and of incidents of each kind of abuse. On
        any thread."""

    def stop(self, grace_ms: int) -> None:
        """Take no further calls, and cut those that have not ended after the grace. STOPPED follows."""

class HeldBytes:
    """Bytes in place, such as an answer in the buffer that it arrived in: a read-only buffer (`memoryview`), which is
    not copied."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Client:
    """The streams and calls of one process to one server, over one connection. RuntimeError in a forked child.

    The connection is made when it is first needed, and again by the next stream or call after it broke."""

    def __init__(
        self,
        address: str,
        *,
        message_bytes_max: int,
        stream_credit: int,
        keepalive_ms: int,
        keepalive_timeout_ms: int,
        connect_timeout_ms: int,
    ) -> None:
        """`address` is HOST:PORT; ValueError if it cannot be part of a URL. `stream_credit` is as for a server."""

    def fileno(self) -> int:
        """Return the descriptor, as `Server.fileno`."""

    def open(self, method: str) -> int:
        """Open a stream of the method with this full name, and return its token. Sent messages wait for the
        connection; ENDED follows if it cannot be made."""

    def call(self, method: str, body: bytes, timeout_ms: int) -> int:
        """Make a unary call of the method with this full name, and return its token. ANSWERED or ENDED follows, after
        `timeout_ms` at the latest."""

    def take(self, count: int) -> list[tuple[Any, ...]]:
        """Return up to `count` arrivals, as `Server.take`."""

    def give(self, given: list[tuple[object, ...]]) -> None:
        """Hand over all of these, in this order, as `Server.give`."""

    def close(self) -> None:
        """Cut everything. Later arrivals have no meaning."""
