"""The audit log: who did what to whom, from where, and what came of it.

One line for each administrative call, when it is answered; for each refusal to somebody who may not do what they
asked, or has taken too much; and for each producer that is fenced by another. A line is written when what it tells is
certain: an act that the server did not live to answer has none, and the history of its shard tells what of it is
stored.

Nobody can fill the disk with it: of lines that say the same of the same caller few are written, and of all lines so
many in a second. What was not written is counted in the next line.

Source: spec security 9.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import structlog

from coordinator_protocol.acls import PERMISSIONS_OF, Permission, ResourceType
from coordinator_protocol.errors import CoordinatorError, ErrorCode, UnknownOutcome
from coordinator_runtime.clock import Clock
from coordinator_runtime.ports import CallContext
from coordinator_server.traffic.call import Call

ALIKE_MAX: Final = 10
"""Lines that say the same of the same caller, of which so many are written in `ALIKE_MS`."""
ALIKE_MS: Final = 10_000
LINES_MAX: Final = 200
"""Lines of all kinds, of which so many are written in `LINES_MS`."""
LINES_MS: Final = 1_000
REMEMBERED_MAX: Final = 1_000
"""Kinds of lines and callers that are told apart. Those beyond share one place."""

_log = structlog.get_logger("audit")


def _written(kind: str, **fields: object) -> None:
    # Asked for anew each time: logging is configured after this module is loaded.
    _log.info(kind, **fields)


class AuditKind(StrEnum):
    """What a line tells of."""

    ACT = "act"
    """An administrative call was answered."""
    REFUSED = "refused"
    """Somebody may not do what they asked for."""
    FENCED = "fenced"
    """A producer may not go on, because somebody else has its transactional id now, or an administrator wanted it."""
    QUOTA = "quota"
    """A principal has no more of something, and was refused."""


class Result(StrEnum):
    """What came of an act."""

    DONE = "done"
    REFUSED = "refused"
    """Some of it was refused, or all: `codes` say why."""
    UNKNOWN = "unknown"
    """The store failed, or the server met a defect: it may have been done, or not."""


@dataclass(slots=True)
class _Window:
    """Lines that say the same of the same caller."""

    began_ms: int
    written: int = 0
    unwritten: int = 0


class AuditLog:
    """Writes lines and counts them. Called on the loop."""

    def __init__(self, clock: Clock, write: Callable[..., None] = _written) -> None:
        """`write` takes the kind and the fields of a line."""
        self._clock = clock
        self._write = write
        self._alike: dict[tuple[str, ...], _Window] = {}
        self._all = _Window(clock.monotonic_ms())
        self._written = dict.fromkeys(AuditKind, 0)
        self._unwritten = dict.fromkeys(AuditKind, 0)
        self._refusals = {(each, kind): 0 for kind in ResourceType for each in PERMISSIONS_OF[kind]}

    def counts(self) -> Mapping[tuple[str, ...], float]:
        """Return the number of lines by kind, and whether they were written."""
        return {
            (kind.value, written): counts[kind]
            for written, counts in (("yes", self._written), ("no", self._unwritten))
            for kind in AuditKind
        }

    def refusals(self) -> Mapping[tuple[str, ...], float]:
        """Return the number of refusals by operation and type of resource."""
        return {(each.value, kind.value): count for (each, kind), count in self._refusals.items()}

    def acted(self, call: Call[Any], outcome: Exception | Collection[int]) -> None:
        """An administrative call was answered: with this error, or with a result that holds these codes."""
        result, codes = _outcome(outcome)
        context, method = call.context, call.rule.method
        self._tell(
            AuditKind.ACT,
            context.principal,
            context.client_id,
            context.host,
            (method.value, result.value),
            method=method.value,
            result=result.value,
            codes=sorted(code.name for code in codes),
            request=call.shown,
        )

    def refused(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> None:
        """Somebody may not do this, and gets to see it."""
        self._refusals[permission, resource] += 1
        self._tell(
            AuditKind.REFUSED,
            context.principal,
            context.client_id,
            context.host,
            (context.method, permission.value, resource.value),
            method=context.method,
            operation=permission.value,
            resource_type=resource.value,
            resource_name=f"{name:.200}",
        )

    def fenced(self, principal: str, client_id: str, host: str, **fields: object) -> None:
        """The caller took over a transactional id from another, or fenced who had it."""
        self._tell(AuditKind.FENCED, principal, client_id, host, (), **fields)

    def over_quota(self, principal: str, quota: str) -> None:
        """The principal was refused because of this quota."""
        self._tell(AuditKind.QUOTA, principal, "", "", (quota,), quota=quota)

    def _tell(
        self, kind: AuditKind, principal: str, client_id: str, host: str, alike: tuple[str, ...], **fields: object
    ) -> None:
        """A field may be a function: what takes time to say is said only where the line is written."""
        window = self._window((kind.value, principal, host, *alike))
        self._renew(self._all, LINES_MS)
        if window.written >= ALIKE_MAX or self._all.written >= LINES_MAX:
            window.unwritten += 1
            self._unwritten[kind] += 1
            return
        window.written += 1
        self._all.written += 1
        self._written[kind] += 1
        unwritten, window.unwritten = window.unwritten, 0
        told = {name: value() if callable(value) else value for name, value in fields.items()}
        self._write(kind.value, principal=principal, client_id=client_id, host=host, **told, unwritten_before=unwritten)

    def _window(self, key: tuple[str, ...]) -> _Window:
        window = self._alike.get(key)
        if window is None:
            if len(self._alike) >= REMEMBERED_MAX:
                self._forget_old()
            if len(self._alike) >= REMEMBERED_MAX:
                key = ("others",)
            window = self._alike.setdefault(key, _Window(self._clock.monotonic_ms()))
        self._renew(window, ALIKE_MS)
        return window

    def _renew(self, window: _Window, span_ms: int) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - window.began_ms >= span_ms:
            window.began_ms, window.written = now_ms, 0

    def _forget_old(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self._alike = {key: window for key, window in self._alike.items() if now_ms - window.began_ms < ALIKE_MS}


def _outcome(outcome: Exception | Collection[int]) -> tuple[Result, set[ErrorCode]]:
    """The result of a call, and the errors in its answer."""
    match outcome:
        case UnknownOutcome(code=code):
            return Result.UNKNOWN, {code}
        case CoordinatorError(code=code):
            return Result.REFUSED, {code}
        case Exception():
            # A defect, which the gatekeeper logs.
            return Result.UNKNOWN, set()
    codes = {ErrorCode(code) for code in outcome}
    return (Result.REFUSED if codes else Result.DONE), codes
