"""JSON Web Tokens of callers: which count, and why others do not."""

from __future__ import annotations

import hmac
import json
import traceback
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from pydantic import ValidationError
from structlog.testing import capture_logs

from coordinator_server.security.authentication import (
    SIGNATURES_AT_ONCE,
    SIGNATURES_PER_SECOND,
    Authenticator,
    JwtRules,
    Presented,
    Reason,
    Unauthenticated,
)
from coordinator_server.security.jwt_tokens import CLOCK_SKEW_SECONDS, KeySetRefused, ReloadingKeySet, read_key_set
from coordinator_server.settings.config import Config
from tests.harness.manual_clock import ManualClock

NOW = 1_700_000_000
EC, OTHER, RSA, ED = (
    ec.generate_private_key(ec.SECP256R1()),
    ec.generate_private_key(ec.SECP256R1()),
    rsa.generate_private_key(65_537, 2_048),
    ed25519.Ed25519PrivateKey.generate(),
)
CLAIMS = {"iss": "https://idp.example", "aud": "txn", "sub": "etl", "iat": NOW, "exp": NOW + 3_600}


def key_set(**keys: object) -> str:
    return json.dumps({"keys": [{"kid": kid, **_public(key)} for kid, key in keys.items()]})


def _public(key: Any) -> dict[str, Any]:
    for kind, algorithm in ((ec.EllipticCurvePrivateKey, ECAlgorithm), (rsa.RSAPrivateKey, RSAAlgorithm)):
        if isinstance(key, kind):
            return dict(algorithm.to_jwk(key.public_key(), as_dict=True))  # type: ignore[arg-type]
    return dict(OKPAlgorithm.to_jwk(key.public_key(), as_dict=True))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_text(key_set(a=EC, r=RSA, e=ED))
    return path


def kept_keys(file: Path, clock: ManualClock | None = None) -> ReloadingKeySet:
    return ReloadingKeySet(JwtRules(file, "https://idp.example", "txn"), clock or ManualClock(wall_ms=NOW * 1_000))


def token(key: Any = EC, kid: str = "a", algorithm: str = "ES256", **claims: object) -> str:
    said = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    return jwt.encode(said, key, algorithm=algorithm, headers={"kid": kid})


def reason(kept: ReloadingKeySet, shown: str) -> Reason:
    with pytest.raises(Unauthenticated) as refused:
        kept.of_token(shown)
    assert refused.value.message == "authentication required"
    return refused.value.reason


def test_a_token_of_each_algorithm_names_its_principal(file: Path) -> None:
    kept = kept_keys(file)
    assert kept.of_token(token(sub="Ame\u0301lie")) == "User:Am\u00e9lie", "rules have one way to write a letter"
    assert kept.of_token(token()) == "User:etl"
    assert kept.of_token(token(RSA, "r", "RS256", sub="batch")) == "User:batch"
    assert kept.of_token(token(ED, "e", "EdDSA", aud=["other", "txn"])) == "User:etl"


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        (token(OTHER), Reason.BAD_SIGNATURE),
        (token(kid="b"), Reason.UNKNOWN_KEY),
        (token(RSA, "a", "RS256"), Reason.WRONG_ALGORITHM),
        (jwt.encode(CLAIMS, None, algorithm="none", headers={"kid": "a"}), Reason.WRONG_ALGORITHM),
        (token(iss="https://other.example"), Reason.WRONG_ISSUER),
        (token(iss=None), Reason.WRONG_ISSUER),
        (token(aud="other"), Reason.WRONG_AUDIENCE),
        (token(aud=None), Reason.NO_JWT),
        (token(exp=None), Reason.NO_JWT),
        (token(iat=None), Reason.NO_JWT),
        (token(exp=NOW + 86_401), Reason.TOO_LONG),
        (token(iat=NOW - 90, exp=NOW - CLOCK_SKEW_SECONDS), Reason.EXPIRED_TOKEN),
        (token(iat=NOW + CLOCK_SKEW_SECONDS + 1), Reason.TOKEN_OF_TOMORROW),
        (token(nbf=NOW + CLOCK_SKEW_SECONDS + 1), Reason.TOKEN_OF_TOMORROW),
        (token(exp=float("nan")), Reason.NO_JWT),
        (token(iat=float("nan"), exp=NOW + 10**9), Reason.NO_JWT),
        (token(nbf=float("nan")), Reason.NO_JWT),
        (token(iat=10**400, exp=10**400), Reason.NO_JWT),
        (token(sub=None), Reason.NO_PRINCIPAL),
        (token(sub="*"), Reason.NO_PRINCIPAL),
        (token(sub=""), Reason.NO_PRINCIPAL),
        (token(pad="x" * 10_000), Reason.NO_JWT),
        ("", Reason.NO_JWT),
        ("a.b.c", Reason.NO_JWT),
        (token(sub="admin").rpartition(".")[0] + "." + token().rpartition(".")[2], Reason.BAD_SIGNATURE),
    ],
)
def test_what_does_not_count_is_refused_for_its_reason(file: Path, shown: str, why: Reason) -> None:
    assert reason(kept_keys(file), shown) is why


