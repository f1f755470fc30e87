"""One connection of a Kafka client: the order of answers, its bounds, its end, and what it refuses."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.pending import Pending, settled
from coordinator_server.kafka_front.apis import APIS, ApiKey
from coordinator_server.kafka_front.connection import FRAME_MS_MAX, IN_FLIGHT_MAX
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.frame_limits import UNAUTHENTICATED_BYTES_MAX
from coordinator_server.kafka_front.messages.heartbeat_response import HeartbeatResponse
from coordinator_server.security.authentication import (
    AuthenticationMethod,
    Authenticator,
    Proven,
    Reason,
    Unauthenticated,
)
from coordinator_server.security.scram import Verifier, verifier_of
from tests.harness.kafka_line import Line, frame, heartbeat
from tests.harness.manual_clock import ManualClock

API_VERSIONS_0 = frame(ApiKey.API_VERSIONS, 0, 7)


class OneToken:
    """Knows one token."""

    known = "txl_right"
    scram = verifier_of(known, b"salt")

    def of_token(self, token: str) -> str:
        if token != self.known:
            raise Unauthenticated(Reason.UNKNOWN_TOKEN)
        return "User:etl"

    def verifier(self, token_id: str) -> Verifier | None:
        return self.scram if token_id == "right" else None

    def of_proven(self, proven: Proven) -> str:
        if proven != Proven("right", self.scram):
            raise Unauthenticated(Reason.UNKNOWN_TOKEN)
        return "User:etl"


class WebTokens:
    """Knows JSON Web Tokens by their text, NAME@EXPIRY (Unix ms)."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def look(self) -> None:
        pass

    def is_known(self, token: str) -> bool:
        return "@" in token

    def ends_ms(self, token: str) -> int | None:
        return int(token.partition("@")[2]) if self.is_known(token) else None

    def of_token(self, token: str) -> str:
        name, at, ends_ms = token.partition("@")
        if not at:
            raise Unauthenticated(Reason.NO_JWT)
        if int(ends_ms) <= self._clock.wall_ms():
            raise Unauthenticated(Reason.EXPIRED_TOKEN)
        return f"User:{name}"


def asking_line() -> Line:
    clock = ManualClock()
    authenticator = Authenticator(clock, tokens=OneToken(), proven=OneToken(), jwts=WebTokens(clock))
    methods = frozenset({AuthenticationMethod.TOKEN, AuthenticationMethod.SCRAM, AuthenticationMethod.JWT})
    return Line(methods=methods, authenticator=authenticator, clock=clock)


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return frame(ApiKey.SASL_HANDSHAKE, version, 1, len(mechanism).to_bytes(2, "big") + mechanism.encode())


