"""Questions that are asked again and again, and never while a decision on one stands."""

from __future__ import annotations

from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.questions import Question


class Answers:
    """An answerer that waits for the test's word, and a record of answers."""

    def __init__(self, *, wanted: str = "news") -> None:
        self._wanted = wanted
        self.asked: list[Pending[str]] = []
        self.taken: list[str] = []
        self.question = Question(self._perform, self._take)

    def _perform(self) -> Pending[str]:
        reply: Pending[str] = Pending()
        self.asked.append(reply)
        return reply

    def _take(self, reply: Pending[str]) -> bool:
        self.taken.append(reply.result())
        return self.taken[-1] == self._wanted


def test_it_is_not_asked_while_a_decision_stands() -> None:
    answers = Answers()
    for _time in range(3):
        answers.question.ask()
    assert len(answers.asked) == 1


def test_what_was_asked_meanwhile_is_asked_once_after_that() -> None:
    answers = Answers()
    for _time in range(3):
        answers.question.ask()
    answers.asked[0].succeed("nothing")
    assert len(answers.asked) == 2
    answers.asked[1].succeed("nothing")
    assert len(answers.asked) == 2


def test_it_is_asked_again_when_nothing_stands() -> None:
    answers = Answers()
    answers.question.ask()
    answers.asked[0].succeed("nothing")
    answers.question.ask()
    assert (len(answers.asked), answers.taken) == (2, ["nothing"])


def test_after_the_answer_it_is_not_asked_although_it_was_due() -> None:
    answers = Answers()
    answers.question.ask()
    answers.question.ask()
    answers.asked[0].succeed("news")
    assert (len(answers.asked), answers.taken) == (1, ["news"])


def test_a_reply_that_is_there_at_once_stands_for_no_time() -> None:
    taken: list[int] = []

    def take(reply: Pending[int]) -> bool:
        taken.append(reply.result())
        return False

    question = Question(lambda: settled(1), take)
    question.ask()
    question.ask()
    assert taken == [1, 1]