def test_a_public_key_is_no_secret_of_hmac(file: Path) -> None:
    """The old trick: sign with the public key as if it were a shared secret."""
    public = EC.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    signed = f"{_coded({'alg': 'HS256', 'kid': 'a'})}.{_coded(CLAIMS)}"
    forged = f"{signed}.{_base64(hmac.digest(public, signed.encode(), 'sha256'))}"
    assert reason(kept_keys(file), forged) is Reason.WRONG_ALGORITHM


_NUMBERS = st.one_of(st.integers(), st.floats(), st.sampled_from([10**400, -(10**400), 10**4_299, True]))
_SAID = st.one_of(_NUMBERS, st.none(), st.text(max_size=3), st.lists(_NUMBERS, max_size=2))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.fixed_dictionaries({}, optional={"exp": _SAID, "iat": _SAID, "nbf": _SAID, "aud": _SAID, "sub": _SAID}))
def test_whatever_a_stranger_writes_without_a_key_is_refused(file: Path, claims: dict[str, object]) -> None:
    """Any other error would tell callers apart, and cost more than a refusal."""
    unsigned = f"{_coded({'alg': 'ES256', 'kid': 'a'})}.{_coded({'iss': 'https://idp.example', **claims})}"
    reason(kept_keys(file), f"{unsigned}.{_base64(bytes(64))}")


def test_a_key_for_something_else_than_signatures_is_passed_over(file: Path) -> None:
    """Identity providers put the keys that others encrypt to into the same set."""
    for_secrets = {"kid": "enc", "use": "enc", "alg": "RSA-OAEP", **_public(RSA)}
    file.write_text(json.dumps({"keys": [{"kid": "a", "use": "sig", **_public(EC)}, for_secrets]}))
    assert list(read_key_set(file)) == ["a"]


def test_keys_of_other_algorithms_are_passed_over_as_long_as_one_counts(file: Path) -> None:
    foreign = ec.generate_private_key(ec.SECP384R1())
    file.write_text(key_set(p=foreign, a=EC, weak=rsa.generate_private_key(65_537, 1_024)))
    with capture_logs() as log:
        kept = kept_keys(file)
    (line,) = log
    assert (line["event"], [key.split()[1] for key in line["keys"]]) == ("keys_passed_over", ["'p'", "'weak'"])
    assert kept.of_token(token()) == "User:etl"
    assert reason(kept, token(foreign, "p", "ES384")) is Reason.UNKNOWN_KEY


def test_a_host_that_shows_wrong_signatures_all_the_time_costs_no_more_checks(file: Path) -> None:
    clock = ManualClock(wall_ms=NOW * 1_000)
    who = Authenticator(clock, jwts=kept_keys(file, clock))

    def why(shown: str, host: str = "bad") -> Reason | None:
        try:
            who.principal(Presented(f"Bearer {shown}"), host)
        except Unauthenticated as refused:
            return refused.reason
        return None

    known, new, forged = token(), token(sub="new"), token(OTHER)
    assert why(known) is None
    assert [why(forged) for _ in range(SIGNATURES_AT_ONCE)] == [Reason.BAD_SIGNATURE] * SIGNATURES_AT_ONCE
    assert [why(forged), why(new), why(known), why(new, "good")] == [Reason.TOO_OFTEN, Reason.TOO_OFTEN, None, None]
    clock.advance(1_000)
    again = [why(forged) for _ in range(SIGNATURES_PER_SECOND + 1)]
    assert again == [Reason.BAD_SIGNATURE] * SIGNATURES_PER_SECOND + [Reason.TOO_OFTEN]


