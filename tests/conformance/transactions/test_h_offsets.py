"""H. Offsets in transactions."""

from __future__ import annotations

from tests.conformance.transactions.cases import still_open

still_open(238, "its test is not written yet")
still_open(239, "its test is not written yet")
still_open(241, "its test is not written yet")
still_open(242, "its test is not written yet")
still_open(243, "its test is not written yet")
still_open(245, "its test is not written yet")
still_open(246, "its test is not written yet")
still_open(247, "its test is not written yet")
still_open(249, "its test is not written yet")
still_open(250, "its test is not written yet")
still_open(251, "its test is not written yet")
still_open(253, "its test is not written yet")
still_open(254, "its test is not written yet")
still_open(255, "its test is not written yet")
still_open(257, "its test is not written yet")
still_open(258, "its test is not written yet")
