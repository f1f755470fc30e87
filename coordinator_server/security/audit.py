"""The audit log: acts of administrators, refusals and fences, with caller, origin and result.

It has one line for each administrative call, when it is answered. It has one for each refusal of a caller that lacks a
permission or exceeds a quota, and for each producer that another one fences. A line is written once its content is
certain. An act that the server did not live to answer has no line; the history of its shard shows the stored part.

Callers cannot fill the disk with it. Of similar lines about one caller only a few are written, and the number of all
lines per second is limited. The next line has the number of those that were left out.

Source: docs/security.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import structlog

from coordinator_protocol.acls import PERMISSIONS_OF, Permission, ResourceType
from coordinator_protocol.errors import CoordinatorError, UnknownOutcome, error_name
from coordinator_runtime.clock import Clock
from coordinator_runtime.ports import CallContext
from coordinator_server.traffic.call import Call

ALIKE_MAX: Final = 10
"""Maximum number of similar lines about one caller that are written in `ALIKE_MS`."""
ALIKE_MS: Final = 10_000
LINES_MAX: Final = 200
"""Maximum number of lines of all kinds that are written in `LINES_MS`."""
LINES_MS: Final = 1_000
REMEMBERED_MAX: Final = 1_000
"""Maximum number of kinds of lines and callers that are counted separately. Those beyond share one count."""

_log = structlog.get_logger("audit")


def write_line(kind: str, **fields: object) -> None:
    """Write a line to the log."""
    # Read at each call, because logging is configured after this module is loaded.
    _log.info(kind, **fields)


class AuditKind(StrEnum):
    """Kind of a line."""

    ACT = "act"
    """An administrative call was answered."""
    REFUSED = "refused"
    """A caller lacks the permission for a request."""
    FENCED = "fenced"
    """A producer may not go on, because another one has its transactional id now, or an administrator fenced it."""
    QUOTA = "quota"
    """A principal reached a quota and was refused."""


class Result(StrEnum):
    """Result of an act."""

    DONE = "done"
    REFUSED = "refused"
    """Some or all of it was refused; `codes` has the reasons."""
    UNKNOWN = "unknown"
    """The store failed, or the server met a defect. The act may have been done."""


@dataclass(slots=True)
class _Window:
    """Count of similar lines about one caller."""

    began_ms: int
    written: int = 0
    unwritten: int = 0


class AuditLog:
    """Writes lines and counts them. Called on the loop."""

    def __init__(self, clock: Clock, write: Callable[..., None] = write_line) -> None:
        """Log with `write`, which takes the kind and the fields of a line."""
        self._clock = clock
        self._write = write
        self._alike: dict[tuple[str, ...], _Window] = {}
        self._all = _Window(clock.monotonic_ms())
        self._written = dict.fromkeys(AuditKind, 0)
        self._unwritten = dict.fromkeys(AuditKind, 0)
        self._refusals = {(each, kind): 0 for kind in ResourceType for each in PERMISSIONS_OF[kind]}

    def counts(self) -> Mapping[tuple[str, ...], float]:
        """Return the number of lines by kind, and by `yes` (written) or `no`."""
        return {
            (kind.value, written): counts[kind]
            for written, counts in (("yes", self._written), ("no", self._unwritten))
            for kind in AuditKind
        }

    def refusals(self) -> Mapping[tuple[str, ...], float]:
        """Return the number of refusals by operation and type of resource."""
        return {(each.value, kind.value): count for (each, kind), count in self._refusals.items()}

    def acted(self, call: Call[Any], outcome: Exception | Collection[int]) -> None:
        """Log the answer to an administrative call: this error, or a result with these codes."""
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
            codes=sorted({error_name(code) for code in codes}),
            request=call.shown,
        )

    def refused(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> None:
        """Log a refusal for lack of permission that the caller gets to see."""
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
        """Log that the caller took over a transactional id from another one, or fenced its owner."""
        self._tell(AuditKind.FENCED, principal, client_id, host, (), **fields)

    def over_quota(self, principal: str, quota: str) -> None:
        """Log that the principal was refused because of this quota."""
        self._tell(AuditKind.QUOTA, principal, "", "", (quota,), quota=quota)

    def _tell(
        self, kind: AuditKind, principal: str, client_id: str, host: str, alike: tuple[str, ...], **fields: object
    ) -> None:
        """Write a line unless there were too many. A field may be a function, for values that are costly to make. It is
        only called if the line is written."""
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


def _outcome(outcome: Exception | Collection[int]) -> tuple[Result, Collection[int]]:
    """Return the result of a call, and the codes in its answer."""
    match outcome:
        case UnknownOutcome(code=code):
            return Result.UNKNOWN, {code}
        case CoordinatorError(code=code):
            return Result.REFUSED, {code}
        case Exception():
            # A defect, which the gatekeeper logs.
            return Result.UNKNOWN, set()
    return (Result.REFUSED if outcome else Result.DONE), outcome
