"""J. Own cases, where Kafka is wrong or silent."""

from __future__ import annotations

from tests.conformance.transactions.cases import still_open

still_open(278, "its test is not written yet")
still_open(279, "its test is not written yet")
still_open(281, "its test is not written yet")
still_open(282, "its test is not written yet")
still_open(283, "its test is not written yet")
still_open(285, "its test is not written yet")
still_open(286, "its test is not written yet")
still_open(287, "its test is not written yet")
still_open(289, "its test is not written yet")
still_open(290, "its test is not written yet")
still_open(291, "its test is not written yet")
still_open(293, "its test is not written yet")
still_open(294, "its test is not written yet")
