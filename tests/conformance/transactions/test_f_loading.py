"""F. Loading, unloading, the stored log."""

from __future__ import annotations

from tests.conformance.transactions.cases import still_open

still_open(193, "its test is not written yet")
still_open(194, "its test is not written yet")
still_open(195, "its test is not written yet")
still_open(197, "its test is not written yet")
still_open(198, "its test is not written yet")
still_open(199, "its test is not written yet")
still_open(201, "its test is not written yet")
still_open(202, "its test is not written yet")
still_open(203, "its test is not written yet")
still_open(205, "its test is not written yet")
still_open(206, "its test is not written yet")
still_open(207, "its test is not written yet")
still_open(209, "its test is not written yet")
still_open(210, "its test is not written yet")
still_open(211, "its test is not written yet")
still_open(213, "its test is not written yet")
still_open(214, "its test is not written yet")
still_open(215, "its test is not written yet")
still_open(217, "its test is not written yet")
still_open(218, "its test is not written yet")
