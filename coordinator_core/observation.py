"""Observation of a server by its operators: rates, recent events, settings, quotas, snapshots.

The process around the core measures and remembers these. This module checks the permissions of callers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from coordinator_core.observed import NotedEvent, NothingObserved, Observed, QuotaUse, Rates, Setting
from coordinator_protocol.acls import CLUSTER_NAME
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.ports import Authorizer, CallContext, Permission, ResourceType, require
from partition_log.leases import HeldLease, Leases

EVENTS_MAX: Final = 1_000
"""Largest number of events in one answer."""
EVENTS_USUAL: Final = 100


class Observation:
    """Use cases of operators. Callers need DESCRIBE on the cluster; without it all methods raise Refused."""

    def __init__(self, leases: Leases, authorizer: Authorizer) -> None:
        self._leases = leases
        self._authorizer = authorizer
        self.observed: Observed = NothingObserved()
        """Set by the process around the core."""

    def rates(self, context: CallContext) -> Rates:
        """Return rates of the last hour."""
        self._require(context)
        return self.observed.rates()

    def events(self, limit: int, kinds: Collection[str], context: CallContext) -> Sequence[NotedEvent]:
        """Return the newest events. Raises Refused INVALID_REQUEST for a limit out of its range."""
        self._require(context)
        if not 0 <= limit <= EVENTS_MAX:
            raise Refused(ErrorCode.INVALID_REQUEST, f"limit is {limit} and must be from 0 to {EVENTS_MAX}")
        return self.observed.events(limit or EVENTS_USUAL, kinds)

    def settings(self, context: CallContext) -> Sequence[Setting]:
        """Return the settings in force. The caller needs DESCRIBE_CONFIGS on the cluster instead."""
        self._require(context, Permission.DESCRIBE_CONFIGS)
        return self.observed.settings()

    def quotas(self, context: CallContext) -> QuotaUse:
        """Return the quotas of principals, with the amounts held."""
        self._require(context)
        return self.observed.quotas()

    def snapshots(self, context: CallContext) -> Sequence[HeldLease]:
        """Return the leases, the oldest first."""
        self._require(context)
        return self._leases.held()

    def _require(self, context: CallContext, permission: Permission = Permission.DESCRIBE) -> None:
        require(self._authorizer, context, permission, ResourceType.CLUSTER, CLUSTER_NAME)
