"""One way to call a procedure, and what its caller needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import Message

from coordinator_protocol.acls import Permission, ResourceType
from coordinator_protocol.errors import ErrorCode
from tests.permissions.guarded_front import GuardedFront, Names, Question

_P = Permission
_T, _G, _I, _C = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID, ResourceType.CLUSTER


@dataclass(frozen=True, slots=True)
class Case:
    """One way to call a procedure."""

    name: str
    make: Callable[[GuardedFront, Names], Message]
    """A request that names these things."""
    needs: tuple[tuple[Question, ...], ...] = ()
    """Rights that the caller needs: one of each. A refusal has the code of the last."""
    hidden: tuple[Question, ...] = ()
    """Without it something is left out, and nothing is refused."""
    by_id: bool = False
    """A topic is named by its id alone, so the answer to a stranger is UNKNOWN_TOPIC_ID."""

    @property
    def method(self) -> str:
        return self.name.partition(" ")[0]

    def code(self, missing: tuple[Question, ...], *, may_describe: bool = False) -> ErrorCode:
        _permission, resource = missing[-1]
        if resource is _T and self.by_id and not may_describe:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return {
            _T: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            _G: ErrorCode.GROUP_AUTHORIZATION_FAILED,
            _C: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            _I: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        }[resource]


def one(permission: Permission, resource: ResourceType) -> tuple[Question, ...]:
    """One permission for one kind of resource."""
    return ((permission, resource),)


WRITE_ID, READ_GROUP = one(_P.WRITE, _I), one(_P.READ, _G)
WRITE_TOPIC, READ_TOPIC, SEE_TOPIC = one(_P.WRITE, _T), one(_P.READ, _T), one(_P.DESCRIBE, _T)
DECIDE_ID, HOLD_TOPIC = one(_P.DECIDE, _I), one(_P.SNAPSHOT, _T)
END_PROMISED = ((_P.ALTER, _C), (_P.TWO_PHASE_COMMIT, _I))
LOOK, ADMINISTER = one(_P.DESCRIBE, _C), one(_P.ALTER, _C)
