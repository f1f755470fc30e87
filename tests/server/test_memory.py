"""The collector rests while state is loaded, and works again whatever came of it."""

from __future__ import annotations

import gc
import platform
import subprocess
import sys
from collections.abc import Iterator

import pytest

from coordinator_server.memory import loading_for_good


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
