"""The table as people read it and as programs do."""

from __future__ import annotations

import json
from dataclasses import replace

from bench.report import as_json, markdown, number
from bench.results import Run, Side
from tests.bench.fakes import report, result

OURS = result(Side.OURS, "SDK", 1_000, 1_200, 1_100)
STOCK = result(Side.KAFKA, "Java, stock", 100, 110, 120)
TUNED = result(Side.KAFKA, "Java, tuned", 400, 400, 400)


def test_the_table_has_a_line_for_each_contender_and_ratios_on_ours() -> None:
    lines = [line for line in markdown(report(OURS, STOCK, TUNED)).splitlines() if line.startswith("| c: r")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [line[:5] for line in cells] == [
        ["c: r", "ours", "ours disk", "SDK", "1,100 txn/s"],
        ["c: r", "kafka", "kafka disk", "Java, stock", "110 txn/s"],
        ["c: r", "kafka", "kafka disk", "Java, tuned", "400 txn/s"],
    ]
    assert [line[5] for line in cells] == ["18%", "18%", "0%"]
    assert [line[-1] for line in cells] == ["10x Java, stock, 2.8x Java, tuned", "", ""]


def test_the_head_names_machine_versions_settings_and_the_command() -> None:
    head = markdown(report(OURS)).partition("| case")[0]
    for said in ("abacus", "3.11", "Kafka, stock: defaults", "`python -m bench`", "medians of 3"):
        assert said in head


def test_a_quick_run_says_that_it_is_not_for_quoting() -> None:
    assert "not for quoting" in markdown(report(OURS, is_quick=True))
    assert "not for quoting" not in markdown(report(OURS))


def test_what_could_not_run_is_no_line_of_the_table_and_says_why() -> None:
    absent = replace(STOCK, runs=(), problem="no Maven")
    failed = replace(TUNED, runs=(), problem="it fell over", is_failure=True)
    text = markdown(report(OURS, absent, failed))
    assert text.count("| c: r") == 1
    assert "c: r, kafka, Java, stock: not run: no Maven" in text
    assert "c: r, kafka, Java, tuned: failed: it fell over" in text


def test_failed_operations_are_told_below_the_table() -> None:
    unlucky = replace(STOCK, runs=(Run(figure=1, errors=2, error_kinds="Fenced 2"), Run(figure=1)))
    assert "c: r, kafka, Java, stock: 2 operations failed (Fenced 2)" in markdown(report(unlucky))


def test_noise_on_the_machine_is_told() -> None:
    noisy = replace(OURS, runs=(Run(figure=1, other_cores=0.8),))
    assert "during 1 of 2 lines others took more than 0.1 cores" in markdown(report(noisy, STOCK))


def test_tables_of_others_follow() -> None:
    assert markdown(report(OURS)).endswith("## load_ids\n\na table of its own\n")


def test_the_json_holds_medians_ratios_and_every_run() -> None:
    written = json.loads(json.dumps(as_json(report(OURS, STOCK, replace(TUNED, runs=(), problem="no Maven")))))
    ours, stock, tuned = written["results"]
    assert ours["median"]["figure"] == 1_100
    assert ours["ratios"] == {"Java, stock": 10, "Java, tuned": None}
    assert [run["figure"] for run in ours["runs"]] == [1_000, 1_200, 1_100]
    assert (stock["side"], stock["durability"], stock["unit"]) == ("kafka", "kafka disk", "txn/s")
    assert (tuned["problem"], tuned["is_failure"]) == ("no Maven", False)
    assert (written["machine"], written["rounds"]) == ({"processor": "abacus"}, 3)


def test_numbers_have_three_digits_that_count() -> None:
    assert [number(value) for value in (0.01234, 1.2345, 99.94, 12_345.6)] == ["0.0123", "1.23", "99.9", "12,346"]
