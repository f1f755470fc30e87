"""Tokens of callers: which count, what callers without one learn, and the command that makes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from coordinator_server.security.authentication import Authenticator, Presented, Proven, Reason, Unauthenticated
from coordinator_server.security.tokens import ReloadingTokens, TokensRefused, new_token, read_tokens
from tests.cli.terminal import Terminal
from tests.server.asking_server import CLOCK, HOST, Tokens, bearer, reason, secret_of


def test_a_token_names_its_principal(tokens: Tokens) -> None:
    etl, other = tokens.add("User:etl"), tokens.add('User:a "b" c')
    who = Authenticator(CLOCK, tokens=ReloadingTokens(tokens.file, CLOCK))
    assert who.principal(bearer(etl), HOST) == "User:etl"
    assert who.principal(Presented(f"bearer {other}"), HOST) == 'User:a "b" c'


def test_every_stranger_is_told_the_same_and_the_operator_why(tokens: Tokens) -> None:
    etl, old = tokens.add("User:etl"), tokens.add("User:old", expires="2020-01-01T00:00:00Z")
    who = Authenticator(CLOCK, tokens=ReloadingTokens(tokens.file, CLOCK))
    with capture_logs() as log:
        assert reason(who, Presented()) is Reason.NOTHING_SHOWN
        assert reason(who, Presented(etl)) is Reason.NO_BEARER
        assert reason(who, bearer(etl[:-1])) is Reason.UNKNOWN_TOKEN
        assert reason(who, bearer("txl_t9_" + secret_of(etl))) is Reason.UNKNOWN_TOKEN
        assert reason(who, bearer("tyl" + etl[3:])) is Reason.UNKNOWN_TOKEN
        assert reason(who, bearer("")) is Reason.UNKNOWN_TOKEN
        assert reason(who, bearer("x" * 100_000)) is Reason.UNKNOWN_TOKEN
        assert reason(who, bearer(old)) is Reason.EXPIRED_TOKEN
        assert reason(who, bearer(old)) is Reason.EXPIRED_TOKEN
    assert who.refusals == {"nothing_shown": 1, "no_bearer": 1, "unknown_token": 5, "expired_token": 2}
    # One line a second for each reason.
    assert [line["reason"] for line in log] == ["nothing_shown", "no_bearer", "unknown_token", "expired_token"]
    assert log[-1]["details"] == "token t2 of User:old"
    for secret in (etl, old, secret_of(etl)):
        assert secret not in repr(log)
        assert secret not in repr(bearer(secret))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[[tokens]", "is no TOML"),
        ("[[token]]\nid = 'a'", "token is unknown; did you mean tokens?"),
        ("[[tokens]]\nid = 'a b'\nprincipal = 'User:a'\nsha256 = '" + "0" * 64 + "'", "tokens.0.id"),
        ("[[tokens]]\nid = 'a'\nprincipal = 'a'\nsha256 = '" + "0" * 64 + "'", "write User:NAME"),
        ("[[tokens]]\nid = 'a'\nprincipal = 'User:*'\nsha256 = '" + "0" * 64 + "'", "a token is one caller's"),
        ("[[tokens]]\nid = 'a'\nprincipal = 'User:a'\nsha256 = 'secret'", "tokens.0.sha256"),
        (2 * ("[[tokens]]\nid = 'a'\nprincipal = 'User:a'\nsha256 = '" + "0" * 64 + "'\n"), "two tokens of one id"),
    ],
)
def test_half_a_file_is_refused_and_the_old_tokens_count(tokens: Tokens, content: str, said: str) -> None:
    etl = tokens.add("User:etl")
    kept = ReloadingTokens(tokens.file, CLOCK)
    tokens.file.write_text(content)
    with pytest.raises(TokensRefused, match=said) as refused:
        read_tokens(tokens.file)
    assert "'secret'" not in str(refused.value)
    with capture_logs() as log:
        kept.look()
        kept.look()
    assert [line["event"] for line in log] == ["tokens_refused"]
    assert kept.refusal is not None
    assert kept.of_token(etl) == "User:etl"


def test_a_withdrawn_token_counts_no_more_and_a_new_one_does(tokens: Tokens) -> None:
    old = tokens.add("User:etl")
    kept = ReloadingTokens(tokens.file, CLOCK)
    tokens.withdraw_all()
    new = tokens.add("User:etl")
    kept.look()
    assert kept.of_token(new) == "User:etl"
    with pytest.raises(Unauthenticated):
        kept.of_token(old)


def test_a_token_that_was_proven_counts_as_long_as_the_file_has_it(tmp_path: Path) -> None:
    """SCRAM proves a token once; the connection is checked again and again. A new token may have the id of the old."""
    file = tmp_path / "tokens.toml"

    def made(secret: bytes) -> str:
        return new_token("etl", secret, "User:etl", None, scram_salt=b"salt")[1]

    file.write_text(made(b"a" * 32), encoding="utf-8")
    kept = ReloadingTokens(file, CLOCK)
    verifier = kept.verifier("etl")
    assert verifier is not None
    proven = Proven("etl", verifier)
    assert kept.of_proven(proven) == "User:etl"
    file.write_text("# before the new one\n" + made(b"b" * 32), encoding="utf-8")
    kept.look()
    with pytest.raises(Unauthenticated) as refused:
        kept.of_proven(proven)
    assert refused.value.reason is Reason.UNKNOWN_TOKEN
    file.write_text("# nobody\n", encoding="utf-8")
    kept.look()
    with pytest.raises(Unauthenticated):
        kept.of_proven(proven)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokensRefused, match="gone cannot be read: No such file"):
        ReloadingTokens(tmp_path / "gone", CLOCK)


def test_tokens_are_made_and_listed_without_their_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    txnctl, file = Terminal(monkeypatch), tmp_path / "tokens.toml"
    made = txnctl("token", "create", str(file), "--principal", "User:etl", "--id", "etl-1", "--expires", "90d").well()
    token = made.stdout.strip()
    assert ReloadingTokens(file, CLOCK).of_token(token) == "User:etl"
    assert file.stat().st_mode & 0o777 == 0o600
    other = txnctl("token", "create", str(file), "--principal", "User:b", "--id", "b").well().stdout.strip()
    assert ReloadingTokens(file, CLOCK).of_token(other) == "User:b"
    shown = txnctl("token", "list", str(file), "-o", "json").well().document
    assert [(row["id"], row["principal"], row["expires"] is None) for row in shown] == [
        ("etl-1", "User:etl", False),
        ("b", "User:b", True),
    ]
    assert secret_of(token) not in file.read_text()
    txnctl("token", "create", str(file), "--principal", "User:c", "--id", "b").refused(2, "has a token b already")
    txnctl("token", "create", str(file), "--principal", "c", "--id", "c").refused(
        2, "--principal: 'c' is no principal: write User:NAME"
    )
    txnctl("token", "create", str(file), "--principal", "User:c", "--id", "c c").refused(2, "--id")
