"""Quotas of each principal and client, by precedence.

The operator sets them in tables `[[quotas]]`, each for one principal (`User:NAME`) or for everyone (`User:*`). A table
is for all clients together or, with `client_id`, for one (`*`: for each). The quotas of a client and of its principal
both apply. Each value is looked up by itself. If a table leaves it out, the next more general one decides, and finally
the built-in value.

Source: KIP-13, KIP-257 and KIP-546 (precedence).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from coordinator_protocol.acls import ANY_PRINCIPAL, check_principal
from coordinator_protocol.errors import Refused
from coordinator_protocol.names import check_client_id
from coordinator_runtime.ports import Level

EVERY_CLIENT: Final = "*"


class Rate(StrEnum):
    """Quantities that are limited per second."""

    PRODUCE_BYTES = "produce_bytes_per_second"
    """Bytes of requests that bring records."""
    FETCH_BYTES = "fetch_bytes_per_second"
    """Bytes of answers that bring records."""
    REQUESTS = "requests_per_second"


LEVELS: Final[Mapping[Level, int]] = {
    Level.CONNECTIONS: 1_000,
    Level.SESSIONS: 1_000,
    Level.CALLS: 2_048,
    Level.LONG_POLLS: 1_000,
    Level.GROUP_WAITS: 10_000,
    Level.OPEN_TRANSACTIONS: 1_000,
    Level.TRANSACTIONAL_IDS: 100_000,
    Level.SNAPSHOTS: 16,
    Level.TOPICS: 1_000,
}
"""Maximum of each level for a principal, unless the file sets one."""


_PerSecond = Annotated[int, Field(ge=1, le=10**15)]
_Number = Annotated[int, Field(ge=0, le=10**9)]


class QuotaRow(BaseModel):
    """One table of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    principal: str
    client_id: str | None = None
    """Client id; None for all clients of the principal together."""
    rates: dict[Rate, _PerSecond] = {}
    levels: dict[Level, _Number] = {}

    @model_validator(mode="before")
    @classmethod
    def _sort(cls, table: Mapping[str, object]) -> dict[str, object]:
        """Sort rates and levels, which the table has side by side."""
        sorted_: dict[str, object] = {
            "rates": {rate: table[rate] for rate in Rate if rate in table},
            "levels": {level: table[level] for level in Level if level in table},
        }
        return sorted_ | {name: value for name, value in table.items() if name not in (*Rate, *Level)}

    @model_validator(mode="after")
    def _names_make_sense(self) -> Self:
        try:
            check_principal(self.principal)
            if self.client_id not in {None, EVERY_CLIENT}:
                check_client_id(self.client_id)
        except Refused as refusal:
            raise ValueError(refusal.message) from refusal
        if self.client_id is not None and self.levels:
            raise ValueError("a client has rates only: what may be held is counted for its principal")
        return self


class QuotaRules:
    """All quotas. Frozen; another file makes other rules."""

    def __init__(self, rows: Iterable[QuotaRow] = ()) -> None:
        self._rows = {(row.principal, row.client_id): row for row in rows}

    def __len__(self) -> int:
        return len(self._rows)

    def rates_of(self, principal: str, client_id: str | None, *, is_bound: bool) -> dict[Rate, int]:
        """Return units per second, for all clients of a principal (None) or for one; absent rates are unlimited. With
        `is_bound` False only tables that name the principal count, here as below."""
        rates: dict[Rate, int] = {}
        for row in self._of(principal, (None,) if client_id is None else (client_id, EVERY_CLIENT), is_bound=is_bound):
            rates = {**row.rates, **rates}
        return rates

    def levels_of(self, principal: str, *, is_bound: bool) -> dict[Level, int]:
        """Return the maximum of each level for a principal; absent ones are unlimited."""
        levels: dict[Level, int] = {}
        for row in self._of(principal, (None,), is_bound=is_bound):
            levels = {**row.levels, **levels}
        return {**LEVELS, **levels} if is_bound else levels

    def has_clients(self, principal: str, *, is_bound: bool) -> bool:
        """Return True if a client of the principal may have a quota of its own."""
        names = {principal, ANY_PRINCIPAL} if is_bound else {principal}
        return any(name in names and client_id is not None for name, client_id in self._rows)

    def _of(self, principal: str, client_ids: Iterable[str | None], *, is_bound: bool) -> Iterator[QuotaRow]:
        """Yield the tables that apply, the most specific one first."""
        for name in (principal, ANY_PRINCIPAL) if is_bound else (principal,):
            for client_id in client_ids:
                if (row := self._rows.get((name, client_id))) is not None:
                    yield row
