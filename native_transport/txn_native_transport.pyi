"""The compiled gRPC transport: tonic in one thread that never waits for Python.

Servers use `Server` (`coordinator_server.grpc_front.native_transport`), the SDK's sessions `Client`
(`coordinator_client.transport.native_channel`). The core uses `examine_batch`, `transaction_value` and `producer_rows`,
whichever transport its server has, and readers of Arrow use `join_arrow`.

An arrival is a tuple that begins with its kind and the token of its call or stream:

    (CALL, token, method, body, host, connection, ms_left, shown)
                                                a unary call; ms_left is None without a deadline; connection is a
                                                number; shown is what the caller shows of itself, (authorization,
                                                certificates): the metadata or None, and DER, its own first. shown is
                                                None where nobody is asked
    (STREAM, token, method, host, connection, shown)
                                                a stream began, on a server
    (CALLER, token, host, connection, shown)    somebody calls and shows this, for the first time on its connection:
                                                nothing of the call is read until REPLY, and END refuses it. A CALL or
                                                STREAM with a token of its own follows a REPLY
    (LEFT, connection)                          a connection of which there was a CALLER has ended
    (MESSAGE, token, body)                      a message of a stream, which used one credit
    (HALF_CLOSED, token)                        the caller of a stream sends no more, on a server
    (ROOM, token)                               a message sent with wants_room has left the queue; on a server, it was
                                                written
    (TAKEN, token)                              the answer given with wants_taken was written, or its caller is gone.
                                                The call has ended before
    (HARM, kind, details)                       something was refused or cut so that others are served: the host, or
                                                the system's words, or the host and what was wrong with its
                                                handshake. Said at most every ten seconds of each kind
    (GONE, token)                               the caller does not wait any more, on a server; nothing follows. Of a
                                                unary call that nobody took, neither CALL nor GONE comes
    (ANSWERED, token, body)                     the answer of a unary call, on a client: a `HeldBytes`. Nothing
                                                follows
    (ENDED, token, status, message)             a stream ended, or a unary call without an answer, on a client; status
                                                is gRPC's number. Nothing follows
    (STOPPED, failure)                          the I/O thread has ended; failure is None, or says why. Nothing follows

What is given is a tuple that begins in the same way. What comes for a call that has ended is dropped.

    (REPLY, token, body, wants_taken)           the answer of a unary call: bytes, or a list of bytes and of views,
                                                which are sent one after the other; large bytes, and large views
                                                of bytes, from where they lie
    (END, token, status, message)               the end of a call without an answer, or of a stream; status is gRPC's
                                                number, 0 where a stream ends well. A client cuts a stream or gives up a
                                                call so, whatever the status, and hears nothing more of it
    (SEND, token, body, wants_room)             a message of a stream
    (CREDIT, token, messages)                   so many more messages of a stream may come
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

INTERFACE: Final[int]
"""Which version of all this the module has."""

CALL: Final[int]
STREAM: Final[int]
MESSAGE: Final[int]
HALF_CLOSED: Final[int]
ROOM: Final[int]
GONE: Final[int]
STOPPED: Final[int]
ENDED: Final[int]
TAKEN: Final[int]
HARM: Final[int]
CALLER: Final[int]
ANSWERED: Final[int]
LEFT: Final[int]

REPLY: Final[int]
END: Final[int]
SEND: Final[int]
CREDIT: Final[int]

def examine_batch(covered: bytes, payload: bytes, counts: bool, /) -> tuple[bytes, int, int | None]:
    """The rest of a batch's header with the checksum, the checksum, and how many records the payload holds, as the
    message `Records`. `covered` is what the checksum covers besides the payload. None: `counts` is false, or it is no
    such message, or one of which versions of protobuf disagree whether it is; whoever needs to know must parse it."""

STORED_FIELDS: Final[Mapping[str, Sequence[str]]]
"""The classes of frozen values that `transaction_value` and `producer_rows` read, with the fields that they know. A
field that is not among them they would leave out."""

def transaction_value(transaction: object, cause: int, /) -> bytes:
    """The bytes of the message `TransactionValue` for a `Transaction`; `cause` is the number that its cause is stored
    as. Raises for what its field cannot hold."""

def producer_rows(ordinal: int, producers: Iterable[tuple[int, Any]], /) -> list[tuple[bytes, bytes]]:
    """Key and value of each producer's row in the partition with the ordinal, from producer ids and each one's
    `ProducerEntry`. Raises for what its place cannot hold."""

def join_arrow(
    asked: Sequence[tuple[memoryview, int, int, int]], wanted: tuple[bool, bool, bool], /
) -> tuple[HeldBytes, Sequence[tuple[int, tuple[int, int] | None, tuple[int, int] | None, tuple[int, int]]]] | None:
    """The wanted columns of Arrow v1 payloads, key, value and timestamp, joined: bytes that hold them, and of each
    column how many places are null and where its buffers lie, start and size: who is present (None: everybody), offsets
    (None: it has numbers) and data. Asked for is of each payload how many records it must hold, and from which up to,
    not including, which they are wanted. None: a payload is not as writers make it, is a view of what might change, or
    a column is too large to be one; Arrow can tell."""

class Server:
    """One server. It starts and stops once, and does not work in a forked child: RuntimeError."""

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
        strangers_max: int,
        unasked: Sequence[str] | None = None,
    ) -> None:
        """`streams` are the full names of the methods that are streams, and `unasked` of those that are for everybody;
        all others are for callers who are known (None: nobody is asked who calls). `stream_credit` is how many messages
        of a stream come before credit is given. Beyond the two limits for what waits for `take`, a new call is answered
        with RESOURCE_EXHAUSTED. A connection beyond `connections_max` is closed at once. `strangers_max` is how many
        connections may be open on which no caller is known yet, or, where nobody is asked, that have not shaken hands:
        beyond it the oldest of the host that has most of them is cut. `streams_max` is how many calls and streams of
        one connection may be open."""

    def fileno(self) -> int:
        """The descriptor that is readable while something waits for `take`."""

    def start(self, sockets: Sequence[int]) -> None:
        """Serve the listening TCP sockets of these descriptors. They must be detached, because they belong to the
        server from now on, and must not block."""

    def set_credentials(self, certificate: bytes, key: bytes, client_ca: bytes | None, is_required: bool) -> None:
        """Serve connections made from now on with TLS 1.2 or 1.3, with these PEM files; open ones go on as they are.
        With a CA, callers are asked for a certificate that it signed, and must show one if it `is_required`. The first
        time before `start`, later on any thread; ValueError for what cannot be used, which changes nothing."""

    def take(self, count: int) -> list[tuple[Any, ...]]:
        """Up to `count` arrivals. Unary calls come in turns, one of each connection, and no more than 64 of one; all
        else in the order in which it came."""

    def give(self, given: list[tuple[object, ...]]) -> None:
        """Hand over all of these, in this order."""

    def connections(self) -> tuple[int, int, list[tuple[str, int]]]:
        """How many are open, how many handshakes of TLS began, and for each kind of harm how often it was met. On
        any thread."""

    def stop(self, grace_ms: int) -> None:
        """Take no further calls, and cut what has not ended after the grace. STOPPED follows."""

class HeldBytes:
    """Bytes where they lie, such as an answer where it arrived: a read-only buffer (`memoryview`), which is not
    copied."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Client:
    """The streams and calls of one process to one server, over one connection. It does not work in a forked child:
    RuntimeError.

    The connection is made when it is first needed, and anew by the next stream or call after it broke."""

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
        """`address` is HOST:PORT; ValueError for what HTTP cannot name. `stream_credit` is as for a server."""

    def fileno(self) -> int:
        """As of a server."""

    def open(self, method: str) -> int:
        """Open a stream of the method with this full name, and return its token. What is sent waits for the
        connection; ENDED tells if there will be none."""

    def call(self, method: str, body: bytes, timeout_ms: int) -> int:
        """Make a unary call of the method with this full name, and return its token. ANSWERED or ENDED tells what
        became of it, after `timeout_ms` at the latest."""

    def take(self, count: int) -> list[tuple[Any, ...]]:
        """As of a server."""

    def give(self, given: list[tuple[object, ...]]) -> None:
        """As of a server."""

    def close(self) -> None:
        """Cut everything. No event follows that matters."""
