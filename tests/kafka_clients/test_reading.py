"""Reading of what suites print: the table of librdkafka's runner, its summary, and names of cases."""

from __future__ import annotations

from typing import Final

import pytest

from tests.kafka_clients.results import Case, Outcome, SuiteResult, record
from tests.kafka_clients.suite import Finished
from tests.kafka_clients.suites.librdkafka import NumberedTest, cases_of_number, numbered_tests

_TABLE: Final = """
struct test tests[] = {
    _TEST(0001_multiobj, 0),
    _TEST(0004_conf, TEST_F_LOCAL),
    _TEST(0045_subscribe_update, 0, TEST_BRKVER(0, 9, 0, 0)),
    _TEST(0045_topic_remove,
          0,
          TEST_BRKVER(0, 9, 0, 0),
          .scenario = "noautocreate"),
    _TEST(0103_transactions, 0, .scenario = "default,ak23"),
    _TEST(8000_idle, TEST_F_MANUAL),
};
"""
_SUMMARY: Final = (
    "|\x1b[1;32m 0045_subscribe_update  |     PASSED |  70.1s \x1b[0m|\n"
    "|\x1b[36m 0045_racks | SKIPPED | 0.0s \x1b[0m| wants racks\n"
    "|\x1b[31m 0045_many | FAILED | 1.0s \x1b[0m| no assignment\n"
)


def test_tests_without_a_broker_are_left_out() -> None:
    assert numbered_tests(_TABLE) == [
        NumberedTest("0001_multiobj", "default"),
        NumberedTest("0045_subscribe_update", "default"),
        NumberedTest("0045_topic_remove", "noautocreate"),
        NumberedTest("0103_transactions", "default"),
    ]


def test_each_test_of_a_number_is_a_case() -> None:
    names = ["0045_subscribe_update", "0045_racks", "0045_many"]
    assert cases_of_number(names, Finished(1, _SUMMARY)) == [
        Case("0045_subscribe_update", Outcome.PASSED),
        Case("0045_racks", Outcome.SKIPPED, "wants racks"),
        Case("0045_many", Outcome.FAILED, "no assignment"),
    ]


def test_a_test_that_did_not_end_failed() -> None:
    ended = Finished(None, '[x] going on\n### Test "0001_multiobj" failed at x: ###\nno broker\n')
    assert cases_of_number(["0001_multiobj"], ended) == [Case("0001_multiobj", Outcome.FAILED, "no broker")]


def test_what_ended_before_a_crash_counts() -> None:
    crashed = Finished(-6, "================= Test 0045_subscribe_update PASSED =================\nassertion failed\n")
    assert cases_of_number(["0045_subscribe_update", "0045_many"], crashed) == [
        Case("0045_subscribe_update", Outcome.PASSED),
        Case("0045_many", Outcome.FAILED, "assertion failed"),
    ]


def test_a_runner_that_fails_after_its_tests_is_a_failure() -> None:
    first, last = cases_of_number(["0045_subscribe_update"], Finished(-6, _SUMMARY))
    assert (first.outcome, last.outcome) == (Outcome.PASSED, Outcome.FAILED)


@pytest.mark.parametrize(
    ("case", "classes"),
    [
        ("server.JoinGroupRequestTest.testJoin()[2]", ["server.JoinGroupRequestTest"]),
        ("admin.DeleteTopicTest.end of the class", ["admin.DeleteTopicTest"]),
        ("TestRecordReader/%v{re[.]}", []),
        ("0001_multiobj", []),
    ],
)
def test_only_tests_in_java_are_counted_by_class(case: str, classes: list[str]) -> None:
    result = SuiteResult("s", "c", "1", "all", (Case(case, Outcome.PASSED),))
    assert [each.name for each in record(result, date="", commit="").classes] == classes
