"""Services of consumer groups for their members: heartbeats (`waiting` answers them), and descriptions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.names import check_group_id
from coordinator_runtime.decision import ShardRouter
from coordinator_runtime.identity import new_uuid, uuid_text
from coordinator_runtime.patterns import Pattern
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import (
    Authorizer,
    CallContext,
    PartitionName,
    Permission,
    ResourceType,
    TopicMetadata,
    require,
)
from coordinator_runtime.runtime import Runtime
from group_coordinator.committed.decisions import check_names
from group_coordinator.config import GroupConfig
from group_coordinator.consumer.background import RegexResolver
from group_coordinator.consumer.group import ConsumerGroup
from group_coordinator.consumer.requests import ConsumerGroupDescription, HeartbeatRequest, MemberDescription
from group_coordinator.consumer.rules import check_heartbeat
from group_coordinator.consumer.state import Owned
from group_coordinator.consumer.waiting import WAITING
from group_coordinator.heartbeats import Heartbeats
from group_coordinator.members import HeartbeatAnswer
from group_coordinator.news import News
from group_coordinator.shard import GroupShard
from group_coordinator.topics import check_visible, topic_shares


class ConsumerService:
    """Use cases of consumer groups. Each checks the caller's permission and the command before it asks the group."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        router: ShardRouter,
        config: GroupConfig,
        authorizer: Authorizer,
        topics: TopicMetadata,
        news: News,
    ) -> None:
        self._runtime = runtime
        self._router = router
        self._config = config
        self._authorizer = authorizer
        self._topics = topics
        resolver = RegexResolver(runtime, router=router, topics=topics, authorizer=authorizer)
        self._heartbeats = Heartbeats(
            runtime, router=router, topics=topics, news=news, rules=WAITING, on_written=resolver.look
        )

    def heartbeat(self, request: HeartbeatRequest, context: CallContext) -> Pending[HeartbeatAnswer]:
        """Answer a heartbeat as soon as there is something new for the member, and at the latest after the wait.

        If a newer heartbeat of the member overtakes it, it is answered no later than that one.

        Errors: GROUP_AUTHORIZATION_FAILED, as `rules.check_heartbeat`, and as spec groups 3.2, 3.4, 3.7 and 3.8.
        """
        ask = partial(require, self._authorizer, context, Permission.READ, ResourceType.GROUP, request.group_id)
        ask()
        return self._heartbeats.answer(self._checked(request, context), context, ask)

    def _checked(self, request: HeartbeatRequest, context: CallContext) -> HeartbeatRequest:
        """Return the checked request, with topic ids in place of names, and a member id. Raises Refused, see
        `heartbeat`."""
        check_visible(self._authorizer, context, request.subscribed_topic_names or ())
        if request.owned_names is not None:
            request = replace(request, owned=self._owned(request.owned_names))
        check_heartbeat(request, self._config.consumer_assignors)
        if request.subscribed_topic_regex:
            Pattern(request.subscribed_topic_regex)
        return request if request.member_id else replace(request, member_id=uuid_text(new_uuid()))

    def _owned(self, names: tuple[PartitionName, ...]) -> Owned:
        """Return the partitions that the member owns, by topic id. A topic given only by name that no longer exists is
        ignored, since no member can own it."""
        check_names(names)
        owned: dict[bytes, set[int]] = {}
        for name in names:
            topic_id = name.topic_id
            if not topic_id:
                shape = self._topics.shape(name.topic)
                if shape is None:
                    continue
                topic_id = shape.topic_id
            owned.setdefault(topic_id, set()).add(name.partition)
        return {topic_id: frozenset(numbers) for topic_id, numbers in owned.items()}

    def describe(
        self, group_ids: Iterable[str], context: CallContext, *, includes_revoked: bool = False
    ) -> list[ConsumerGroupDescription]:
        """Describe consumer groups as they are on disk, in the given order. With `includes_revoked`, partitions that a
        member has yet to revoke count as assigned to it.

        Each group is refused on its own: GROUP_AUTHORIZATION_FAILED; INVALID_GROUP_ID; GROUP_ID_NOT_FOUND, also for a
        group of another kind; NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        described = []
        for group_id in group_ids:
            try:
                described.append(self._describe(group_id, context, includes_revoked=includes_revoked))
            except Refused as refusal:
                described.append(ConsumerGroupDescription(group_id, refusal))
        return described

    def _describe(self, group_id: str, context: CallContext, *, includes_revoked: bool) -> ConsumerGroupDescription:
        require(self._authorizer, context, Permission.DESCRIBE, ResourceType.GROUP, group_id)
        check_group_id(group_id)
        shard: GroupShard = self._runtime.shard(self._router.shard_key(group_id))
        group = shard.durable_group(group_id)
        if not isinstance(group, ConsumerGroup):
            what = "there is no group" if group is None else f"{group.kind} is the kind of group"
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"{what} {group_id!a:.300}; list the groups")
        views = sorted(group.durable_members(), key=lambda view: view.member.member_id)
        assigned = {
            view.member.member_id: view.assignment.held() if includes_revoked else view.assignment.assigned
            for view in views
        }
        for view in views:
            held = {*assigned[view.member.member_id], *view.target}
            shown = {shape.topic for topic_id in held if (shape := self._topics.shape_of_id(topic_id)) is not None}
            check_visible(self._authorizer, context, shown | view.member.subscription.names)
        epochs = group.durable_epochs()
        members = [
            MemberDescription(
                view.member,
                view.assignment.member_epoch,
                topic_shares(assigned[view.member.member_id], self._topics),
                topic_shares(view.target, self._topics),
            )
            for view in views
        ]
        return ConsumerGroupDescription(
            group_id=group_id,
            state_name=group.state_name,
            group_epoch=epochs.group_epoch,
            assignment_epoch=epochs.assignment_epoch,
            assignor_name=epochs.assignor_name or self._config.consumer_assignors[0],
            members=tuple(members),
        )
