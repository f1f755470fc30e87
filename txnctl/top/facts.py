"""Questions of `txnctl top` to the server: those of the page, with the rights of its caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from coordinator_client.admin.admin import Admin
from coordinator_client.admin.observing import PartitionListing, RateHistory, TransactionPage
from coordinator_client.descriptions.group_offsets import GroupLag
from coordinator_client.descriptions.groups import GroupListing
from coordinator_client.errors import Rejected, Retriable, TransactionError
from coordinator_protocol.errors import ErrorCode
from txnctl.output import Row

T = TypeVar("T")

OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
LISTED_MAX: Final = 200
"""Largest number of transactions, partitions and groups that are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStanding:
    """A group and its lag: the records that its members have not read, over all partitions."""

    group_id: str
    kind: str
    state: str
    lag: int | None
    lag_to_end: int | None
    pending: int
    """Number of offsets that wait for a transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottledCaller:
    """A caller whose quota is used up for the moment."""

    principal: str
    quota: str
    pause_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopFacts:
    """State of a server at one moment."""

    at_ms: int
    rates: RateHistory | None = None
    open: TransactionPage | None = None
    blocked: Sequence[PartitionListing] = ()
    """Partitions with an open transaction, the longest one first."""
    groups: Sequence[GroupStanding] = ()
    """Groups, the largest lag first."""
    throttled: Sequence[ThrottledCaller] = ()
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Reasons why the caller does not see a section, by its name."""

    def row(self) -> Row:
        """Return the state for programs."""
        found = self.open
        return {
            "at_ms": self.at_ms,
            "rates": {} if self.rates is None else {name: each[-1] for name, each in self.rates.series.items() if each},
            "open_transactions": None if found is None else found.matching,
            "oldest_transactions": [
                {
                    "transactional_id": each.transactional_id,
                    "state": each.state,
                    "producer_id": each.producer_id,
                    "age_ms": each.age_ms,
                }
                for each in (() if found is None else found.transactions)
            ],
            "blocked_partitions": [_blocked_row(each) for each in self.blocked],
            "groups": [
                {
                    "group_id": each.group_id,
                    "group_type": each.kind,
                    "state": each.state,
                    "lag_to_last_stable_offset": each.lag,
                    "lag_to_high_watermark": each.lag_to_end,
                    "pending_offsets": each.pending,
                }
                for each in self.groups
            ],
            "throttled": [
                {"principal": each.principal, "quota": each.quota, "pause_ms": each.pause_ms} for each in self.throttled
            ],
            "refused": dict(self.refusals),
        }


def ask_facts(admin: Admin, at_ms: int) -> TopFacts:
    """Ask for everything. What the caller may not see is left out, with the reason. Raises Retriable."""
    refusals: dict[str, str] = {}

    def allowed(name: str, question: Callable[[], T], otherwise: T) -> T:
        try:
            return question()
        except Retriable:
            raise
        except TransactionError as error:
            refusals[name] = error.reason
            return otherwise

    return TopFacts(
        at_ms=at_ms,
        rates=allowed("rates", admin.rates, None),
        open=allowed("open", lambda: admin.oldest_transactions(limit=LISTED_MAX, states=OPEN_STATES), None),
        blocked=allowed("blocked", lambda: _blocked(admin), ()),
        groups=allowed("groups", lambda: _groups(admin), ()),
        throttled=allowed("throttled", lambda: _throttled(admin), ()),
        refusals=refusals,
    )


def _blocked(admin: Admin) -> Sequence[PartitionListing]:
    found = admin.list_partitions(only_open=True, limit=1_000).partitions
    return sorted(found, key=lambda each: -_blocked_ms(each))


def _blocked_ms(found: PartitionListing) -> int:
    return -1 if found.blocker is None else found.blocker.age_ms


def _blocked_row(found: PartitionListing) -> Row:
    blocker = found.blocker
    return {
        "topic": found.topic,
        "partition": found.partition,
        "last_stable_offset": found.last_stable_offset,
        "high_watermark": found.high_watermark,
        "open_transactions": found.open_transactions,
        "transactional_id": None if blocker is None else blocker.transactional_id or None,
        "age_ms": None if blocker is None else blocker.age_ms,
    }


def _groups(admin: Admin) -> Sequence[GroupStanding]:
    listed = admin.list_groups()[:LISTED_MAX]
    lags = admin.lag_of_groups([each.group_id for each in listed if each.group_type != "share"])
    found = [
        _share_standing(admin, each) if each.group_type == "share" else _standing(each, lags.get(each.group_id, ()))
        for each in listed
    ]
    return sorted(found, key=lambda each: (-(each.lag or 0), each.group_id))


def _standing(listed: GroupListing, lags: Sequence[GroupLag]) -> GroupStanding:
    counted = [each.lag for each in lags if each.lag is not None]
    return GroupStanding(
        group_id=listed.group_id,
        kind=listed.group_type,
        state=listed.state,
        lag=sum(each.to_last_stable_offset for each in counted) if counted else None,
        lag_to_end=sum(each.to_high_watermark for each in counted) if counted else None,
        pending=sum(len(each.offset.pending) for each in lags),
    )


def _share_standing(admin: Admin, listed: GroupListing) -> GroupStanding:
    try:
        offsets = admin.share_group_offsets(listed.group_id)
    except Rejected as error:
        # It was listed and has been deleted since.
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        offsets = []
    counted = [each.lag for each in offsets if each.lag is not None]
    lag = sum(counted) if counted else None
    return GroupStanding(group_id=listed.group_id, kind="share", state=listed.state, lag=lag, lag_to_end=lag, pending=0)


def _throttled(admin: Admin) -> Sequence[ThrottledCaller]:
    found = [
        ThrottledCaller(principal=principal, quota=quota.name, pause_ms=quota.pause_ms)
        for principal, quotas in admin.quotas().holders.items()
        for quota in quotas
        if quota.pause_ms > 0
    ]
    return sorted(found, key=lambda each: -each.pause_ms)