def raw(message: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message


def bearer(token: str) -> bytes:
    return b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"


def authenticate_by_jwt(line: Line, name: str, lasts_ms: int) -> tuple[int, int]:
    """Show a JSON Web Token in SaslAuthenticate version 1. Return error code and session lifetime."""
    token = bearer(f"{name}@{line.clock.wall_ms() + lasts_ms}")
    line.send(handshake("OAUTHBEARER"), frame(ApiKey.SASL_AUTHENTICATE, 1, 2, len(token).to_bytes(4, "big") + token))
    body = line.bodies()[-1]
    return int.from_bytes(body[4:6], "big"), int.from_bytes(body[-8:], "big")


def credentials(password: str) -> bytes:
    return sasl(b"\0anybody\0" + password.encode())


def sasl(message: bytes) -> bytes:
    return frame(ApiKey.SASL_AUTHENTICATE, 0, 2, len(message).to_bytes(4, "big") + message)


def prove(line: Line, user: str, password: str) -> tuple[int, bytes]:
    """Go through SCRAM. Return the error code and the last message of the server."""
    line.send(handshake("SCRAM-SHA-256"))
    bare = f"n={user},r=abc"
    line.send(sasl(f"n,,{bare}".encode()))
    sent = line.bodies()[-1][12:]
    fields = dict(part.split("=", 1) for part in sent.decode().split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    without_proof = f"c=biws,r={fields['r']}"
    signed = f"{bare},{sent.decode()},{without_proof}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))
    line.send(sasl(f"{without_proof},p=".encode() + proof))
    body = line.bodies()[-1]
    return int.from_bytes(body[4:6], "big"), body[12:]


async def test_answers_leave_in_the_order_of_the_requests() -> None:
    line = Line()
    line.send(heartbeat(1), heartbeat(2), heartbeat(3))
    assert len(line.begun) == 3, "all begin at once"
    line.answer(2)
    line.answer(1)
    assert line.answered() == []
    line.answer(0)
    assert line.answered() == [1, 2, 3]


async def test_requests_come_in_pieces_of_any_size() -> None:
    line = Line()
    for byte in heartbeat(1) + heartbeat(2):
        line.connection.data_received(bytes([byte]))
    assert len(line.begun) == 2


async def test_too_many_requests_in_flight_stop_the_reading_and_go_on_with_the_answers() -> None:
    line = Line()
    line.send(*(heartbeat(number) for number in range(IN_FLIGHT_MAX + 2)))
    assert len(line.begun) == IN_FLIGHT_MAX
    assert not line.transport.is_reading
    line.answer(0)
    line.answer(1)
    assert len(line.begun) == IN_FLIGHT_MAX + 2
    line.answer(2)
    assert line.transport.is_reading


async def test_a_client_that_is_gone_cancels_its_calls() -> None:
    line = Line()
    line.send(heartbeat(1), heartbeat(2))
    line.connection.connection_lost(None)
    assert all(reply.is_settled for _request, _exchange, reply in line.begun)
    assert line.gatekeeper.unanswered_calls == 0
    assert not line.service.open_connections
    assert line.connection.closed.done()


async def test_a_client_that_does_not_read_has_its_answers_counted_until_it_does() -> None:
    big = b"x" * 10_000
    handler = ApiHandler(lambda _request, _exchange: settled(big), lambda _request, _exchange, _error: big)
    line = Line(handlers={ApiKey.HEARTBEAT: handler})
    endpoint = line.service.endpoints[ApiKey.HEARTBEAT]
    object.__setattr__(endpoint, "encode", lambda response, _version: [response])
    line.connection.pause_writing()
    line.send(heartbeat(1), heartbeat(2))
    assert line.answers.held_bytes == 20_000
    assert line.answered() == []
    line.connection.resume_writing()
    assert line.answers.held_bytes == 0
    assert line.answered() == [1, 2]


async def test_a_connection_that_ends_releases_the_answers_that_it_did_not_take() -> None:
    big = b"x" * 10_000
    line = Line(handlers={ApiKey.HEARTBEAT: ApiHandler(lambda *_: settled(big), lambda *_: big)})
    object.__setattr__(line.service.endpoints[ApiKey.HEARTBEAT], "encode", lambda response, _version: [response])
    line.connection.pause_writing()
    line.send(heartbeat(1))
    line.connection.connection_lost(ConnectionResetError())
    assert line.answers.held_bytes == 0
    assert line.lost == ["kafka-1"]


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"GET / HTTP/1.1\r\n", "not_kafka"),
        (b"\x16\x03\x01\x02\x00\x01", "not_kafka"),
        (b"PRI * HTTP/2.0\r\n\r\n", "not_kafka"),
        (b"\x7f\xff\xff\xff", "not_kafka"),
        (b"\xff\xff\xff\xff", "not_kafka"),
        (b"\0\0\0\2\0\0", "not_kafka"),
        (frame(ApiKey.HEARTBEAT, 0, 1, b"\0\1g"), "not_kafka"),
        ((2 << 20).to_bytes(4, "big"), "kafka_large"),
        (frame(ApiKey.HEARTBEAT, 99, 1), "kafka_versions"),
        (frame(4, 0, 1), "kafka_versions"),
        (frame(ApiKey.PRODUCE, 2, 1), "kafka_versions"),
    ],
)
async def test_what_is_no_request_closes_the_connection_and_is_counted(start: bytes, kind: str) -> None:
    line = Line()
    line.send(start)
    assert line.transport.is_closed
    assert line.abuses.counts == {kind: 1}
    assert line.answered() == []


async def test_requests_before_a_bad_one_have_begun() -> None:
    line = Line()
    line.send(heartbeat(1), frame(4, 0, 2), heartbeat(3))
    assert len(line.begun) == 1
    assert line.transport.is_closed


async def test_a_version_of_api_versions_that_is_too_new_is_answered_in_version_0() -> None:
    line = Line()
    line.send(frame(ApiKey.API_VERSIONS, 99, 5, b"whatever it has"))
    (body,) = line.bodies()
    assert body == b"\0\0\0\5" + b"\0\x23" + b"\0\0\0\1" + b"\0\x12" + b"\0\0" + b"\0\4"
    assert not line.transport.is_closed


