"""Histories as files, and what the program prints about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.histories.__main__ import main
from tests.histories.form import Poll, Send, history, parse, read, written
from tests.histories.test_anomalies import FINAL, A, a_correct_history, an_aborted_value_is_read, hide


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    story = a_correct_history()
    path = tmp_path / "history.jsonl"
    path.write_bytes(written(story))
    assert read(path) == history(story)


def test_a_line_is_short() -> None:
    send = Send(process="p", invoked=1, completed=2, k=A, values=("a1",), offsets=(0,))
    assert written([send]) == (
        b'{"f":"send","process":"p","invoked":1,"completed":2,"k":"orders/0","values":["a1"],"offsets":[0]}\n'
    )


def test_operations_are_ordered_by_their_beginnings_and_keep_their_lines() -> None:
    polls = [Poll(process="p", invoked=moment, completed=9) for moment in (5, 2)]
    assert [(line, each.invoked) for line, each in history(polls).operations] == [(2, 2), (1, 5)]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"{}", "line 1: .*`f`"),
        (b'{"f":"send","process":"p","invoked":1,"completed":2}', "line 1: .*`k`"),
        (b'{"f":"poll","process":"p","invoked":1}', "no time of its completion"),
        (b'{"f":"poll","process":"p","invoked":2,"completed":1}', "before it began"),
        (b'{"f":"poll","process":"p","invoked":1,"completed":2,"colour":3}', "colour"),
        (b'{"f":"send","process":"p","invoked":1,"completed":2,"k":"a","values":["x","y"],"offsets":[1]}', "some of"),
    ],
)
def test_a_line_that_is_not_in_the_form_is_refused(line: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse([line])


def test_the_program_prints_each_violation_and_the_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right, wrong = tmp_path / "right.jsonl", tmp_path / "wrong.jsonl"
    right.write_bytes(written(a_correct_history()))
    story = a_correct_history()
    an_aborted_value_is_read(story)
    hide(story, FINAL, "c1")
    wrong.write_bytes(written(story))
    assert main([str(right)]) == 0
    assert capsys.readouterr().out == f"{right}: 28 operations; violations: none; without material: none\n"
    assert main([str(right), str(wrong)]) == 1
    printed = capsys.readouterr().out
    assert f"{wrong}:26: I1 aborted read: x1 at orders/0/3 is read, and mistake did not commit\n" in printed
    assert f"{wrong}: 28 operations; violations: I1 1, I6 1, I20 1; without material: none\n" in printed


def test_the_program_wants_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err == "python -m tests.histories FILE...\n"
