"""Quotas that hold for a principal, and the syntax of their file."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from coordinator_runtime.ports import Level
from coordinator_server.settings.config import Config
from coordinator_server.traffic.quotas.quota_file import QuotasRefused, ReloadingQuotas, read_quotas
from coordinator_server.traffic.quotas.rules import LEVELS, QuotaRules, Rate
from tests.harness.manual_clock import ManualClock

FILE = """
[[quotas]]
principal = "User:*"
produce_bytes_per_second = 1000
requests_per_second = 50
topics = 7

[[quotas]]
principal = "User:*"
client_id = "*"
requests_per_second = 5

[[quotas]]
principal = "User:etl"
produce_bytes_per_second = 2000

[[quotas]]
principal = "User:etl"
client_id = "nightly"
produce_bytes_per_second = 300
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "quotas.toml"
    file.write_text(FILE)
    return file


def test_every_value_comes_from_the_most_special_table_that_has_it(file: Path) -> None:
    rules = read_quotas(file)
    assert rules.rates_of("User:etl", None, is_bound=True) == {Rate.PRODUCE_BYTES: 2000, Rate.REQUESTS: 50}
    assert rules.rates_of("User:other", None, is_bound=True) == {Rate.PRODUCE_BYTES: 1000, Rate.REQUESTS: 50}
    assert rules.rates_of("User:etl", "nightly", is_bound=True) == {Rate.PRODUCE_BYTES: 300, Rate.REQUESTS: 5}
    assert rules.rates_of("User:etl", "daily", is_bound=True) == {Rate.REQUESTS: 5}


def test_what_the_file_does_not_say_is_built_in(file: Path) -> None:
    levels = read_quotas(file).levels_of("User:etl", is_bound=True)
    assert levels == {**LEVELS, Level.TOPICS: 7}
    assert set(LEVELS) == set(Level)
    assert QuotaRules().rates_of("User:etl", None, is_bound=True) == {}


def test_who_is_not_bound_is_bound_by_tables_with_its_name_only(file: Path) -> None:
    rules = read_quotas(file)
    assert rules.levels_of("User:root", is_bound=False) == {}
    assert rules.rates_of("User:root", None, is_bound=False) == {}
    assert rules.rates_of("User:etl", None, is_bound=False) == {Rate.PRODUCE_BYTES: 2000}
    assert rules.has_clients("User:other", is_bound=True)
    assert not rules.has_clients("User:root", is_bound=False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("quotas = 1", "quotas: write a list"),
        ("[[quotas]]", "quotas.0.principal: is not set"),
        ('[[quotas]]\nprincipal = "etl"', "principal"),
        (
            '[[quotas]]\nprincipal = "User:a"\nproduce_bytes_per_second = 0',
            "0.produce_bytes_per_second: must be",
        ),
        (
            '[[quotas]]\nprincipal = "User:a"\nproduce_bytes_per_second = "1"',
            "per_second: write a whole number",
        ),
        (
            '[[quotas]]\nprincipal = "User:a"\nproduce_bytes = 1',
            "produce_bytes is unknown; did you mean produce_bytes_per_second",
        ),
        ('[[quotas]]\nprincipal = "User:a"\nclient_id = "c"\ntopics = 1', "a client has rates only"),
        ('[[quotas]]\nprincipal = "User:a"\n[[quotas]]\nprincipal = "User:a"', "two tables of one principal"),
        ("[[quotas]", "is no TOML"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_place(file: Path, text: str, reason: str) -> None:
    file.write_text(text)
    with pytest.raises(QuotasRefused, match=reason) as refused:
        read_quotas(file)
    assert str(file) in str(refused.value)


def test_a_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(QuotasRefused, match="cannot be read: No such file"):
        read_quotas(tmp_path / "none.toml")


def test_a_file_that_became_wrong_leaves_the_old_rules_in_force(file: Path) -> None:
    kept = ReloadingQuotas(file)
    before = kept.rules
    with capture_logs() as log:
        kept.look()
        assert kept.rules is before
        file.write_text("nonsense")
        kept.look()
        assert kept.rules is before
        assert kept.refusal is not None
        file.write_text(FILE.replace("2000", "20_000"))
        kept.look()
    assert kept.rules.rates_of("User:etl", None, is_bound=True)[Rate.PRODUCE_BYTES] == 20_000
    assert kept.refusal is None
    assert [line["event"] for line in log] == ["quotas_refused", "quotas_changed"]


def test_a_server_without_authentication_and_file_has_no_bounds(tmp_path: Path, file: Path) -> None:
    plain = Config.model_validate({"data_dir": tmp_path})
    assert plain.quotas(ManualClock()).budgets is None
    told = Config.model_validate({"data_dir": tmp_path, "quotas_file": file, "super_users": "User:root"})
    assert told.quotas(ManualClock()).budgets is not None
