"""The collector rests while state is loaded, and works again whatever came of it."""

from __future__ import annotations

import gc

import pytest

from coordinator_server.collector import loading_for_good


def test_it_rests_and_goes_on_without_what_is_there() -> None:
    gc.unfreeze()
    with loading_for_good():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    gc.unfreeze()


def test_it_goes_on_after_a_load_that_failed() -> None:
    with pytest.raises(LookupError), loading_for_good():
        raise LookupError
    assert gc.isenabled()
    gc.unfreeze()
