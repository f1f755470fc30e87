"""Ids and jitter as the machine has them."""

from __future__ import annotations

import os
import random

from coordinator_client.random_source import SystemRandomSource


def test_no_request_id_is_given_twice_and_each_names_sixteen_bytes() -> None:
    one, other = SystemRandomSource(), SystemRandomSource()
    ids = [source.request_id() for _ in range(1_000) for source in (one, other)]
    assert len(set(ids)) == len(ids)
    assert {len(each) for each in ids} == {16}


def test_a_fork_does_not_repeat_its_parents_ids_and_jitter() -> None:
    source = SystemRandomSource()
    source.request_id()
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.write(writing, b"".join(source.request_id() for _ in range(100)) + repr(source.fraction()).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        drawn, jitter = pipe.read(1_600), pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    theirs = {drawn[at : at + 16] for at in range(0, len(drawn), 16)}
    ours = {source.request_id() for _ in range(100)}
    assert len(theirs) == len(ours) == 100
    assert not theirs & ours
    assert 0 <= float(jitter) < 1
    assert float(jitter) != source.fraction()


def test_an_application_that_has_seeded_its_generator_gets_its_own_numbers() -> None:
    random.seed(7)
    expected = random.random()
    random.seed(7)
    SystemRandomSource().fraction()
    assert random.random() == expected
