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

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import structlog
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message

from coordinator_core.permissions import PERMISSIONS
from coordinator_protocol.acls import PERMISSIONS_OF, Permission, ResourceType
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Method, UnknownOutcome
from coordinator_runtime.clock import Clock
from coordinator_runtime.pending import Pending, failed
from coordinator_runtime.ports import CallContext
from coordinator_server.calls import Serve

ALIKE_MAX: Final = 10
"""Lines that say the same of the same caller, of which so many are written in `ALIKE_MS`."""
ALIKE_MS: Final = 10_000
LINES_MAX: Final = 200
"""Lines of all kinds, of which so many are written in `LINES_MS`."""
LINES_MS: Final = 1_000
REMEMBERED_MAX: Final = 1_000
"""Kinds of lines and callers that are told apart. Those beyond share one place."""
REQUEST_CHARACTERS_MAX: Final = 2_000
"""What is written of a request; the rest is cut off."""
LISTED_MAX: Final = 100
"""Elements of each list that are looked at for it."""

_CHANGES: Final = frozenset(
    {
        Permission.CREATE,
        Permission.DELETE,
        Permission.ALTER,
        Permission.ALTER_CONFIGS,
        Permission.BACKUP,
    }
)
ACTS: Final = frozenset(
    method for method, asks in PERMISSIONS.items() if any(ask.permission in _CHANGES for ask in asks)
) | {Method.FENCE_PRODUCERS, Method.ABORT_TRANSACTIONS}
"""Procedures of administrators: those that change what is there for everybody, or end what is somebody else's."""

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

    def audited(self, method: Method, serve: Serve) -> Serve:
        """The function of a procedure, which leaves a line of each call if the procedure is an administrator's."""
        if method not in ACTS:
            return serve

        def served(request: Message, context: CallContext) -> Pending[Message]:
            try:
                pending = serve(request, context)
            except Exception as error:
                self._act(method, request, context, failed(error))
                raise
            pending.on_settled(lambda reply: self._act(method, request, context, reply))
            return pending

        return served

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

    def _act(self, method: Method, request: Message, context: CallContext, reply: Pending[Message]) -> None:
        result, codes = _outcome(reply)
        self._tell(
            AuditKind.ACT,
            context.principal,
            context.client_id,
            context.host,
            (method.value, result.value),
            method=method.value,
            result=result.value,
            codes=sorted(code.name for code in codes),
            request=lambda: _shown(request),
        )

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


def _shown(request: Message) -> str:
    """The beginning of a request, as JSON. Of a long one all lists are cut first: to write them takes seconds."""
    if request.ByteSize() > REQUEST_CHARACTERS_MAX:
        short = type(request)()
        short.CopyFrom(request)
        for field, _value in request.ListFields():
            if field.is_repeated and (field.message_type is None or not field.message_type.GetOptions().map_entry):
                del getattr(short, field.name)[LISTED_MAX:]
        request = short
    return MessageToJson(request, indent=None, preserving_proto_field_name=True, ensure_ascii=True)[
        :REQUEST_CHARACTERS_MAX
    ]


def _outcome(reply: Pending[Message]) -> tuple[Result, set[ErrorCode]]:
    """What came of a call, and the errors that its answer tells of."""
    match reply.error:
        case None:
            codes = set(_codes_in(reply.result()))
            return (Result.REFUSED if codes else Result.DONE), codes
        case UnknownOutcome(code=code):
            return Result.UNKNOWN, {code}
        case CoordinatorError(code=code):
            return Result.REFUSED, {code}
    # A defect, which the dispatcher tells of.
    return Result.UNKNOWN, set()


def _codes_in(message: Message) -> Iterator[ErrorCode]:
    for field, value in message.ListFields():
        if field.name == "error_code":
            yield ErrorCode(value)
        elif field.message_type is not None and field.is_repeated and not field.message_type.GetOptions().map_entry:
            for item in value:
                yield from _codes_in(item)