async def test_before_authentication_only_versions_and_sasl_are_served() -> None:
    line = asking_line()
    line.send(API_VERSIONS_0)
    assert line.answered() == [7]
    line.send(heartbeat(8))
    assert line.transport.is_closed
    assert not line.begun
    assert line.refusals == {Reason.NOTHING_SHOWN: 1}


async def test_a_token_is_the_password_of_plain() -> None:
    line = asking_line()
    line.send(handshake(), credentials("txl_right"))
    assert line.answered() == [1, 2]
    line.send(heartbeat(3))
    assert [exchange.context.principal for _request, exchange, _reply in line.begun] == ["User:etl"]
    assert all(timer.is_cancelled for timer in line.timers)


async def test_wrong_credentials_are_refused_and_close_the_connection() -> None:
    line = asking_line()
    line.send(handshake(), credentials("txl_wrong"))
    _handshake, refusal = line.bodies()
    assert int.from_bytes(refusal[4:6], "big") == 58
    assert b"txl_wrong" not in refusal
    line.send(heartbeat(3))
    assert line.transport.is_closed
    assert not line.begun


async def test_a_mechanism_that_is_not_there_is_refused_with_those_that_are() -> None:
    line = asking_line()
    line.send(handshake("GSSAPI"))
    (body,) = line.bodies()
    mechanisms = b"\0\0\0\3" + b"\0\x0bOAUTHBEARER" + b"\0\5PLAIN" + b"\0\x0dSCRAM-SHA-256"
    assert body[4:] == b"\0\x21" + mechanisms


async def test_scram_proves_a_token_and_does_not_carry_it() -> None:
    line = asking_line()
    code, last = prove(line, "right", "txl_right")
    assert code == 0
    assert last.startswith(b"v=")
    line.send(heartbeat(3))
    assert [exchange.context.principal for _request, exchange, _reply in line.begun] == ["User:etl"]


@pytest.mark.parametrize(("user", "password"), [("right", "txl_wrong"), ("wrong", "txl_right")])
async def test_scram_refuses_another_token_and_another_user_in_the_same_way(user: str, password: str) -> None:
    line = asking_line()
    assert prove(line, user, password)[0] == 58
    assert line.transport.is_closed


async def test_an_unknown_user_has_a_salt_that_stays() -> None:
    salts = set()
    for _attempt in range(2):
        line = asking_line()
        line.send(handshake("SCRAM-SHA-256"), sasl(b"n,,n=unknown,r=abc"))
        salts.add(line.bodies()[-1].split(b",s=")[1])
    assert len(salts) == 1


async def test_an_old_client_sends_sasl_in_frames_of_its_own() -> None:
    line = asking_line()
    line.send(handshake(version=0), raw(b"\0anybody\0txl_right"), heartbeat(3))
    _handshake, answer = line.bodies()
    assert answer == b""
    assert [exchange.context.principal for _request, exchange, _reply in line.begun] == ["User:etl"]


async def test_an_old_client_with_a_wrong_token_sees_the_connection_end() -> None:
    line = asking_line()
    line.send(handshake(version=0), raw(b"\0anybody\0txl_wrong"), heartbeat(3))
    assert line.answered() == [1], "what came before is answered"
    assert line.transport.is_closed
    assert not line.begun
    assert line.refusals == {Reason.UNKNOWN_TOKEN: 1}


async def test_a_mechanism_of_several_messages_goes_through_frames_of_its_own() -> None:
    line = asking_line()
    line.send(handshake("SCRAM-SHA-256", version=0), raw(b"n,,n=right,r=abc"))
    assert line.bodies()[-1].startswith(b"r=abc")
    line.send(raw(b"c=biws,r=another,p=AAAA"))
    assert line.transport.is_closed


async def test_a_refused_web_token_is_an_answer_that_the_client_acknowledges() -> None:
    line = asking_line()
    line.send(handshake("OAUTHBEARER"), sasl(bearer("nonsense")))
    answer = line.bodies()[-1]
    assert answer[4:6] == b"\0\0"
    assert answer.endswith(b'{"status":"invalid_token"}')
    assert not line.transport.is_closed
    line.send(sasl(b"\x01"))
    assert line.bodies()[-1][4:6] == b"\0\x3a"
    assert line.transport.is_closed
    assert line.refusals == {Reason.NO_JWT: 1}


