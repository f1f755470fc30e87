"""End of a load: open transactions end, and their records are copied and counted."""

from __future__ import annotations

import time
from typing import Final

from bench.soak.auditor import Auditor
from bench.soak.crew import Crew
from bench.soak.work import COPIES, ORDERS
from coordinator_client import Admin

_STUCK_S: Final = 300.0
"""Time without a new copy after which the copiers are given up (s). Missing copies are then reported as a
difference."""


def finish(endpoint: str, crew: Crew, auditor: Auditor) -> None:
    """End all processes, in the order in which they wait for each other. Raises LoadFailed, and the error that stopped
    the auditor."""
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
    """Return when no transaction of these ids is open. A transaction of a killed process times out."""
    with Admin(endpoint) as admin:
        while any(found.age_ms is not None for found in admin.list_transactions(pattern=pattern)):
            time.sleep(1)