@pytest.mark.parametrize(
    "key",
    [
        {"kty": "oct", "k": "PLANTED", "alg": "XYZ", "kid": "s"},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB", "d": "PLANTED", "kid": "s"},
        {"kty": "PLANTED", "kid": "s"},
        {"kty": "EC", "crv": "P-256", "x": "PLANTED", "y": "AQ", "kid": "s"},
        dict(ECAlgorithm.to_jwk(EC, as_dict=True), kid="s"),
    ],
    ids=["shared", "broken private", "unknown", "broken public", "private"],
)
def test_a_refused_key_is_named_and_never_shown(file: Path, key: dict[str, str]) -> None:
    file.write_text(json.dumps({"keys": [key]}))
    with pytest.raises(KeySetRefused, match="key 's'") as refused:
        read_key_set(file)
    told = "".join(traceback.format_exception(refused.value))
    assert not [secret for secret in ("PLANTED", key.get("d")) if secret and secret in told]


def _coded(said: object) -> str:
    return _base64(json.dumps(said).encode())


def _base64(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def test_clocks_may_differ_a_little_and_a_token_ends_while_it_is_used(file: Path) -> None:
    clock = ManualClock(wall_ms=NOW * 1_000)
    kept, shown = kept_keys(file, clock), token(iat=NOW + CLOCK_SKEW_SECONDS, exp=NOW + 60)
    assert kept.of_token(shown) == "User:etl"
    clock.advance(60_000 + CLOCK_SKEW_SECONDS * 1_000 - 1)
    assert kept.of_token(shown) == "User:etl"
    clock.advance(1)
    assert reason(kept, shown) is Reason.EXPIRED_TOKEN


def test_a_lifetime_ends_with_the_token_and_is_that_of_tokens_that_count(file: Path) -> None:
    clock = ManualClock(wall_ms=NOW * 1_000)
    authenticator = Authenticator(clock, jwts=kept_keys(file, clock))
    shown = Presented(f"Bearer {token(exp=NOW + 60)}")
    assert authenticator.lifetime_ms(shown) is None
    authenticator.principal(shown, "h")
    clock.advance(10_000)
    assert authenticator.lifetime_ms(shown) == 50_000
    assert authenticator.lifetime_ms(Presented()) is None


def test_a_key_that_is_gone_takes_its_tokens_with_it(file: Path) -> None:
    kept, old = kept_keys(file), token()
    kept.of_token(old)
    file.write_text(key_set(b=OTHER))
    kept.look()
    assert reason(kept, old) is Reason.UNKNOWN_KEY
    assert kept.of_token(token(OTHER, "b")) == "User:etl"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is no JWKS"),
        ("[" * 100_000, "is no JWKS"),
        ('{"keys": {}}', "has no key for signatures"),
        ('{"keys": []}', "has no key for signatures"),
        ('{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "s"}]}', "a private or shared one"),
        (json.dumps({"keys": [_public(EC)]}), "a key without kid"),
        (key_set(p=ec.generate_private_key(ec.SECP384R1())), "key 'p' is no public key for ES256, EdDSA"),
        (key_set(r=rsa.generate_private_key(65_537, 1_024)), "key 'r' has 1024 bits, which can be broken"),
        (json.dumps({"keys": [{"kid": "a", **_public(EC)}, {"kid": "a", **_public(OTHER)}]}), "two keys of one kid"),
    ],
)
def test_half_a_key_set_is_refused_and_the_old_keys_count(file: Path, content: str, said: str) -> None:
    kept = kept_keys(file)
    file.write_text(content)
    with pytest.raises(KeySetRefused, match=said):
        read_key_set(file)
    with capture_logs() as log:
        kept.look()
        kept.look()
    assert [line["event"] for line in log] == ["key_set_refused"]
    assert kept.refusal is not None
    assert kept.of_token(token()) == "User:etl"
    file.unlink()
    with pytest.raises(KeySetRefused, match=r"keys\.json cannot be read: No such file"):
        kept_keys(file)


def test_tokens_of_ours_and_of_others_are_told_apart(file: Path) -> None:
    class Ours:
        def of_token(self, shown: str) -> str:
            return f"User:{shown}"

    both = Authenticator(ManualClock(), tokens=Ours(), jwts=kept_keys(file))
    assert both.principal(Presented("Bearer txl_a_b"), "h") == "User:txl_a_b"
    assert both.principal(Presented(f"Bearer {token()}"), "h") == "User:etl"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"jwt_issuer": "i"}, "go together"),
        ({"authentication": "jwt"}, "authentication = jwt needs jwt_key_set_file"),
    ],
)
def test_half_the_settings_are_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Config.model_validate({"data_dir": "d", "tls_certificate_file": "c", "tls_key_file": "k"} | settings)