async def test_a_client_hears_how_long_its_web_token_lasts_and_renews_it_on_the_same_connection() -> None:
    line = asking_line()
    assert authenticate_by_jwt(line, "etl", lasts_ms=60_000) == (0, 60_000)
    line.advance(50_000)
    line.send(heartbeat(3))
    assert authenticate_by_jwt(line, "etl", lasts_ms=60_000) == (0, 60_000)
    line.advance(20_000)
    line.check_credentials()
    assert not line.transport.is_closed
    assert len(line.begun) == 1, "calls go on meanwhile"


async def test_a_connection_whose_web_token_expires_answers_and_ends() -> None:
    line = asking_line()
    authenticate_by_jwt(line, "etl", lasts_ms=60_000)
    line.send(heartbeat(3))
    line.advance(60_000)
    line.check_credentials()
    line.send(heartbeat(4))
    assert not line.transport.is_closed
    line.answer(0)
    assert line.answered()[-1] == 3
    assert line.transport.is_closed


async def test_a_connection_stays_with_its_principal() -> None:
    line = asking_line()
    authenticate_by_jwt(line, "etl", lasts_ms=60_000)
    token = bearer(f"other@{line.clock.wall_ms() + 60_000}")
    line.send(handshake("OAUTHBEARER"), sasl(token), sasl(b"\x01"))
    assert line.bodies()[-1][4:6] == b"\0\x3a"
    assert line.transport.is_closed


async def test_a_connection_stays_with_its_mechanism() -> None:
    line = asking_line()
    authenticate_by_jwt(line, "etl", lasts_ms=60_000)
    line.send(handshake(), credentials("txl_right"))
    assert line.bodies()[-1][4:6] == b"\0\x3a"
    assert b"authenticate again by OAUTHBEARER" in line.bodies()[-1]
    assert line.transport.is_closed


@pytest.mark.parametrize("message", [b"no separators", b"\xff\0\xff\0\xff", b"\0a\0b\0c"])
async def test_what_is_no_message_of_the_mechanism_is_refused_and_counted(message: bytes) -> None:
    line = asking_line()
    line.send(handshake(), sasl(message))
    assert line.bodies()[-1][4:6] == b"\0\x3a"
    assert line.refusals == {Reason.UNKNOWN_TOKEN: 1}


async def test_credentials_without_a_handshake_are_refused() -> None:
    line = asking_line()
    line.send(credentials("txl_right"))
    assert line.bodies()[-1][4:6] == b"\0\x22"
    assert line.transport.is_closed


async def test_a_silent_connection_is_closed_before_authentication() -> None:
    line = asking_line()
    line.advance(9_999)
    assert not line.transport.is_closed
    line.advance(1)
    assert line.transport.is_closed
    assert line.abuses.counts == {"kafka_silent": 1}


async def test_frames_are_small_before_authentication() -> None:
    line = asking_line()
    line.send((UNAUTHENTICATED_BYTES_MAX + 1).to_bytes(4, "big"))
    assert line.transport.is_closed
    served = Line()
    served.send((UNAUTHENTICATED_BYTES_MAX + 1).to_bytes(4, "big"))
    assert not served.transport.is_closed


async def test_a_request_whose_rest_never_comes_ends_the_connection() -> None:
    line = Line()
    line.send(heartbeat(1), heartbeat(2)[:-1])
    line.advance(FRAME_MS_MAX - 1)
    assert not line.transport.is_closed
    line.advance(1)
    assert line.transport.is_closed
    assert line.abuses.counts == {"kafka_stalled": 1}
    assert line.service.partial_requests.held_bytes == 0


async def test_a_size_alone_is_a_request_in_part() -> None:
    line = Line()
    line.send(b"\0")
    line.advance(FRAME_MS_MAX)
    assert line.abuses.counts == {"kafka_stalled": 1}


async def test_requests_that_arrive_slowly_one_after_the_other_are_no_stall() -> None:
    line = Line()
    half = len(heartbeat(1)) // 2
    line.send(heartbeat(1)[:half])
    for number in range(1, 5):
        line.advance(FRAME_MS_MAX - 1)
        line.send(heartbeat(number)[half:], heartbeat(number + 1)[:half])
    assert len(line.begun) == 4
    assert not line.transport.is_closed


