"""SCRAM-SHA-256: the exchange of RFC 7677, and what proves nothing."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode

import pytest

from coordinator_server.security.scram import (
    ITERATIONS,
    ScramRefused,
    parse_client_first,
    parse_verifier,
    server_final,
    server_first,
    verifier_of,
)

FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
# The server's part of the nonce in the RFC is text; the part here is base64 of random bytes, so the nonce is longer.
SENT = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
PENCIL = verifier_of("pencil", SALT)


def test_the_exchange_of_the_rfc() -> None:
    first = parse_client_first(FIRST)
    assert server_final(first, SENT, PENCIL, FINAL) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_the_first_answer_has_both_nonces_the_salt_and_the_iterations() -> None:
    sent = server_first(parse_client_first(FIRST), PENCIL, b"123")
    assert sent == b"r=rOprNGfwEbeRWgbNEkqO" + b64encode(b"123") + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"


def test_a_user_name_may_have_a_comma() -> None:
    assert parse_client_first(b"n,,n=a=2Cb=3Dc,r=x").user == "a,b=c"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=user",
        b"n,,r=nonce",
        b"n,,n=,r=nonce",
        b"p=tls-unique,,n=user,r=nonce",
        b"n,a=other,n=user,r=nonce",
        b"n,,m=must,n=user,r=nonce",
        b"\xff",
    ],
)
def test_what_is_no_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(ScramRefused):
        parse_client_first(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        FINAL.replace(b"dHzb", b"dHzc"),
        FINAL.replace(b"c=biws", b"c=eSws"),
        FINAL.replace(b"%hvYD", b"%hvYE"),
        FINAL.split(b",p=")[0],
        FINAL.split(b",p=")[0] + b",p=",
        FINAL.split(b",p=")[0] + b",p=c2hvcnQ=",
        FINAL.split(b",p=")[0] + b",p=!",
    ],
)
def test_what_proves_nothing_is_refused(message: bytes) -> None:
    with pytest.raises(ScramRefused):
        server_final(parse_client_first(FIRST), SENT, PENCIL, message)


def test_a_right_proof_with_another_channel_binding_is_refused() -> None:
    """A program between client and server could otherwise change what the client said about it first."""
    first, without_proof = parse_client_first(FIRST), FINAL.split(b",p=")[0]

    def proven(said: bytes) -> bytes:
        salted = hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, ITERATIONS)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        signed = b",".join((first.bare.encode(), SENT, said))
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        return said + b",p=" + b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))

    assert proven(without_proof) == FINAL
    with pytest.raises(ScramRefused, match="belongs to another exchange"):
        server_final(first, SENT, PENCIL, proven(without_proof.replace(b"c=biws", b"c=eSws")))


def test_another_password_is_refused() -> None:
    with pytest.raises(ScramRefused, match="the proof is wrong"):
        server_final(parse_client_first(FIRST), SENT, verifier_of("pen", SALT), FINAL)


def test_a_verifier_is_text_in_the_file_of_tokens() -> None:
    assert parse_verifier(PENCIL.text()) == PENCIL
    assert "pencil" not in PENCIL.text()


@pytest.mark.parametrize(
    "text", ["", "4096", "x$AA==$AA==$AA==", PENCIL.text().replace("4096", str(ITERATIONS - 1)), PENCIL.text()[:-8]]
)
def test_a_damaged_verifier_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no verifier"):
        parse_verifier(text)
