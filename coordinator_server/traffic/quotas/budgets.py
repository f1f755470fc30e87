"""Consumption of each principal, with its quotas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from heapq import nlargest
from typing import Final

from coordinator_core.observed import QuotaHolder, QuotaOf, QuotaUse
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.throttling import PAUSE_MS_MAX
from coordinator_runtime.clock import Clock
from coordinator_runtime.ports import Level
from coordinator_server.traffic.quotas.bucket import Bucket, full, pause_us, taken, with_rate
from coordinator_server.traffic.quotas.rules import QuotaRules, Rate

LEVEL_PAUSE_MS: Final = 1_000
"""Pause requested by a refusal if the principal must give something back first."""
CALLS_PAUSE_MS: Final = 50
"""Pause requested by a refusal if calls must be answered first, which takes some group commits."""
PATIENCE_PER_SECOND: Final = 100
"""Number of refusals per second that a principal gets, one after the other, besides a saved burst."""
PATIENCE_MS_MAX: Final = 1_000
"""Longest delay of a refusal: a call that ends a transaction may be behind it in the same stream."""
CLIENTS_MAX: Final = 100
"""Maximum number of client ids of a principal that are counted separately. Further ones share one bucket, because
callers choose them."""
PRINCIPALS_MAX: Final = 10_000
"""Number of principals from which those that hold nothing are forgotten."""
_OTHER_CLIENTS: Final = "\0"
"""Key for the shared bucket, as no client id has a NUL."""

HOLDERS_MAX: Final = 100
"""Largest number of principals in a report."""

Buckets = dict[Rate, Bucket]


class QuotaExceeded(Refused):
    """The principal has reached a quota. Nothing was done."""

    def __init__(self, quota: str, message: str, pause_ms: int) -> None:
        super().__init__(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)
        self.quota = quota
        self.throttle_ms = self.pause_ms = pause_ms


class Budget:
    """Consumption of one principal."""

    __slots__ = ("buckets", "clients", "has_clients", "held", "levels", "patience", "principal", "rules")

    def __init__(self, principal: str, now_us: int) -> None:
        self.principal = principal
        self.rules: QuotaRules | None = None
        """Rules behind the following fields: the newest, after `Budgets.of`."""
        self.levels: Mapping[Level, int] = {}
        """Maximum of each level; absent ones are unlimited."""
        self.buckets: Buckets = {}
        self.clients: dict[str, Buckets] = {}
        self.has_clients = False
        """True if the client ids of its calls matter."""
        self.held: Counter[Level] = Counter()
        self.patience = full(PATIENCE_PER_SECOND, now_us)
        """Remaining refusals that are sent at once."""

    def give_back(self, level: Level) -> None:
        """Decrement the level."""
        self.held[level] -= 1


class Budgets:
    """The budgets of all principals. Implements `coordinator_runtime.ports.Levels`. On the loop only."""

    def __init__(self, clock: Clock, rules: Callable[[], QuotaRules], unbound: Iterable[str] = ()) -> None:
        """Set up the budgets. `unbound` are principals that only tables with their own name restrict. They stand for
        many callers, or must get in when something is wrong."""
        self._clock = clock
        self._rules = rules
        self._unbound = frozenset(unbound)
        self._budgets: dict[str, Budget] = {}
        self.refused: Counter[str] = Counter()
        """Calls and sessions that were refused, by quota."""
        self.throttled: Counter[str] = Counter()
        """Answers that asked their caller to pause, by quota."""
        self.on_refused: Callable[[str, str], None] = lambda _principal, _quota: None
        """Called for every refusal, with the principal and the quota."""

    def of(self, principal: str) -> Budget:
        """Return the budget of a principal, by the newest rules."""
        budget, rules = self._budgets.get(principal), self._rules()
        if budget is None:
            if len(self._budgets) >= PRINCIPALS_MAX:
                self._budgets = {name: each for name, each in self._budgets.items() if each.held.total()}
            budget = self._budgets[principal] = Budget(principal, self._clock.monotonic_us())
        if budget.rules is not rules:
            self._renew(budget, rules)
        return budget

    def _renew(self, budget: Budget, rules: QuotaRules) -> None:
        principal, now_us = budget.principal, self._clock.monotonic_us()
        is_bound = principal not in self._unbound
        budget.rules = rules
        budget.levels = rules.levels_of(principal, is_bound=is_bound)
        budget.has_clients = rules.has_clients(principal, is_bound=is_bound)
        budget.buckets = _renewed(budget.buckets, rules.rates_of(principal, None, is_bound=is_bound), now_us)
        budget.clients = {
            client_id: _renewed(buckets, rules.rates_of(principal, client_id, is_bound=is_bound), now_us)
            for client_id, buckets in budget.clients.items()
        }

    def buckets(self, budget: Budget, client_id: str | None) -> tuple[Buckets, ...]:
        """Return the buckets that a call takes from: its principal's, and its client's."""
        if client_id is None:
            return (budget.buckets,)
        found = budget.clients.get(client_id)
        if found is None:
            if len(budget.clients) >= CLIENTS_MAX:
                client_id = _OTHER_CLIENTS
            assert budget.rules is not None, "`of` has given them"
            is_bound = budget.principal not in self._unbound
            rates = budget.rules.rates_of(budget.principal, client_id, is_bound=is_bound)
            found = budget.clients.setdefault(client_id, _renewed({}, rates, self._clock.monotonic_us()))
        return (budget.buckets, found)

    def take(self, buckets: Iterable[Buckets], rate: Rate, units: int) -> None:
        """Count the units that a call has taken, which may be more than there were."""
        now_us = self._clock.monotonic_us()
        for each in buckets:
            if rate in each:
                each[rate] = taken(each[rate], units, now_us)

    def pauses_ms(self, buckets: Iterable[Buckets]) -> dict[Rate, int]:
        """Return the pause for every rate that is overdrawn."""
        now_us = self._clock.monotonic_us()
        pauses: dict[Rate, int] = {}
        for each in buckets:
            for rate, bucket in each.items():
                pause = -(-pause_us(bucket, now_us) // 1_000)
                if pause:
                    pauses[rate] = min(max(pause, pauses.get(rate, 0)), PAUSE_MS_MAX)
        return pauses

    def check(self, level: Level, principal: str, held: Callable[[], int] | None = None) -> None:
        """See `Levels`."""
        budget = self.of(principal)
        if held is not None and level in budget.levels:
            budget.held[level] = held()
        refusal = self.over(level, budget)
        if refusal is not None:
            self.count_refusal(refusal, budget)
            raise refusal

    def over(self, level: Level, budget: Budget) -> QuotaExceeded | None:
        """Return the refusal if the principal may not hold one more, else None."""
        held, level_max = budget.held[level], budget.levels.get(level)
        if level_max is None or held < level_max:
            return None
        return QuotaExceeded(
            level,
            f"{budget.principal} holds {held} of {level}, and may hold {level_max}: end or give back some, or let the"
            " operator raise it in the quotas file",
            CALLS_PAUSE_MS if level is Level.CALLS else LEVEL_PAUSE_MS,
        )

    def patience_ms(self, budget: Budget) -> int:
        """Return the delay (ms) of the next refusal; 0 means at once. A refusal whose delay reaches `PATIENCE_MS_MAX`
        takes nothing from the bucket."""
        now_us = self._clock.monotonic_us()
        pause_ms = -(-pause_us(budget.patience, now_us) // 1_000)
        if pause_ms >= PATIENCE_MS_MAX:
            return PATIENCE_MS_MAX
        budget.patience = taken(budget.patience, 1, now_us)
        return pause_ms

    def add(self, level: Level, principal: str, more: int = 1) -> None:
        """See `Levels`."""
        self.of(principal).held[level] += more

    def report(self) -> QuotaUse:
        """Return what principals hold, those that hold most first."""
        largest = nlargest(HOLDERS_MAX, self._budgets.values(), key=lambda budget: budget.held.total())
        return QuotaUse(
            True,
            [QuotaHolder(budget.principal, self._standings(budget)) for budget in largest],
            dict(self.refused),
            dict(self.throttled),
        )

    def _standings(self, budget: Budget) -> list[QuotaOf]:
        now_us = self._clock.monotonic_us()
        levels = [QuotaOf(level, budget.held[level], budget.levels.get(level)) for level in Level]
        rates = [
            QuotaOf(rate, None, bucket.rate, -(-pause_us(bucket, now_us) // 1_000))
            for rate, bucket in budget.buckets.items()
        ]
        return [*levels, *rates]

    def count_refusal(self, refusal: QuotaExceeded, budget: Budget) -> None:
        """Count and report a refusal."""
        self.refused[refusal.quota] += 1
        self.on_refused(budget.principal, refusal.quota)


def _renewed(buckets: Buckets, rates: Mapping[Rate, int], now_us: int) -> Buckets:
    return {
        rate: with_rate(buckets[rate], wanted, now_us) if rate in buckets else full(wanted, now_us)
        for rate, wanted in rates.items()
    }