async def test_a_request_in_part_may_take_longer_while_the_connection_is_not_read() -> None:
    line = Line()
    line.send(*(heartbeat(number) for number in range(IN_FLIGHT_MAX)), heartbeat(0)[:-1])
    assert not line.transport.is_reading
    line.advance(FRAME_MS_MAX)
    assert not line.transport.is_closed
    line.answer(0)
    assert line.transport.is_reading
    line.advance(FRAME_MS_MAX)
    assert line.abuses.counts == {"kafka_stalled": 1}


async def test_requests_in_part_hold_a_bounded_number_of_bytes_and_crowd_out_their_own_host() -> None:
    part = (10_000).to_bytes(4, "big") + b"\0\0" + bytes(398)
    line = Line(partial_bytes_max=1_000)
    honest, honest_transport = line.connect("10.0.0.8")
    honest.data_received(part)
    line.connection.data_received(part)
    other, other_transport = line.connect()
    other.data_received(part)
    assert other_transport.is_closed, "the newest of the host with the most"
    assert not line.transport.is_closed
    assert not honest_transport.is_closed
    assert line.abuses.counts == {"requests": 1}
    assert line.service.partial_requests.held_bytes == 800
    line.connection.connection_lost(None)
    honest.connection_lost(None)
    other.connection_lost(None)
    assert line.service.partial_requests.held_bytes == 0


async def test_a_request_that_grows_stays_as_old_as_it_is() -> None:
    line = Line(partial_bytes_max=1_000)
    newer, newer_transport = line.connect()
    for connection in (line.connection, newer):
        connection.data_received((10_000).to_bytes(4, "big") + bytes(400))
    line.send(bytes(300))
    assert newer_transport.is_closed
    assert not line.transport.is_closed
    assert line.service.partial_requests.held_bytes == 700


async def test_a_request_alone_may_have_any_size() -> None:
    line = Line(partial_bytes_max=1_000)
    line.send((10_000).to_bytes(4, "big") + bytes(5_000))
    assert not line.transport.is_closed
    assert line.service.partial_requests.held_bytes == 5_000
    line.send(bytes(4_999))
    assert not line.transport.is_closed


async def test_requests_that_wait_for_earlier_ones_count_until_they_begin() -> None:
    line = Line()
    line.send(*(heartbeat(number) for number in range(IN_FLIGHT_MAX + 1)))
    assert line.service.partial_requests.held_bytes == len(heartbeat(0)) - 4
    line.answer(0)
    assert line.service.partial_requests.held_bytes == 0


async def test_more_connections_than_allowed_are_closed_at_once() -> None:
    line = Line(connections_max=1)
    _connection, transport = line.connect()
    assert transport.is_closed
    assert len(line.service.open_connections) == 1


async def test_a_server_that_stops_answers_what_has_begun_and_closes() -> None:
    line = Line()
    line.send(heartbeat(1))
    line.connection.announce_stop()
    line.send(heartbeat(2))
    assert not line.transport.is_closed
    line.answer(0)
    assert line.answered() == [1]
    assert line.transport.is_closed
    assert len(line.begun) == 1


async def test_an_idle_connection_is_one_without_requests() -> None:
    line = Line()
    line.advance(5_000)
    line.send(heartbeat(1))
    assert line.connection.idle_since_ms is None
    line.answer(0)
    line.advance(1_000)
    assert line.connection.idle_since_ms == line.clock.monotonic_ms() - 1_000
    line.connection.announce_stop()
    assert line.transport.is_closed


async def test_a_defect_answers_this_request_alone() -> None:
    def fail(_request: object, _exchange: KafkaExchange) -> Pending[object]:
        raise ZeroDivisionError("our bug")

    def refused(_request: object, exchange: KafkaExchange, error: object) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=exchange.code(error))  # type: ignore[arg-type]

    line = Line(handlers={ApiKey.HEARTBEAT: ApiHandler(fail, refused)})
    line.send(heartbeat(1), API_VERSIONS_0)
    assert line.answered() == [1, 7]
    assert line.bodies()[0][4:] == b"\xff\xff"
    assert ErrorCode.UNKNOWN_SERVER_ERROR == -1


def test_every_api_that_the_core_answers_counts_as_a_method() -> None:
    own = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
    assert {api.key for api in APIS.values() if api.method is None} == own
