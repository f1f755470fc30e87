"""E. Timeouts and expiration."""

from __future__ import annotations

from tests.conformance.transactions.cases import still_open

still_open(175, "its test is not written yet")
still_open(177, "its test is not written yet")
still_open(178, "its test is not written yet")
still_open(179, "its test is not written yet")
still_open(181, "its test is not written yet")
still_open(182, "its test is not written yet")
still_open(183, "its test is not written yet")
still_open(185, "its test is not written yet")
still_open(186, "its test is not written yet")
still_open(187, "its test is not written yet")
still_open(189, "its test is not written yet")
still_open(190, "its test is not written yet")
still_open(191, "its test is not written yet")
