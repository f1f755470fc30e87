"""The cases of Kafka's group coordinator and our own, by their numbers; numbers that are left out are not rows.

`@case(254)` marks the test of row 254, `not_drivable` and `still_open` say why a row has none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.conformance.suite import Suite

SUITE: Final = Suite(
    __package__,
    Path(__file__).with_name("cases.tsv"),
    {
        "A": "Service checks, routing, recovery",
        "B": "Classic join and initial delay",
        "C": "Capacity",
        "D": "Classic static members",
        "E": "SyncGroup",
        "F": "Heartbeat and session",
        "G": "LeaveGroup",
        "H": "Describe, List, Delete",
        "I": "Consumer group heartbeat: validation, join, leave",
        "J": "Static members in consumer groups",
        "K": "Reconciliation and timers",
        "L": "Migration and mixed groups",
        "M": "Plain offsets",
        "N": "Transactional offsets",
        "O": "Expiry and removal",
        "P": "Assignors",
        "Q": "Share groups",
        "R": "Streams groups",
        "S": "Client library",
        "T": "System properties",
    },
)

case, not_drivable, still_open = SUITE.case, SUITE.not_drivable, SUITE.still_open
