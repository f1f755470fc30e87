"""Services of share groups for their members: heartbeats (`group_coordinator.heartbeats` answers them), and
descriptions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.names import check_group_id
from coordinator_runtime.decision import Decision, Operation, ShardRouter, Turn
from coordinator_runtime.features import SHARE_GROUPS, Features
from coordinator_runtime.identity import new_uuid, uuid_text
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import Authorizer, CallContext, Permission, ResourceType, TopicMetadata, require
from coordinator_runtime.runtime import Runtime
from group_coordinator.assignors import SIMPLE
from group_coordinator.heartbeats import Heartbeats
from group_coordinator.members import HeartbeatAnswer
from group_coordinator.news import News
from group_coordinator.shard import GroupShard
from group_coordinator.share.decisions import decide_heartbeat
from group_coordinator.share.group import ShareGroup
from group_coordinator.share.requests import ShareGroupDescription, ShareHeartbeat, ShareMemberDescription
from group_coordinator.share.rules import check_heartbeat
from group_coordinator.share.waiting import WAITING
from group_coordinator.topics import check_visible, topic_shares


class ShareService:
    """Use cases of share groups. Each checks the caller's permission and the command before it asks the group."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        router: ShardRouter,
        authorizer: Authorizer,
        topics: TopicMetadata,
        features: Features,
        news: News,
    ) -> None:
        self._runtime = runtime
        self._router = router
        self._authorizer = authorizer
        self._topics = topics
        self._features = features
        self._heartbeats = Heartbeats(runtime, router=router, topics=topics, news=news, rules=WAITING)

    def heartbeat(self, request: ShareHeartbeat, context: CallContext) -> Pending[HeartbeatAnswer]:
        """Answer a heartbeat as soon as there is something new for the member, and at the latest after the wait.

        If a newer heartbeat of the member overtakes it, it is answered no later than that one.

        Errors: GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, as `rules.check_heartbeat`, and as spec groups
        6.1 and 3.7.
        """
        ask = partial(require, self._authorizer, context, Permission.READ, ResourceType.GROUP, request.group_id)
        ask()
        check_visible(self._authorizer, context, request.subscribed_topic_names or ())
        check_heartbeat(request)
        if not request.member_id:
            request = replace(request, member_id=uuid_text(new_uuid()))
        return self._begun(request, context).then(lambda _begun: self._heartbeats.answer(request, context, ask))

    def _begun(self, request: ShareHeartbeat, context: CallContext) -> Pending[None]:
        """Return a reply once the store has the feature of share groups, if this heartbeat would make the first one."""
        if self._features.has(SHARE_GROUPS) or not request.is_join:
            return settled(None)

        def decide_whether(shard: GroupShard, turn: Turn) -> Decision:
            decide_heartbeat(shard, turn, request=request)
            return Decision()

        tried = self._runtime.write(Operation(self._router.shard_key(request.group_id), decide_whether), context)
        return tried.then(lambda _accepted: self._features.begin(SHARE_GROUPS))

    def describe(self, group_ids: Iterable[str], context: CallContext) -> list[ShareGroupDescription]:
        """Describe share groups as they are on disk, in the given order.

        Each group is refused on its own: GROUP_AUTHORIZATION_FAILED; INVALID_GROUP_ID; GROUP_ID_NOT_FOUND, also for a
        group of another kind; NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        described = []
        for group_id in group_ids:
            try:
                described.append(self._describe(group_id, context))
            except Refused as refusal:
                described.append(ShareGroupDescription(group_id, refusal))
        return described

    def _describe(self, group_id: str, context: CallContext) -> ShareGroupDescription:
        require(self._authorizer, context, Permission.DESCRIBE, ResourceType.GROUP, group_id)
        check_group_id(group_id)
        shard: GroupShard = self._runtime.shard(self._router.shard_key(group_id))
        group = shard.durable_group(group_id)
        if not isinstance(group, ShareGroup):
            what = "there is no group" if group is None else f"{group.kind} is the kind of group"
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"{what} {group_id!a:.300}; list the groups")
        views = sorted(group.durable_members(), key=lambda view: view.member.member_id)
        for view in views:
            held = view.assignment.assigned
            named = {shape.topic for topic_id in held if (shape := self._topics.shape_of_id(topic_id)) is not None}
            check_visible(self._authorizer, context, named | view.member.topics)
        epochs = group.durable_epochs()
        return ShareGroupDescription(
            group_id=group_id,
            state_name=group.state_name,
            group_epoch=epochs.group_epoch,
            assignment_epoch=epochs.assignment_epoch,
            assignor_name=epochs.assignor_name or SIMPLE,
            members=tuple(
                ShareMemberDescription(
                    view.member, view.assignment.member_epoch, topic_shares(view.assignment.assigned, self._topics)
                )
                for view in views
            ),
        )
