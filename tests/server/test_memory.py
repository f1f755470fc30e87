"""The collector rests while state is loaded, and works again whatever came of it."""

from __future__ import annotations

import gc
import platform
import subprocess
import sys
from collections.abc import Iterator

import pytest

from coordinator_protocol.limits import MEBI
from coordinator_server.host.memory import FreedMemory, loading_for_good


@pytest.fixture(autouse=True)
def collector_as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_it_rests_and_goes_on_without_what_is_there() -> None:
    gc.unfreeze()
    with loading_for_good():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0


def test_it_goes_on_after_a_load_that_failed() -> None:
    with pytest.raises(LookupError), loading_for_good():
        raise LookupError
    assert gc.isenabled()


def test_a_busy_server_does_not_look_for_garbage_after_every_transaction() -> None:
    pythons_own = 700
    with loading_for_good():
        pass
    assert gc.get_threshold()[0] > 10 * pythons_own


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library of this machine is not glibc")
def test_the_allocator_takes_every_option() -> None:
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "from coordinator_protocol.allocation import keep_freed_memory; print(keep_freed_memory())",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "True\n"


def test_memory_is_given_back_when_the_process_is_quiet_and_much_has_come() -> None:
    freed = FreedMemory(100 * MEBI)
    assert not freed.is_due(131 * MEBI, busy_share=0.0)
    assert not freed.is_due(132 * MEBI, busy_share=0.9)
    assert freed.is_due(132 * MEBI, busy_share=0.1)


def looks_until_due(freed: FreedMemory, busy_share: float) -> int:
    return next(looks for looks in range(1, 100) if freed.is_due(400 * MEBI, busy_share))


def test_what_may_be_in_use_is_tried_again_and_ever_more_seldom_until_something_is_gained() -> None:
    freed = FreedMemory(100 * MEBI)
    waited = []
    for _ in range(8):
        waited.append(looks_until_due(freed, busy_share=0.0))
        freed.gave_back(400 * MEBI, 390 * MEBI)
    assert waited == [1, 2, 4, 8, 16, 32, 60, 60]
    freed.gave_back(400 * MEBI, 300 * MEBI)
    assert looks_until_due(freed, busy_share=0.0) == 1


def test_a_process_that_is_never_quiet_gives_back_in_the_end() -> None:
    assert looks_until_due(FreedMemory(0), busy_share=1.0) == 60
