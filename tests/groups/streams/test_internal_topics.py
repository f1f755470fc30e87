"""Internal topics of a topology: the service makes them with the rights of the member that needs them."""

from __future__ import annotations

from coordinator_runtime.ports import AllowAll, CallContext, Permission, ResourceType
from tests.harness.streams_groups import COUNTS, WORDS, streams_groups, subtopology, tasks, topology


class NoCreator(AllowAll):
    """Anybody may do anything but create topics."""

    is_strict = False

    def is_allowed(self, _context: CallContext, permission: Permission, _resource: ResourceType, _name: str) -> bool:
        return not self.is_strict or permission is not Permission.CREATE


def test_they_are_there_when_the_first_member_is_answered() -> None:
    streams = streams_groups()
    member = streams.member()
    member.joins(WORDS)
    assert member.statuses == ["ASSIGNMENT_DELAYED"]
    catalog = streams.world.inside.catalog
    assert {name: catalog.shape(name).partition_count for name in ("by-word", "counts")} == {"by-word": 6, "counts": 6}
    assert ("cleanup_policy", "compact") in catalog.topic("counts", b"").settings
    streams.starts()
    streams.settles(member)
    assert member.active == tasks("0", *range(6)) | tasks("1", *range(6))


def test_the_group_gets_one_epoch_for_all_of_them() -> None:
    streams = streams_groups()
    streams.member().joins(WORDS)
    # One for the member, and one for the topics.
    assert streams.epoch() == 3


def test_who_may_not_create_topics_is_told_so() -> None:
    authorizer = NoCreator()
    streams = streams_groups(authorizer=authorizer)
    authorizer.is_strict = True
    member = streams.member()
    answer = member.joins(COUNTS)
    assert member.statuses[0] == "MISSING_INTERNAL_TOPICS"
    assert "TOPIC_AUTHORIZATION_FAILED" in answer.statuses[0].detail
    authorizer.is_strict = False
    member.beats()
    streams.starts()
    streams.settles(member)
    assert (member.active, member.statuses) == (tasks("0", *range(6)), [])


def test_a_topic_that_cannot_be_made_is_told_with_its_reason() -> None:
    streams = streams_groups()
    wanted = topology(subtopology("0", "foo", changelogs=["counts"]))
    wanted.subtopologies[0].state_changelog_topics[0].config["no_such_setting"] = "1"
    member = streams.member()
    answer = member.joins(wanted)
    assert member.statuses[0] == "MISSING_INTERNAL_TOPICS"
    assert "INVALID_CONFIG" in answer.statuses[0].detail


def test_an_internal_topic_of_another_width_is_not_touched() -> None:
    streams = streams_groups(topics={"foo": 6, "counts": 2})
    member = streams.member()
    member.joins(COUNTS)
    assert member.statuses[0] == "INCORRECTLY_PARTITIONED_TOPICS"
    assert streams.world.inside.catalog.shape("counts").partition_count == 2
