"""Values about a server that the process around the core measures and remembers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from msgspec import Struct


class Rates(Struct, frozen=True):
    """Rates and levels, measured at regular intervals."""

    interval_ms: int = 0
    end_ms: int = 0
    """Time of the newest values."""
    series: Mapping[str, Sequence[float]] = {}
    """Values by name, the oldest first; all series have as many."""


class NotedEvent(Struct, frozen=True):
    """One recent event."""

    at_ms: int
    kind: str
    principal: str = ""
    client_id: str = ""
    host: str = ""
    facts: Mapping[str, str] = {}


class Setting(Struct, frozen=True):
    """One setting in force."""

    name: str
    value: str
    """The value as JSON."""
    origin: str = ""
    """Source of the value; empty if it is not known."""


class QuotaOf(Struct, frozen=True):
    """One quota of a principal."""

    name: str
    held: int | None = None
    """Number that is held; None for a rate."""
    maximum: int | None = None
    pause_ms: int = 0


class QuotaHolder(Struct, frozen=True):
    """A principal with its quotas."""

    principal: str
    quotas: Sequence[QuotaOf]


class QuotaUse(Struct, frozen=True):
    """Quotas of a server. `has_quotas` is False if it limits no caller."""

    has_quotas: bool = False
    holders: Sequence[QuotaHolder] = ()
    refusals: Mapping[str, int] = {}
    throttles: Mapping[str, int] = {}


class Observed(Protocol):
    """Memory of the process around the core."""

    def rates(self) -> Rates: ...

    def events(self, limit: int, kinds: Collection[str]) -> Sequence[NotedEvent]:
        """Return the newest events of these kinds, or of all kinds, the newest first."""

    def settings(self) -> Sequence[Setting]: ...

    def quotas(self) -> QuotaUse: ...


class NothingObserved:
    """Memory of a core without a process around it."""

    def rates(self) -> Rates:
        return Rates()

    def events(self, limit: int, kinds: Collection[str]) -> Sequence[NotedEvent]:
        return ()

    def settings(self) -> Sequence[Setting]:
        return ()

    def quotas(self) -> QuotaUse:
        return QuotaUse()
