"""The quotas of one server, from its settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coordinator_runtime.clock import Clock
from coordinator_server.traffic.quotas.budgets import Budgets
from coordinator_server.traffic.quotas.quota_file import ReloadingQuotas
from coordinator_server.traffic.quotas.rules import QuotaRules


@dataclass(frozen=True, slots=True)
class Quotas:
    """What bounds callers, and the file that says how much."""

    budgets: Budgets | None = None
    """None: nobody is bound, because nobody is asked who they are and no file says anything."""
    kept: ReloadingQuotas | None = None

    @classmethod
    def read(cls, file: Path | None, clock: Clock, *, are_callers_asked: bool, unbound: Iterable[str]) -> Quotas:
        """`unbound`: who is bound by tables with their own name only. Raises QuotasRefused."""
        if file is None and not are_callers_asked:
            return NO_QUOTAS
        kept, built_in = None if file is None else ReloadingQuotas(file), QuotaRules()
        return cls(Budgets(clock, lambda: built_in if kept is None else kept.rules, unbound), kept)


NO_QUOTAS: Final = Quotas()
