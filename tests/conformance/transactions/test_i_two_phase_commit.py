"""I. Two-phase commit with outside participants (KIP-939)."""

from __future__ import annotations

from tests.conformance.transactions.cases import still_open

still_open(259, "its test is not written yet")
still_open(261, "its test is not written yet")
still_open(262, "its test is not written yet")
still_open(263, "its test is not written yet")
still_open(265, "its test is not written yet")
still_open(266, "its test is not written yet")
still_open(267, "its test is not written yet")
still_open(269, "its test is not written yet")
still_open(270, "its test is not written yet")
still_open(271, "its test is not written yet")
still_open(273, "its test is not written yet")
still_open(274, "its test is not written yet")
still_open(275, "its test is not written yet")
still_open(277, "its test is not written yet")
