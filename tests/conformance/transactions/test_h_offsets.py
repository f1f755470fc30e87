"""H. Offsets in transactions."""

from __future__ import annotations

from tests.conformance.transactions.cases import still_open

WHY = "there is no group coordinator yet"

still_open(238, WHY)
still_open(239, WHY)
still_open(241, WHY)
still_open(242, WHY)
still_open(243, WHY)
still_open(245, WHY)
still_open(246, WHY)
still_open(247, WHY)
still_open(249, WHY)
still_open(250, WHY)
still_open(251, WHY)
still_open(253, WHY)
still_open(254, WHY)
still_open(255, WHY)
still_open(257, WHY)
still_open(258, WHY)
