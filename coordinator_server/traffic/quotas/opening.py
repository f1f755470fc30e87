"""Quotas of one server, from its settings."""

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
    """The budgets of callers, and the reloaded file with their quotas."""

    budgets: Budgets | None = None
    """Budgets of callers; None if there is neither authentication nor a quotas file, so that no caller is limited."""
    reloading: ReloadingQuotas | None = None

    @classmethod
    def read(cls, file: Path | None, clock: Clock, *, are_callers_asked: bool, unbound: Iterable[str]) -> Quotas:
        """Read the quotas file. `unbound` are principals that only tables with their own name restrict. Raises
        QuotasRefused."""
        if file is None and not are_callers_asked:
            return NO_QUOTAS
        reloading, built_in = None if file is None else ReloadingQuotas(file), QuotaRules()
        return cls(Budgets(clock, lambda: built_in if reloading is None else reloading.rules, unbound), reloading)


NO_QUOTAS: Final = Quotas()
