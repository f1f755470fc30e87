"""An issuer of JSON Web Tokens for tests: its key set lies in a file, and keys come and go.

issuer = Issuer(tmp_path, clock)
issuer.add_key("a")
issuer.token("a", "etl")                # for User:etl, for an hour
issuer.remove_key("a")
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from coordinator_runtime.clock import Clock
from coordinator_server.security.authentication import JwtRules

_ISSUER: Final = "https://idp.example"
_AUDIENCE: Final = "txn"


class Issuer:
    """One that signs tokens of the clock's time."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self.rules = JwtRules(directory / "keys.json", _ISSUER, _AUDIENCE)
        self._clock = clock
        self._keys: dict[str, ec.EllipticCurvePrivateKey] = {}

    @property
    def settings(self) -> dict[str, object]:
        """Settings of a server that takes the tokens."""
        return {
            "authentication": "jwt",
            "jwt_key_set_file": self.rules.key_set_file,
            "jwt_issuer": self.rules.issuer,
            "jwt_audience": self.rules.audience,
        }

    def add_key(self, name: str) -> None:
        self._keys[name] = ec.generate_private_key(ec.SECP256R1())
        self._write()

    def remove_key(self, name: str) -> None:
        del self._keys[name]
        self._write()

    def token(self, key: str, name: str, *, lasts_s: int = 3_600) -> str:
        now = self._clock.wall_ms() // 1_000
        claims = {"iss": _ISSUER, "aud": _AUDIENCE, "sub": name, "iat": now, "exp": now + lasts_s}
        return jwt.encode(claims, self._keys[key], algorithm="ES256", headers={"kid": key})

    def _write(self) -> None:
        keys = [{"kid": name, **ECAlgorithm.to_jwk(key.public_key(), as_dict=True)} for name, key in self._keys.items()]
        self.rules.key_set_file.write_text(json.dumps({"keys": keys}))
