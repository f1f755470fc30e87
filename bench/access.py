"""Measures the cost of security: the same transactions on servers with different protection, in turns.

    python -m bench access [--quick]

64 producers of the SDK over one session commit a record of 1 KiB to each of three partitions. The first server has no
protection, the second has TLS. The others require certificates, tokens or JWTs, all with TLS and 1,000 ACLs. Each is
measured once per round, so that a slow phase of the machine affects all of them. The result is the server's processor
time for a transaction, divided by that of the first server in the same round.

The ACLs are those of 250 programs, of which one is measured, so nearly all of them apply to others.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from bench.alternate import ratio_of
from bench.arena import TOPIC, of_server
from bench.case import FLUSHED, Contender, Row
from bench.credentials import new_authority, new_tokens
from bench.load.sdk import PARTITIONS
from bench.programs import load_command, output_of, run_of_output
from bench.report import number
from bench.results import TRANSACTIONS_PER_SECOND, Result, Run, Side
from bench.runner import measure
from bench.scale import FULL, QUICK, Scale
from bench.server import OwnServer
from coordinator_client import Acl, Admin, PatternType, Permission, ResourceType, Tls

PRODUCERS: Final = 64
ACLS: Final = 1_000
PROGRAM: Final = "User:load"
"""Principal of the measured program."""
_ROUNDS: Final = 5
_VALUE_BYTES: Final = 1_024
_RIGHTS: Final = (
    (ResourceType.TOPIC, TOPIC, Permission.WRITE),
    (ResourceType.TOPIC, TOPIC, Permission.READ),
    (ResourceType.TRANSACTIONAL_ID, "sdk", Permission.WRITE),
    (ResourceType.GROUP, "sdk", Permission.READ),
)


@dataclass(frozen=True, slots=True)
class Protected:
    """One server, and the credentials of its callers."""

    name: str
    settings: dict[str, str] = field(default_factory=dict)
    load: Tls | None = None
    """TLS settings of the load program."""
    admin: Tls | None = None
    """TLS settings of the superuser."""
    acls: int = 0


def main(arguments: Sequence[str] = ()) -> None:
    """Print a line for each server."""
    parser = argparse.ArgumentParser(prog="python -m bench access", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round; the figures are not for quoting")
    asked = parser.parse_args(arguments)
    scale, rounds = (QUICK, 1) if asked.quick else (FULL, _ROUNDS)
    with tempfile.TemporaryDirectory(prefix="bench-access-") as directory, ExitStack() as ending:
        wanted = _servers(Path(directory))
        contenders = [_started(each, Path(directory), scale, ending) for each in wanted]
        row = Row(f"{PRODUCERS} producers", TRANSACTIONS_PER_SECOND, contenders)
        found = list(measure({"access": [row]}, rounds, partial(print, file=sys.stderr, flush=True)))
    print("\n".join(table(wanted, found)))


def _started(wanted: Protected, directory: Path, scale: Scale, ending: ExitStack) -> Contender:
    settings = [word for each in wanted.settings.items() for word in ("--set", "=".join(each))]
    server = OwnServer(directory / wanted.name.replace(" ", "-"), arguments=settings)
    server.start()
    ending.callback(server.stop)
    with Admin(server.endpoint, tls=wanted.admin) as admin:
        admin.create_topic(TOPIC, PARTITIONS)
        if wanted.acls:
            admin.create_acls(rules(wanted.acls))
    return Contender(Side.OURS, wanted.name, FLUSHED, partial(_load, server, wanted, scale))


def rules(count: int) -> list[Acl]:
    """Return the rules that the measured program needs, and the same rules for other programs under other names."""
    needed = [_rule(PROGRAM, *right) for right in _RIGHTS]
    others = [
        _rule(f"User:load-{number}", kind, f"{name}-{number}", permission)
        for number in range(-(-count // len(_RIGHTS)))
        for kind, name, permission in _RIGHTS
    ]
    return [*needed, *others][:count]


def _rule(principal: str, kind: ResourceType, name: str, permission: Permission) -> Acl:
    return Acl(
        principal=principal,
        resource_type=kind,
        resource_name=name,
        operation=permission,
        pattern_type=PatternType.PREFIXED,
    )


def _load(server: OwnServer, wanted: Protected, scale: Scale) -> Run:
    """Run the load program. Raises: LoadFailed."""
    tls = wanted.load
    settings = {
        "driver": "SDK",
        "producers": PRODUCERS,
        "value_bytes": _VALUE_BYTES,
        "topic": TOPIC,
        "warm_up_s": scale.warm_up_s,
        "measured_s": scale.measured_s,
        "tls": None if tls is None else {name: str(value) for name, value in _files(tls).items()},
    }
    command, environment = load_command("transactions", of_server(server) | settings)
    return run_of_output(output_of(command, "the load program transactions", environment))


def _files(tls: Tls) -> dict[str, object]:
    named = {name: getattr(tls, name) for name in ("ca_file", "certificate_file", "key_file", "token_file")}
    return {name: value for name, value in named.items() if value is not None}


def table(wanted: Sequence[Protected], found: Sequence[Result]) -> list[str]:
    """Return a line for each server, compared with the first one."""
    lines = ["| server | rate | : first | server us | : first |", "| --- | --- | --- | --- | --- |"]
    for each, result in zip(wanted, found, strict=True):
        if result.problem:
            lines.append(f"| {each.name} | failed: {result.problem} | | | |")
            continue
        rate, server_us = (ratio_of(result.runs, found[0].runs, name) for name in ("figure", "server_us"))
        cells = [each.name, number(result.figure or 0), str(rate), number(result.median_of("server_us") or 0)]
        lines.append(f"| {' | '.join([*cells, str(server_us)])} |")
    return lines


def _servers(directory: Path) -> list[Protected]:
    ca_file, issue = new_authority(directory)
    server, load, admin = (issue(name) for name in ("server", "load", "admin"))
    tokens_file, token_files = new_tokens(directory, "load", "admin")
    tls = {"tls_certificate_file": f"{server}.crt", "tls_key_file": f"{server}.key"}
    certificates = {
        "tls_client_ca_file": str(ca_file),
        "tls_client_auth": "required",
        "authentication": "certificate",
        "principal_source": "cn",
        "super_users": "User:admin",
    }
    tokens = {"authentication": "token", "tokens_file": str(tokens_file), "super_users": "User:admin"}

    def by_certificate(name: Path) -> Tls:
        return Tls(ca_file=ca_file, certificate_file=f"{name}.crt", key_file=f"{name}.key")

    trusting = Tls(ca_file=ca_file)
    key_set, jwt_files = _web_tokens(directory)
    load_jwt, admin_jwt = (Tls(ca_file=ca_file, token_file=file) for file in jwt_files)
    load_token, admin_token = (Tls(ca_file=ca_file, token_file=file) for file in token_files)
    return [
        Protected("plaintext"),
        Protected("TLS", tls | {"insecure": "true"}, trusting, trusting),
        Protected("certificates", tls | certificates, by_certificate(load), by_certificate(admin), ACLS),
        Protected("tokens", tls | tokens, load_token, admin_token, ACLS),
        Protected("JWTs", tls | key_set, load_jwt, admin_jwt, ACLS),
    ]


def _web_tokens(directory: Path) -> tuple[dict[str, str], list[Path]]:
    """Return the settings of a server that accepts JWTs, and the token files of the load and of the administrator."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    public = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": "bench", "alg": "ES256"}
    key_set = directory / "keys.json"
    key_set.write_text(json.dumps({"keys": [public]}))
    files = []
    for name in ("load", "admin"):
        claims = {"iss": "bench", "aud": "txn", "sub": name, "iat": now, "exp": now + timedelta(hours=1)}
        file = directory / f"{name}.jwt"
        file.touch(mode=0o600)
        file.write_text(jwt.encode(claims, key, algorithm="ES256", headers={"kid": "bench"}))
        files.append(file)
    settings = {
        "authentication": "jwt",
        "jwt_key_set_file": str(key_set),
        "jwt_issuer": "bench",
        "jwt_audience": "txn",
        "super_users": "User:admin",
    }
    return settings, files


if __name__ == "__main__":
    main(sys.argv[1:])
