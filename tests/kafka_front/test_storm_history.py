"""Lines that producers of a storm tell, and the operations that these become in its history."""

from __future__ import annotations

from typing import Any

import pytest

from tests.histories.form import End, Init, Outcome, Producer, Send, SendOffsets, Verdict
from tests.kafka_front.kill_storm import Client
from tests.kafka_front.storm_history import of_client

BEGAN = {"began": ["sdk-0.1.1.0", "sdk-0.1.1.1"], "partitions": [2, 0], "group": "of-sdk-0", "offset": 1, "at": 10.0}
OF_JAVA = {"began": ["java-0.1.1.0", "java-0.1.1.1"], "group": "of-java-0", "offset": 1_000_001}


def told(transactional_id: str, *lines: dict[str, Any]) -> list[Any]:
    client = Client(transactional_id, lambda _storm, _life: ())
    for line in lines:
        client.note(line)
    return list(of_client(client, {"java-0.1.1.0": "payments/1"}))


def test_a_committed_transaction_has_all_its_sends_and_the_offsets_that_are_known() -> None:
    operations = told(
        "sdk-0", BEGAN, {"asks": "commit", "at": 11.0}, {"sent": "sdk-0.1.1.1", "offset": 7, "at": 12.0},
        {"fate": "committed", "at": 13.0},
    )  # fmt: skip
    what = {"process": "sdk-0", "invoked": 10, "txn": "sdk-0.1.1", "session": 0}
    assert operations == [
        Send(**what, completed=13, k="payments/2", values=("sdk-0.1.1.0",)),
        Send(**what, completed=12, k="payments/0", values=("sdk-0.1.1.1",), offsets=(7,)),
        End(process="sdk-0", invoked=11, completed=13, txn="sdk-0.1.1", verdict=Verdict.COMMIT),
    ]


@pytest.mark.parametrize(
    ("lines", "ends"),
    [
        ([], []),
        ([{"asks": "commit", "at": 11.0}], [(Verdict.COMMIT, Outcome.INFO, None)]),
        ([{"asks": "commit", "at": 11.0}, {"fate": "unknown", "at": 12.0}], [(Verdict.COMMIT, Outcome.INFO, None)]),
        ([{"asks": "commit", "at": 11.0}, {"fate": "aborted", "at": 12.0}], [(Verdict.COMMIT, Outcome.FAIL, 12)]),
        ([{"asks": "abort", "at": 11.0}, {"fate": "aborted", "at": 12.0}], [(Verdict.ABORT, Outcome.OK, 12)]),
        ([{"asks": "abort", "at": 11.0}], [(Verdict.ABORT, Outcome.INFO, None)]),
        ([{"fate": "aborted", "at": 12.0}], [(Verdict.ABORT, Outcome.OK, 12)]),
    ],
)
def test_the_end_is_what_its_producer_knows(
    lines: list[dict[str, Any]], ends: list[tuple[Verdict, Outcome, float | None]]
) -> None:
    """A producer that was killed before it asked for the end cannot have committed."""
    earlier = [{**BEGAN, "began": ["sdk-0.1.0.0"], "partitions": [0], "at": 0.5}, {"asks": "commit", "at": 1.0}]
    operations = told("sdk-0", *earlier, {"fate": "committed", "at": 2.0}, BEGAN, *lines)
    found = [each for each in operations if isinstance(each, End) and each.txn == "sdk-0.1.1"]
    assert [(each.verdict, each.type, each.completed) for each in found] == ends
    sends = [each for each in operations if isinstance(each, Send) and each.txn == "sdk-0.1.1"]
    assert {each.type for each in sends} == {Outcome.INFO}


def test_a_producer_that_tells_no_times_may_have_asked_for_the_commit_at_once() -> None:
    sends, offsets, ends = [], [], []
    for each in told("java-0", OF_JAVA):
        {Send: sends, SendOffsets: offsets, End: ends}[type(each)].append(each)
    assert [each.k for each in sends] == ["payments/1", "payments/?"]
    assert [(each.group, each.positions, each.type) for each in offsets] == [
        ("of-java-0", {"payments/0": 1_000_001}, Outcome.INFO)
    ]
    assert [(each.verdict, each.type, each.invoked) for each in ends] == [(Verdict.COMMIT, Outcome.INFO, 0)]


def test_a_producer_tells_its_identity() -> None:
    init, *_, end = told(
        "stub-0", {"producer": [7, 3], "since": 8.0, "at": 9.0}, BEGAN,
        {"asks": "commit", "at": 11.0, "producer": [7, 4]}, {"fate": "committed", "at": 12.0},
    )  # fmt: skip
    assert init == Init(process="stub-0", invoked=8, completed=9, producer=Producer("stub-0", 7, 3))
    assert end.producer == Producer("stub-0", 7, 4)
