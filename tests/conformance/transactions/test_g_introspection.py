"""G. Introspection, administration, producer ids."""

from __future__ import annotations

from tests.conformance.transactions.cases import still_open

still_open(219, "its test is not written yet")
still_open(221, "its test is not written yet")
still_open(222, "its test is not written yet")
still_open(223, "its test is not written yet")
still_open(225, "its test is not written yet")
still_open(226, "its test is not written yet")
still_open(227, "its test is not written yet")
still_open(229, "its test is not written yet")
still_open(230, "its test is not written yet")
still_open(231, "its test is not written yet")
still_open(233, "its test is not written yet")
still_open(234, "its test is not written yet")
still_open(235, "its test is not written yet")
still_open(237, "its test is not written yet")
