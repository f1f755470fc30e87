"""Certificates of callers: the principal that a rule finds in one, and certificates that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_server.security.authentication import NameRule, NameSource, Reason, Unauthenticated
from coordinator_server.security.certificates import CertificateNames
from tests.harness.certificates import DAY, Authority, Pair
from tests.harness.manual_clock import ManualClock
from tests.server.asking_server import CLOCK, names

HOUR_MS = 3_600_000


def of_certificate(found: CertificateNames, pair: Pair) -> str:
    return found.of_certificates((pair.certificate.read_bytes(),))


@pytest.mark.parametrize(
    ("rule", "principal"),
    [
        (NameRule(), "User:CN=etl"),
        (NameRule(NameSource.CN), "User:etl"),
        (NameRule(NameSource.DNS, r"(.+)\.jobs\.example"), "User:nightly"),
        (NameRule(NameSource.DNS, r"nightly.*"), "User:nightly.jobs.example"),
    ],
)
def test_a_certificate_names_its_principal_by_the_rule(authority: Authority, rule: NameRule, principal: str) -> None:
    pair = authority.issue("etl", "nightly.jobs.example", "etl.example", is_server=False)
    assert of_certificate(names(authority, rule), pair) == principal


@pytest.mark.parametrize(
    "rule",
    [
        NameRule(NameSource.URI),
        NameRule(NameSource.DNS),
        NameRule(NameSource.CN, "other"),
        NameRule(NameSource.DNS, "()e.*"),
    ],
)
def test_no_name_several_names_and_an_empty_one_are_refused(authority: Authority, rule: NameRule) -> None:
    pair = authority.issue("etl", "nightly.jobs.example", "etl.example")
    with pytest.raises(Unauthenticated) as refused:
        of_certificate(names(authority, rule), pair)
    assert refused.value.reason is Reason.NO_PRINCIPAL


def test_a_certificate_called_everybody_is_no_principal(authority: Authority) -> None:
    with pytest.raises(Unauthenticated) as refused:
        of_certificate(names(authority, NameRule(NameSource.CN)), authority.issue("*", "a"))
    assert refused.value.reason is Reason.NO_PRINCIPAL


def test_what_expires_or_loses_its_ca_after_the_handshake_counts_no_more(authority: Authority, tmp_path: Path) -> None:
    pair, clock = authority.issue("etl", lasts=DAY), ManualClock(wall_ms=CLOCK.wall_ms())
    found = names(authority, clock=clock)
    assert of_certificate(found, pair) == "User:CN=etl"
    clock.advance(25 * HOUR_MS)
    with pytest.raises(Unauthenticated) as refused:
        of_certificate(found, pair)
    assert refused.value.reason is Reason.EXPIRED_CERTIFICATE
    found = names(authority)
    of_certificate(found, pair)
    Authority(tmp_path, "ca")
    with pytest.raises(Unauthenticated) as refused:
        of_certificate(found, pair)
    assert refused.value.reason is Reason.UNKNOWN_CA
