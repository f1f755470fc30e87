"""The end of a load: whatever was begun comes to its end, is copied, and is counted."""

from __future__ import annotations

import time
from typing import Final

from bench.soak.auditor import Auditor
from bench.soak.crew import Crew
from bench.soak.work import COPIES, ORDERS
from coordinator_client import Admin

_STUCK_S: Final = 300.0
"""After so long without a copy the copiers are given up, and what they left out is told as a difference."""


def finish(endpoint: str, crew: Crew, auditor: Auditor) -> None:
    """End everybody, in the order in which they wait for each other. Raises: LoadFailed; what kept the auditor from
    reading."""
    crew.end("transact", "visit", "send_bulk")
    _await_the_ends_of("soak-.*", endpoint)
    auditor.read_all(ORDERS)
    since, counted = time.monotonic(), -1
    while auditor.counts[COPIES] < auditor.counts[ORDERS] and time.monotonic() - since < _STUCK_S:
        if auditor.counts[COPIES] != counted:
            since, counted = time.monotonic(), auditor.counts[COPIES]
        crew.check()
        time.sleep(1)
    crew.end("copy")
    _await_the_ends_of("copier-.*", endpoint)
    auditor.read_all(ORDERS, COPIES)
    auditor.stop()


def _await_the_ends_of(pattern: str, endpoint: str) -> None:
    """Return when no transaction of these ids is open: what a killed one left times out."""
    with Admin(endpoint) as admin:
        while any(found.age_ms is not None for found in admin.list_transactions(pattern=pattern)):
            time.sleep(1)
