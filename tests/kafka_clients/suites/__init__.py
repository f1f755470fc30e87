"""The suites, in the order of a run."""

from __future__ import annotations

from typing import Final

from tests.kafka_clients.suite import Suite
from tests.kafka_clients.suites import kgo, stories

SUITES: Final[tuple[Suite, ...]] = (*stories.SUITES, kgo.SUITE)
