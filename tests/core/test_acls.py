"""Rules of who may do what: made, deleted, listed, asked for; in force once they are durable, and after a crash."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_core.acl_index import AclQuestion
from coordinator_protocol.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    PatternType,
    Permission,
    PermissionType,
    ResourceType,
)
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from partition_log.catalog import acls as acl_table
from partition_log.catalog.acls import AclsChanged
from partition_log.catalog.state import NewTopic
from partition_log.requests import CreateTopics, DescribeTopics
from tests.harness.guarded import SUPER_USER, Guarded
from tests.harness.world import World

ROOT = CallContext(principal=SUPER_USER, host="10.0.0.1")
ALICE = CallContext(principal="User:alice", host="10.0.0.2")


def asking(context: CallContext, method: str) -> CallContext:
    return CallContext(principal=context.principal, host=context.host, method=method)


def rule(**said: Any) -> Acl:
    defaults: dict[str, Any] = {
        "principal": "User:alice",
        "resource_type": ResourceType.TOPIC,
        "resource_name": "orders",
        "operation": Permission.READ,
    }
    return Acl(**(defaults | said))


class GuardedWorld(World):
    """A server that goes by rules, with one superuser."""

    def __init__(self) -> None:
        super().__init__(Guarded())

    @property
    def acls(self) -> Any:
        return self.inside.core.admin.acls

    def create(self, *acls: Acl, by: CallContext = ROOT, dry_run: bool = False) -> Pending[AclsChanged]:
        made: Pending[AclsChanged] = self.acls.create(acls, asking(by, "CreateAcls"), validate_only=dry_run)
        return made

    def created(self, *acls: Acl) -> AclsChanged:
        made = self.create(*acls)
        self.settle()
        return made.result()

    def deleted(self, *filters: AclFilter, dry_run: bool = False) -> AclsChanged:
        deleted: Pending[AclsChanged] = self.acls.delete(filters, asking(ROOT, "DeleteAcls"), validate_only=dry_run)
        self.settle()
        return deleted.result()

    def listed(self, wanted: AclFilter = AclFilter()) -> AclsChanged:
        found: AclsChanged = self.acls.describe(wanted, asking(ROOT, "DescribeAcls"))
        return found

    def may(self, permission: Permission, name: str = "orders", *, by: CallContext = ALICE) -> bool:
        question = AclQuestion(by.principal, by.host, permission, ResourceType.TOPIC, name)
        return bool(self.acls.check(question, asking(ROOT, "CheckPermission")).is_allowed)


def test_what_no_rule_allows_is_denied_and_superusers_may_do_everything() -> None:
    world = GuardedWorld()
    topics = world.inside.topics
    wanted = CreateTopics([NewTopic("orders", 1)])
    refused = topics.create_topics(wanted, asking(ALICE, "CreateTopics"))
    made = topics.create_topics(wanted, asking(ROOT, "CreateTopics"))
    world.settle()
    assert refused.result()[0].error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert made.result()[0].error is None
    assert topics.describe_topics(DescribeTopics(), asking(ALICE, "DescribeTopics")) == []
    world.created(rule())
    assert len(topics.describe_topics(DescribeTopics(), asking(ALICE, "DescribeTopics"))) == 1


def test_a_rule_is_in_force_when_it_is_durable_and_not_before() -> None:
    world = GuardedWorld()
    made = world.create(rule())
    assert not world.may(Permission.READ)
    assert not made.is_settled
    told = []
    made.on_settled(lambda _made: told.append(world.may(Permission.READ)))
    world.flush()
    assert told == [True], "an acknowledged rule is in force"
    made = world.create(rule(operation=Permission.WRITE))
    world.crash()
    assert not world.may(Permission.WRITE)
    assert world.may(Permission.READ), "it survives a crash, and is in force from the start"
    assert world.listed() == AclsChanged((rule(),), 1)


def test_one_that_denies_wins_and_is_gone_when_deleted() -> None:
    world = GuardedWorld()
    deny = rule(principal="User:*", permission_type=PermissionType.DENY, operation=Permission.ALL, host="10.0.0.2")
    world.created(rule(resource_name="*"))
    assert world.may(Permission.READ)
    world.created(deny)
    assert not world.may(Permission.READ)
    assert not world.may(Permission.DESCRIBE)
    assert world.may(Permission.READ, by=CallContext(principal="User:alice", host="10.0.0.3"))
    assert world.deleted(AclFilter(permission_type=PermissionType.DENY)) == AclsChanged((deny,), 3)
    assert world.may(Permission.READ)


def test_rules_are_there_once_and_every_change_has_a_version() -> None:
    world = GuardedWorld()
    assert world.created(rule(), rule()) == AclsChanged((rule(),), 1)
    assert world.created(rule()) == AclsChanged((), 1)
    both = world.created(rule(resource_name="a"), rule())
    assert both == AclsChanged((rule(resource_name="a"),), 2)
    assert world.deleted(AclFilter(principal="User:nobody")) == AclsChanged((), 2)
    assert world.listed(AclFilter(resource_name="a")).acls == (rule(resource_name="a"),)
    assert len(world.deleted(AclFilter(), AclFilter(resource_name="a")).acls) == 2
    assert world.listed() == AclsChanged((), 3)
    world.check_replay()
    world.crash()
    assert world.listed() == AclsChanged((), 3)


def test_a_dry_run_tells_what_would_be_and_changes_nothing() -> None:
    world = GuardedWorld()
    world.created(rule())
    rows = world.shelf.store.version()
    made = world.create(rule(), rule(resource_name="a"), dry_run=True)
    world.settle()
    assert made.result() == AclsChanged((rule(resource_name="a"),), 1)
    assert world.deleted(AclFilter(), dry_run=True) == AclsChanged((rule(),), 1)
    assert world.shelf.store.version() == rows
    assert world.listed() == AclsChanged((rule(),), 1)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"principal": "alice"}, "'alice' is no principal: write User:NAME"),
        ({"principal": "User:"}, "is no principal"),
        ({"principal": "User:a*"}, r"only User:\* stands for several"),
        ({"principal": "User:a\n"}, "no control characters"),
        ({"principal": "User:Ame\u0301lie"}, "form NFC"),
        ({"principal": "User:" + "a" * 251}, "1 to 250 bytes"),
        ({"resource_name": ""}, "the name of the topic is empty"),
        ({"resource_name": "a b"}, "no topic can have this name, so the rule would never apply"),
        ({"resource_name": "*", "pattern_type": PatternType.PREFIXED}, r"the prefix is \*"),
        ({"operation": Permission.TWO_PHASE_COMMIT}, "two_phase_commit is no operation on a topic: there are alter, "),
        ({"operation": Permission.CLUSTER_ACTION}, "cluster_action is no operation on a topic"),
        ({"resource_type": ResourceType.GROUP, "operation": Permission.WRITE}, "write is no operation on a group"),
        (
            {"resource_type": ResourceType.CLUSTER, "operation": Permission.ALTER},
            "'orders' is no name of a cluster: there is one, 'cluster'",
        ),
        (
            {
                "resource_type": ResourceType.CLUSTER,
                "resource_name": "clus",
                "pattern_type": PatternType.PREFIXED,
                "operation": Permission.ALTER,
            },
            "its name has no prefix",
        ),
        ({"resource_type": ResourceType.GROUP, "resource_name": "a\0b"}, "contains NUL"),
        ({"host": "till-1.example"}, "is no address"),
        ({"host": ""}, "is no address"),
        ({"host": "::ffff:10.0.0.1"}, "must be written 10.0.0.1"),
    ],
)
def test_a_bad_rule_is_refused_with_its_number_and_no_other_is_made(said: dict[str, Any], why: str) -> None:
    world = GuardedWorld()
    with pytest.raises(Refused, match=f"ACL 2 of 2: .*{why}") as refused:
        world.create(rule(), rule(**said))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert not world.flush(), "something was staged"


def test_good_rules_are_taken() -> None:
    world = GuardedWorld()
    good = [
        rule(resource_name="*"),
        rule(resource_name="or", pattern_type=PatternType.PREFIXED),
        rule(resource_name="__", pattern_type=PatternType.PREFIXED),
        rule(resource_name=".", pattern_type=PatternType.PREFIXED),
        rule(principal="User:*", operation=Permission.ALL),
        rule(principal="User:Jürgen", host="::1"),
        rule(host="unix"),
        rule(resource_type=ResourceType.CLUSTER, resource_name=CLUSTER_NAME, operation=Permission.ALTER),
        rule(resource_type=ResourceType.CLUSTER, resource_name="*", operation=Permission.IDEMPOTENT_WRITE),
        rule(resource_type=ResourceType.TRANSACTIONAL_ID, operation=Permission.TWO_PHASE_COMMIT),
    ]
    assert world.created(*good).acls == tuple(good)
    world.check_replay()


def test_requests_and_rules_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    world = GuardedWorld()
    for count in (0, 1_001):
        with pytest.raises(Refused, match=f"the request has {count} ACLs; send 1 to 1000"):
            world.create(*[rule()] * count)
        with pytest.raises(Refused, match=f"the request has {count} filters"):
            world.deleted(*[AclFilter()] * count)
    monkeypatch.setattr(acl_table, "ACLS_MAX", 2)
    world.created(rule(), rule(resource_name="a"))
    with pytest.raises(Refused, match="there are 2 ACLs and at most 2 are allowed, so 1 more have no room") as refused:
        world.created(rule(resource_name="b"))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_rules_are_for_administrators() -> None:
    world = GuardedWorld()
    for act in (
        lambda: world.create(rule(), by=ALICE),
        lambda: world.create(by=ALICE),
        lambda: world.acls.delete([], asking(ALICE, "DeleteAcls"), validate_only=True),
        lambda: world.acls.describe(AclFilter(), asking(ALICE, "DescribeAcls")),
    ):
        with pytest.raises(Refused) as refused:
            act()
        assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_who_asks_what_may_be_done_is_told_the_rule() -> None:
    world = GuardedWorld()
    allow = rule()
    deny = rule(resource_name="or", pattern_type=PatternType.PREFIXED, permission_type=PermissionType.DENY)
    world.created(allow)

    def ask(principal: str, permission: Permission, by: CallContext = ROOT, host: str = "") -> tuple[object, ...]:
        question = AclQuestion(principal, host, permission, ResourceType.TOPIC, "orders")
        verdict = world.acls.check(question, asking(by, "CheckPermission"))
        assert verdict.is_enforced
        return verdict.is_allowed, verdict.rule, verdict.is_super_user

    assert ask("User:alice", Permission.DESCRIBE) == (True, allow, False)
    assert ask("User:alice", Permission.WRITE) == (False, None, False)
    assert ask("User:root", Permission.WRITE) == (True, None, True)
    assert ask("User:alice", Permission.READ, by=ALICE) == (True, allow, False), "everybody may ask of themselves"
    with pytest.raises(Refused) as refused:
        ask("User:bob", Permission.READ, by=ALICE)
    assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    world.created(deny)
    assert ask("User:alice", Permission.READ) == (False, deny, False)
    with pytest.raises(Refused, match="is no address"):
        ask("User:alice", Permission.READ, host="somewhere")
    with pytest.raises(Refused, match="is no principal"):
        ask("alice", Permission.READ)
    with pytest.raises(Refused, match="cluster_action is no operation"):
        ask("User:alice", Permission.CLUSTER_ACTION)


def test_rules_can_be_prepared_without_authentication() -> None:
    world = World()
    made = world.inside.core.admin.acls.create([rule()], CallContext(), validate_only=False)
    world.settle()
    assert made.result().version == 1
    question = AclQuestion("User:alice", "", Permission.WRITE, ResourceType.TOPIC, "orders")
    verdict = world.inside.core.admin.acls.check(question, CallContext())
    assert (verdict.is_allowed, verdict.is_enforced) == (False, False)


def test_what_was_allowed_once_is_remembered_only_until_the_rules_change() -> None:
    world = GuardedWorld()
    world.created(rule())
    access = world.inside.core.access
    context = asking(ALICE, "Fetch")
    assert access.is_allowed(context, Permission.READ, ResourceType.TOPIC, "orders")
    world.deleted(AclFilter())
    assert not access.is_allowed(context, Permission.READ, ResourceType.TOPIC, "orders")


def test_a_question_that_is_not_in_the_table_is_a_defect() -> None:
    access = GuardedWorld().inside.core.access
    with pytest.raises(AssertionError, match="Fetch asks what its row does not have"):
        access.is_allowed(asking(ALICE, "Fetch"), Permission.WRITE, ResourceType.TOPIC, "orders")
