"""Payloads in tests: topics that take any, and checks that need no other process."""

from __future__ import annotations

from typing import Final

from coordinator_protocol.limits import Limits
from partition_log.batch_checks import BatchChecks
from partition_log.catalog.settings import VALIDATE_PAYLOAD, PayloadValidation
from tests.harness.store_features import EveryFeature
from tests.harness.workers import HeldWorker

UNREADABLE_PAYLOADS: Final = {VALIDATE_PAYLOAD: PayloadValidation.HEADER}
"""Setting of topics whose payloads no reader could read: words are easier to read in a test than records are, and most
tests look at everything else."""


def checks_here(limits: Limits) -> BatchChecks:
    """Checks of batches that are done at once, whatever their size."""
    return BatchChecks(HeldWorker(), limits, features=EveryFeature())
