"""Services of streams groups for their members: heartbeats (`group_coordinator.heartbeats` answers them), internal
topics, and descriptions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.names import check_group_id
from coordinator_runtime.decision import Decision, Operation, ShardRouter, Turn
from coordinator_runtime.features import STREAMS_GROUPS, Features
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import (
    Authorizer,
    CallContext,
    Permission,
    ResourceType,
    TopicMetadata,
    require,
)
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.topic_making import TopicMaker
from group_coordinator.heartbeats import Heartbeats
from group_coordinator.news import News
from group_coordinator.shard import GroupShard
from group_coordinator.streams.background import make_topics
from group_coordinator.streams.decisions import decide_heartbeat
from group_coordinator.streams.group import StreamsGroup
from group_coordinator.streams.requests import (
    StreamsGroupDescription,
    StreamsHeartbeat,
    StreamsMemberDescription,
    StreamsReply,
)
from group_coordinator.streams.rules import check_heartbeat
from group_coordinator.streams.topology import Status, StatusCode
from group_coordinator.streams.waiting import WAITING
from group_coordinator.topics import check_visible


@dataclass(frozen=True, slots=True)
class StreamsPorts:
    """Parts that streams groups need from others."""

    authorizer: Authorizer
    topics: TopicMetadata
    features: Features
    maker: TopicMaker


class StreamsService:
    """Use cases of streams groups. Each checks the caller's permission and the command before it asks the group."""

    def __init__(self, runtime: Runtime, router: ShardRouter, ports: StreamsPorts, news: News) -> None:
        self._runtime = runtime
        self._router = router
        self._authorizer = ports.authorizer
        self._features = ports.features
        self._maker = ports.maker
        self._heartbeats = Heartbeats(runtime, router=router, topics=ports.topics, news=news, rules=WAITING)

    def heartbeat(self, request: StreamsHeartbeat, context: CallContext) -> Pending[StreamsReply]:
        """Answer a heartbeat as soon as there is something new for the member, and at the latest after the wait.

        If internal topics are missing, they are made first. If a newer heartbeat of the member overtakes it, it is
        answered no later than that one.

        Errors: GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, as `rules.check_heartbeat`, and as spec groups
        6.7 and 3.7.
        """
        ask = partial(require, self._authorizer, context, Permission.READ, ResourceType.GROUP, request.group_id)
        ask()
        check_heartbeat(request)
        if request.topology is not None:
            check_visible(self._authorizer, context, request.topology.topics())

        def answer() -> Pending[StreamsReply]:
            return self._heartbeats.reply(request, context, ask).map(_as_streams)

        def after(reply: StreamsReply) -> Pending[StreamsReply]:
            if not reply.to_make:
                return settled(reply)
            made = make_topics(self._maker, reply.to_make, context)
            return made.then(lambda why_not: settled(_with_reason(reply, why_not)) if why_not else answer())

        return self._begun(request, context).then(lambda _begun: answer()).then(after)

    def _begun(self, request: StreamsHeartbeat, context: CallContext) -> Pending[None]:
        """Return a reply once the store has the feature of streams groups, if this heartbeat would make the first
        one."""
        if self._features.has(STREAMS_GROUPS) or not request.is_join:
            return settled(None)

        def decide_whether(shard: GroupShard, turn: Turn) -> Decision:
            decide_heartbeat(shard, turn, request=request)
            return Decision()

        tried = self._runtime.write(Operation(self._router.shard_key(request.group_id), decide_whether), context)
        return tried.then(lambda _accepted: self._features.begin(STREAMS_GROUPS))

    def describe(self, group_ids: Iterable[str], context: CallContext) -> list[StreamsGroupDescription]:
        """Describe streams groups as they are on disk, in the given order.

        Each group is refused on its own: GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED; INVALID_GROUP_ID;
        GROUP_ID_NOT_FOUND, also for a group of another kind; NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        described = []
        for group_id in group_ids:
            try:
                described.append(self._describe(group_id, context))
            except Refused as refusal:
                described.append(StreamsGroupDescription(group_id, refusal))
        return described

    def _describe(self, group_id: str, context: CallContext) -> StreamsGroupDescription:
        require(self._authorizer, context, Permission.DESCRIBE, ResourceType.GROUP, group_id)
        check_group_id(group_id)
        shard: GroupShard = self._runtime.shard(self._router.shard_key(group_id))
        group = shard.durable_group(group_id)
        if not isinstance(group, StreamsGroup):
            what = "there is no group" if group is None else f"{group.kind} is the kind of group"
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"{what} {group_id!a:.300}; list the groups")
        topology, epochs = group.durable_topology(), group.durable_epochs()
        check_visible(self._authorizer, context, topology.topics())
        views = sorted(group.durable_members(), key=lambda view: view.member.member_id)
        return StreamsGroupDescription(
            group_id=group_id,
            state_name=group.state_name,
            group_epoch=epochs.group_epoch,
            assignment_epoch=epochs.assignment_epoch,
            topology=topology,
            members=tuple(
                StreamsMemberDescription(
                    view.member,
                    view.assignment.member_epoch,
                    view.assignment.assigned,
                    view.target,
                    group.reports.get(view.member.member_id) or (),
                )
                for view in views
            ),
        )


def _as_streams(reply: object) -> StreamsReply:
    assert isinstance(reply, StreamsReply), "the decisions of this part give no other reply"
    return reply


def _with_reason(reply: StreamsReply, why_not: str) -> StreamsReply:
    """Return the reply with the reason for which internal topics could not be made."""
    return replace(
        reply,
        statuses=tuple(
            Status(each.code, f"{each.detail}; they cannot be made: {why_not}")
            if each.code is StatusCode.MISSING_INTERNAL_TOPICS
            else each
            for each in reply.statuses
        ),
    )
