"""Decision of a set of ACLs on one question, as a pure function of a frozen value.

An ACL that denies wins over all that allow. Operations that no ACL allows are denied. Allowing one operation may imply
another one (`IMPLIED_BY`); denying one implies nothing else.

Source: Kafka's `StandardAuthorizerData`; KIP-290 (prefixes), KIP-679 (idempotent writes).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from coordinator_protocol.acls import (
    ANY_PRINCIPAL,
    IMPLIED_BY,
    WILDCARD,
    Acl,
    PatternType,
    Permission,
    PermissionType,
    ResourceType,
)

_DENYING: Final = {each: frozenset({each, Permission.ALL}) for each in Permission}
_ALLOWING: Final = {each: _DENYING[each] | IMPLIED_BY.get(each, frozenset()) for each in Permission}
"""Operations of the ACLs that deny or allow an operation."""


class AclQuestion(Struct, frozen=True):
    """A question of access: may the principal on this host do this with the resource of this name?"""

    principal: str
    host: str
    permission: Permission
    resource_type: ResourceType
    name: str


class _RulesOfOne:
    """ACLs of one principal about one type of resource, by name."""

    __slots__ = ("literal", "prefix_lengths", "prefixed")

    def __init__(self) -> None:
        self.literal: defaultdict[str, list[Acl]] = defaultdict(list)
        self.prefixed: defaultdict[str, list[Acl]] = defaultdict(list)
        self.prefix_lengths: set[int] = set()

    def add(self, acl: Acl) -> None:
        if acl.pattern_type is PatternType.PREFIXED:
            self.prefixed[acl.resource_name].append(acl)
            self.prefix_lengths.add(len(acl.resource_name))
        else:
            self.literal[acl.resource_name].append(acl)

    def about(self, name: str) -> Iterator[Acl]:
        """Yield the ACLs that apply to a name: for exactly this name, for ever longer prefixes of it, and for any
        name."""
        yield from self.literal.get(name, ())
        for length in self.prefix_lengths:
            if length <= len(name):
                yield from self.prefixed.get(name[:length], ())
        yield from self.literal.get(WILDCARD, ())

    def all(self) -> Iterator[Acl]:
        for acls in (*self.literal.values(), *self.prefixed.values()):
            yield from acls


class AclIndex:
    """A set of ACLs, indexed for questions. Immutable once it is made."""

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self._rules: dict[tuple[str, ResourceType], _RulesOfOne] = {}
        for acl in acls:
            self._rules.setdefault((acl.principal, acl.resource_type), _RulesOfOne()).add(acl)

    def deciding(self, question: AclQuestion) -> Acl | None:
        """Return the ACL that decides: one that denies if there is any, else one that allows. None means denied,
        because no ACL applies."""
        allowing: Acl | None = None
        for rules in self._of(question.principal, question.resource_type):
            for acl in rules.about(question.name):
                if acl.host not in (WILDCARD, question.host):
                    continue
                if acl.permission_type is PermissionType.DENY:
                    if acl.operation in _DENYING[question.permission]:
                        return acl
                elif allowing is None and acl.operation in _ALLOWING[question.permission]:
                    allowing = acl
        if allowing is None and question.permission is Permission.IDEMPOTENT_WRITE:
            return self._allowing_somewhere(question.principal, question.host, Permission.WRITE, ResourceType.TOPIC)
        return allowing

    def _of(self, principal: str, resource_type: ResourceType) -> Iterator[_RulesOfOne]:
        for each in (principal, ANY_PRINCIPAL):
            rules = self._rules.get((each, resource_type))
            if rules is not None:
                yield rules

    def _allowing_somewhere(
        self, principal: str, host: str, permission: Permission, resource_type: ResourceType
    ) -> Acl | None:
        """Return an ACL that allows this on some resource of the type, whether or not the resource exists. An ACL does
        not count if another one denies all of its names."""
        allowing: list[Acl] = []
        denying: list[Acl] = []
        for rules in self._of(principal, resource_type):
            for acl in rules.all():
                if acl.host in (WILDCARD, host):
                    is_denying = acl.permission_type is PermissionType.DENY
                    if acl.operation in (_DENYING if is_denying else _ALLOWING)[permission]:
                        (denying if is_denying else allowing).append(acl)
        return next((acl for acl in allowing if not any(_covers(deny, acl) for deny in denying)), None)


def _covers(wider: Acl, acl: Acl) -> bool:
    """Return True if `wider` applies to all names that `acl` applies to."""
    if wider.pattern_type is PatternType.PREFIXED:
        is_any = acl.pattern_type is PatternType.LITERAL and acl.resource_name == WILDCARD
        return not is_any and acl.resource_name.startswith(wider.resource_name)
    if wider.resource_name == WILDCARD:
        return True
    return acl.pattern_type is PatternType.LITERAL and acl.resource_name == wider.resource_name
