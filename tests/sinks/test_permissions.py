"""A right on a sink is one on its members, because their ids are random: no rule can name them."""

from __future__ import annotations

import pytest

from coordinator_core.explanation import ExplainPartition
from coordinator_protocol.errors import Refused
from coordinator_runtime.ports import AllowAll, CallContext, Permission, ResourceType
from tests.harness.calls import partition_name
from tests.harness.group_calls import ANYBODY
from tests.harness.sinks import SINK
from tests.sinks.world import sink_world
from txn_coordinator.requests import TransactionFilter


class Only(AllowAll):
    """Allows what concerns one transactional id, and topics."""

    def __init__(self, name: str) -> None:
        self._name = name

    def is_allowed(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> bool:
        return resource is ResourceType.TOPIC or name == self._name


@pytest.mark.parametrize(("name", "is_told"), [(SINK, True), ("spark/another", False)])
def test_members_are_told_to_whom_the_sink_is(name: str, is_told: bool) -> None:
    world = sink_world()
    member = world.sinks.member(0)
    assert world.sinks.write(member, "t-0", "a") is None
    core = world.inside.core
    reader, explainer = core.transactions.reader, core.admin.explainer
    reader._authorizer = explainer._authorizer = Only(name)
    listed = reader.list(TransactionFilter(), ANYBODY).transactions
    assert [each.transactional_id for each in listed] == [member.transactional_id] * is_told
    (described,) = reader.describe([member.transactional_id], ANYBODY).result()
    assert (described.error is None) is is_told
    (located,) = reader.locate(1, [member.transactional_id], ANYBODY)
    assert isinstance(located.error, Refused) is not is_told
    asked = ExplainPartition(partition_name("t-0"))
    explained = explainer.explain_partition(asked, ANYBODY).result()
    assert explained.blocking is not None
    assert explained.blocking.is_owner_hidden is not is_told
