"""Files of certificates: which are taken, and how those that change are taken up."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from structlog.testing import capture_logs

from coordinator_runtime.clock import SystemClock
from coordinator_server.security.certificates import read_credentials
from coordinator_server.security.reloading_credentials import ReloadingCredentials, Taken
from coordinator_server.security.tls import ClientAuth, TlsFiles, TlsRefused
from tests.harness.certificates import DAY, Authority, Pair

CLOCK = SystemClock()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ca")


def files_of(pair: Pair, **more: object) -> TlsFiles:
    return TlsFiles(pair.certificate, pair.key, **more)  # type: ignore[arg-type]


def refusal(files: TlsFiles) -> str:
    with pytest.raises(TlsRefused) as refused:
        read_credentials(files, CLOCK.wall_ms())
    return str(refused.value)


def test_a_certificate_with_its_key_is_taken(authority: Authority) -> None:
    files = files_of(authority.issue("server"), client_ca_file=authority.ca_file, client_auth=ClientAuth.REQUIRED)
    found = read_credentials(files, CLOCK.wall_ms())
    assert found.client_ca == authority.ca_file.read_bytes()
    assert 0.9 * DAY < timedelta(milliseconds=found.ends_ms - CLOCK.wall_ms()) <= DAY


def test_a_file_that_is_missing_is_named(authority: Authority, tmp_path: Path) -> None:
    pair, gone = authority.issue("server"), tmp_path / "gone"
    for files in (
        TlsFiles(gone, pair.key),
        TlsFiles(pair.certificate, gone),
        files_of(pair, client_ca_file=gone, client_auth=ClientAuth.REQUIRED),
    ):
        assert refusal(files) == f"{gone} cannot be read: No such file or directory"


def test_a_key_of_another_certificate_is_refused(authority: Authority) -> None:
    one, other = authority.issue("one"), authority.issue("other")
    assert f"the key in {other.key} is not that of the certificate in {one.certificate}" in refusal(
        TlsFiles(one.certificate, other.key)
    )


def test_an_expired_certificate_is_refused_and_one_of_tomorrow(authority: Authority) -> None:
    assert "expired at" in refusal(files_of(authority.issue("old", lasts=-DAY)))
    assert "is not valid before" in refusal(files_of(authority.issue("new", since=DAY)))


def test_what_is_no_certificate_and_no_key_is_refused(authority: Authority, tmp_path: Path) -> None:
    pair, noise = authority.issue("server"), tmp_path / "noise"
    noise.write_text("-----BEGIN NOISE-----")
    assert "holds no certificate in PEM" in refusal(TlsFiles(noise, pair.key))
    assert "holds no private key in PEM" in refusal(TlsFiles(pair.certificate, noise))
    files = files_of(pair, client_ca_file=noise, client_auth=ClientAuth.REQUIRED)
    assert "holds no certificate in PEM" in refusal(files)


def test_a_key_with_a_passphrase_is_refused_without_its_content(authority: Authority) -> None:
    pair = authority.issue("server")
    key = load_pem_private_key(pair.key.read_bytes(), None)
    pair.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    assert f"the key in {pair.key} is encrypted" in refusal(files_of(pair))


def test_a_certificate_of_clients_is_none_of_a_server(authority: Authority) -> None:
    assert "not one of a server" in refusal(files_of(authority.issue("client", is_server=False)))


def test_an_expired_ca_is_refused(tmp_path: Path, authority: Authority) -> None:
    old = Authority(tmp_path, "old", lasts=-DAY)
    files = files_of(authority.issue("server"), client_ca_file=old.ca_file, client_auth=ClientAuth.REQUIRED)
    assert f"every certificate in {old.ca_file} has expired" in refusal(files)


# Kept credentials


def test_a_rotation_is_taken_up_once_both_files_are_new(authority: Authority) -> None:
    pair, following = authority.issue("server"), authority.issue("next")
    kept = ReloadingCredentials(files_of(pair), CLOCK)
    first = kept.current
    one, other = Taken(kept), Taken(kept)
    assert not one.renew(), "it has the first ones from the beginning"
    kept.look()
    assert not one.renew()
    following.key.replace(pair.key)
    with capture_logs() as lines:
        kept.look()
        kept.look()
    assert [line["event"] for line in lines] == ["credentials_refused"], "told once, not at every look"
    assert kept.current is first
    assert "is not that of the certificate" in (kept.refusal or "")
    following.certificate.replace(pair.certificate)
    kept.look()
    assert kept.refusal is None
    for taken in (one, other):
        assert taken.current is first
        assert taken.renew(), "each hears of it"
        assert taken.current is kept.current is not first
        assert not taken.renew()
    assert kept.handshakes == 6


def test_files_that_vanish_leave_the_old_ones_serving(authority: Authority) -> None:
    pair = authority.issue("server")
    kept = ReloadingCredentials(files_of(pair), CLOCK)
    pair.certificate.unlink()
    kept.look()
    assert "cannot be read" in (kept.refusal or "")
    assert not Taken(kept).renew()


class Later(SystemClock):
    """A clock that can be set to the day after tomorrow."""

    is_later = False

    def wall_ms(self) -> int:
        return super().wall_ms() + (2 * 86_400_000 if self.is_later else 0)


def test_a_certificate_of_tomorrow_is_taken_up_when_its_time_has_come(authority: Authority) -> None:
    pair, clock = authority.issue("server"), Later()
    kept = ReloadingCredentials(files_of(pair), clock)
    taken = Taken(kept)
    pair.replace_by(authority.issue("next", since=DAY, lasts=2 * DAY))
    kept.look()
    assert "is not valid before" in (kept.refusal or "")
    clock.is_later = True
    kept.look()
    assert kept.refusal is None
    assert taken.renew()
    assert taken.current is kept.current


def test_an_expiry_in_service_is_told_once(authority: Authority) -> None:
    clock = Later()
    kept = ReloadingCredentials(files_of(authority.issue("server")), clock)
    clock.is_later = True
    with capture_logs() as lines:
        kept.look()
        kept.look()
    assert [line["event"] for line in lines] == ["certificate_expired"]


def test_a_rotation_that_the_transport_cannot_use_leaves_the_old_ones(authority: Authority) -> None:
    pair = authority.issue("server")
    kept = ReloadingCredentials(files_of(pair), CLOCK)
    first, taken = kept.current, Taken(kept)

    def refuse(_new: object) -> None:
        raise ValueError("no such kind of key")

    kept.on_changed = refuse
    pair.replace_by(authority.issue("next"))
    kept.look()
    assert (kept.current, kept.refusal, taken.renew()) == (first, "no such kind of key", False)
