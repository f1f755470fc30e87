"""Registered parts of the group coordinator. A new kind of group needs a folder of its own and an entry here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from coordinator_runtime.decision import Effect
from coordinator_runtime.ports import Committer
from coordinator_runtime.rows import Decoders, Encoders, TableCodec
from group_coordinator.administration import codec as administration_codec
from group_coordinator.administration.settings import GroupSettings
from group_coordinator.classic import codec as classic_codec
from group_coordinator.classic import decisions as classic_decisions
from group_coordinator.classic.rebalance import session_timer
from group_coordinator.classic.requests import Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from group_coordinator.classic.state import ClassicGroup, ClassicGroups, ClassicState
from group_coordinator.committed import codec as committed_codec
from group_coordinator.committed.decisions import decide_forget_topic
from group_coordinator.committed.expiry import decide_owed
from group_coordinator.committed.offsets import Offsets, durable_simple_group, simple_group
from group_coordinator.consumer import codec as consumer_codec
from group_coordinator.consumer import mixed, regexes, removal
from group_coordinator.consumer.group import ConsumerGroups
from group_coordinator.consumer.state import GroupState
from group_coordinator.shard import ShardPart
from group_coordinator.share import assigning as share_assigning
from group_coordinator.share import codec as share_codec
from group_coordinator.share import removal as share_removal
from group_coordinator.share.group import ShareGroups
from group_coordinator.share.state import ShareGroupState
from group_coordinator.state import Group, GroupKind
from group_coordinator.streams import assigning as streams_assigning
from group_coordinator.streams import codec as streams_codec
from group_coordinator.streams import removal as streams_removal
from group_coordinator.streams.group import StreamsGroups
from group_coordinator.streams.state import StreamsGroupState


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPart:
    """One part: a kind of group, or something that groups of every kind have."""

    in_shard: ShardPart
    """State of the part in a shard, and its changes by records."""
    encoders: Encoders
    """Encoders of its records: one for every class of value that its state replays."""
    decoders: Decoders
    """Decoders of its records, by record type (`codec` numbers them)."""
    timers: tuple[str, ...] = ()
    """Kinds of the timers that it arms, as the metric `txn_runtime_timers` names them."""
    state_names: tuple[str, ...] = ()
    """States in which a group of this kind can be, as ListGroups and the metric `txn_group_groups` show them."""


def _commit_effects(group: Group, committer: Committer) -> tuple[Effect, ...]:
    assert isinstance(group, ClassicGroup), "asked for groups of this kind alone"
    member = group.members.get(committer.member_id)
    return () if member is None else (session_timer(group, member),)


CLASSIC: Final = GroupPart(
    in_shard=ShardPart(
        make=ClassicGroups, owed=classic_decisions.decide_loaded, kind=GroupKind.CLASSIC, commit_effects=_commit_effects
    ),
    encoders=classic_codec.ENCODERS,
    decoders=classic_codec.DECODERS,
    timers=("session", "join", "sync"),
    state_names=tuple(state.value for state in ClassicState),
)
CONSUMER: Final = GroupPart(
    in_shard=ShardPart(
        make=ConsumerGroups,
        owed=removal.decide_loaded,
        kind=GroupKind.CONSUMER,
        topics_changed=regexes.decide_topics_changed,
        foreign_calls={
            JoinGroup: mixed.decide_join,
            SyncGroup: mixed.decide_sync,
            Heartbeat: mixed.decide_heartbeat,
            LeaveGroup: mixed.decide_leave,
        },
    ),
    encoders=consumer_codec.ENCODERS,
    decoders=consumer_codec.DECODERS,
    timers=("session", "rebalance", "join", "sync", "target", "regex"),
    state_names=tuple(state.value for state in GroupState),
)
SHARE: Final = GroupPart(
    in_shard=ShardPart(
        make=ShareGroups,
        owed=share_removal.decide_loaded,
        kind=GroupKind.SHARE,
        forget_topic=share_assigning.decide_forget_topic,
        topics_changed=share_assigning.decide_topics_changed,
        delete=share_removal.deletion,
    ),
    encoders=share_codec.ENCODERS,
    decoders=share_codec.DECODERS,
    timers=("session",),
    state_names=tuple(state.value for state in ShareGroupState),
)
STREAMS: Final = GroupPart(
    in_shard=ShardPart(
        make=StreamsGroups,
        owed=streams_removal.decide_loaded,
        kind=GroupKind.STREAMS,
        topics_changed=streams_assigning.decide_topics_changed,
    ),
    encoders=streams_codec.ENCODERS,
    decoders=streams_codec.DECODERS,
    timers=("session", "rebalance", "target"),
    state_names=tuple(state.value for state in StreamsGroupState),
)
COMMITTED: Final = GroupPart(
    in_shard=ShardPart(
        make=lambda shard: Offsets(shard.journal, on_turned=shard.standings.look),
        owed=decide_owed,
        forget_topic=decide_forget_topic,
        unlisted_group=simple_group,
        durable_unlisted_group=durable_simple_group,
    ),
    encoders=committed_codec.ENCODERS,
    decoders=committed_codec.DECODERS,
    timers=("offset_expiration",),
)
ADMINISTRATION: Final = GroupPart(
    in_shard=ShardPart(make=lambda shard: GroupSettings(shard.journal, shard.config)),
    encoders=administration_codec.ENCODERS,
    decoders=administration_codec.DECODERS,
)

PARTS: Final[tuple[GroupPart, ...]] = (CLASSIC, CONSUMER, SHARE, STREAMS, COMMITTED, ADMINISTRATION)
"""Registered parts, in the order of their work after a load."""


def codec_of(parts: Iterable[GroupPart]) -> TableCodec:
    """Return the codec of the records of all these parts."""
    return TableCodec((part.encoders, part.decoders) for part in parts)
