"""The answers of the index of rules, compared with a list of all rules that is read from the top every time."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.acl_index import AclIndex, AclQuestion
from coordinator_protocol.acls import (
    PERMISSIONS_OF,
    Acl,
    AclFilter,
    PatternType,
    Permission,
    PermissionType,
    ResourceType,
)

ALICE, BOB, EVERYBODY = "User:alice", "User:bob", "User:*"
NAMES = ("a", "ab", "abc", "b", "*")
LOOKED_FOR = ("a", "ab", "abc", "abcd", "b", "c")

acls = st.builds(
    Acl,
    principal=st.sampled_from([ALICE, BOB, EVERYBODY]),
    resource_type=st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    resource_name=st.sampled_from(NAMES),
    operation=st.sampled_from([Permission.ALL, *Permission]),
    permission_type=st.sampled_from(PermissionType),
    pattern_type=st.sampled_from(PatternType),
    host=st.sampled_from(["*", "10.0.0.1"]),
)
questions = st.builds(
    AclQuestion,
    principal=st.sampled_from([ALICE, BOB, "User:carol"]),
    host=st.sampled_from(["10.0.0.1", "10.0.0.2", ""]),
    permission=st.sampled_from([each for each in Permission if each is not Permission.ALL]),
    resource_type=st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    name=st.sampled_from(LOOKED_FOR),
)

IMPLYING = {
    Permission.DESCRIBE: {Permission.READ, Permission.WRITE, Permission.DELETE, Permission.ALTER},
    Permission.DESCRIBE_CONFIGS: {Permission.ALTER_CONFIGS},
}


def applies(acl: Acl, question: AclQuestion) -> bool:
    name = acl.resource_name
    is_meant = (
        question.name.startswith(name) if acl.pattern_type is PatternType.PREFIXED else name in (question.name, "*")
    )
    return (
        acl.principal in (question.principal, EVERYBODY)
        and acl.resource_type is question.resource_type
        and acl.host in ("*", question.host)
        and is_meant
    )


def is_allowed(rules: Iterable[Acl], question: AclQuestion) -> bool:
    """Apply Kafka's rules as its documentation gives them."""
    asked = {question.permission, Permission.ALL}
    applying = [acl for acl in rules if applies(acl, question)]
    if any(acl.permission_type is PermissionType.DENY and acl.operation in asked for acl in applying):
        return False
    asked |= IMPLYING.get(question.permission, set())
    return any(acl.permission_type is PermissionType.ALLOW and acl.operation in asked for acl in applying)


@given(st.lists(acls, max_size=12), questions)
def test_it_says_what_the_list_says(rules: list[Acl], question: AclQuestion) -> None:
    rule = AclIndex(rules).deciding(question)
    if question.permission is Permission.IDEMPOTENT_WRITE:
        # That is asked about the cluster only, and has a test of its own.
        return
    assert (rule is not None and rule.permission_type is PermissionType.ALLOW) == is_allowed(rules, question)
    assert rule is None or (rule in rules and applies(rule, question)), "the rule that it names is one of them"


@given(st.lists(acls, max_size=8), questions)
def test_the_order_of_rules_does_not_matter(rules: list[Acl], question: AclQuestion) -> None:
    forwards, backwards = AclIndex(rules).deciding(question), AclIndex(reversed(rules)).deciding(question)
    assert (forwards is None, forwards and forwards.permission_type) == (
        backwards is None,
        backwards and backwards.permission_type,
    )


IDEMPOTENT = AclQuestion(ALICE, "10.0.0.1", Permission.IDEMPOTENT_WRITE, ResourceType.CLUSTER, "cluster")


@given(st.lists(acls, max_size=8))
def test_who_may_write_to_any_topic_may_write_idempotently(rules: list[Acl]) -> None:
    """KIP-679: a topic that could be is enough, and a rule whose names are all denied is not. Rules have short names
    here, so there are longer ones that no rule names."""
    rule = AclIndex(rules).deciding(IDEMPOTENT)
    could_be = {first + "zzz" for first in ("", "a", "ab", "abc", "b", "*", "z")} | set(LOOKED_FOR) | {"*"}
    questions = [AclQuestion(ALICE, "10.0.0.1", Permission.WRITE, ResourceType.TOPIC, name) for name in could_be]
    assert (rule is not None) == any(is_allowed(rules, question) for question in questions)


@pytest.mark.parametrize(("denied", "allowed", "may"), [("a", "ab", False), ("ab", "a", True), ("a", "a", False)])
def test_a_denied_prefix_takes_what_lies_below_it_and_no_more(denied: str, allowed: str, may: bool) -> None:
    rules = [
        Acl(
            principal=ALICE,
            resource_type=ResourceType.TOPIC,
            resource_name=name,
            operation=Permission.WRITE,
            permission_type=kind,
            pattern_type=PatternType.PREFIXED,
        )
        for name, kind in ((denied, PermissionType.DENY), (allowed, PermissionType.ALLOW))
    ]
    assert (AclIndex(rules).deciding(IDEMPOTENT) is not None) is may


@given(st.lists(acls, max_size=8), acls)
def test_a_filter_of_all_that_a_rule_says_means_that_rule(rules: list[Acl], wanted: Acl) -> None:
    exact = AclFilter(
        principal=wanted.principal,
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
        operation=wanted.operation,
        permission_type=wanted.permission_type,
        pattern_type=wanted.pattern_type,
        host=wanted.host,
    )
    assert {each for each in [*rules, wanted] if exact.matches(each)} == {wanted}
    assert all(map(AclFilter().matches, rules))


@given(st.lists(acls, max_size=8), questions)
def test_a_filter_that_matches_finds_every_rule_that_applies(rules: list[Acl], question: AclQuestion) -> None:
    wanted = AclFilter(resource_type=question.resource_type, resource_name=question.name, matches_name=True)
    found = {each for each in rules if wanted.matches(each)}
    assert {each for each in rules if applies(each, question)} <= found
    assert all(each.resource_type is question.resource_type for each in found)


@pytest.mark.parametrize("resource_type", ResourceType)
def test_every_type_has_operations(resource_type: ResourceType) -> None:
    assert Permission.DESCRIBE in PERMISSIONS_OF[resource_type]
    assert Permission.ALL not in PERMISSIONS_OF[resource_type]


def test_a_prefix_is_meant_too_by_a_name_that_is_all_of_it() -> None:
    prefix = Acl(
        principal=ALICE,
        resource_type=ResourceType.TOPIC,
        resource_name="ab",
        operation=Permission.READ,
        pattern_type=PatternType.PREFIXED,
    )
    named = {
        name: AclIndex([prefix]).deciding(AclQuestion(ALICE, "", Permission.READ, ResourceType.TOPIC, name))
        for name in LOOKED_FOR
    }
    assert [name for name, rule in named.items() if rule is not None] == ["ab", "abc", "abcd"]
