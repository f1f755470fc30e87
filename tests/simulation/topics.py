"""The topics of a run: one that grows and whose settings change, and perhaps one that comes and goes.

Clients write to new partitions as soon as one has asked for them: before that is durable, and when it is refused.
What is durable is there for ever, so it is read, and audited.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random

from coordinator_protocol.errors import CoordinatorError, Refused
from coordinator_runtime.pending import Pending
from partition_log.catalog.settings import RETENTION_BYTES, SettingsChange
from partition_log.catalog.state import MorePartitions, NewTopic, Topic, TopicToAlter
from partition_log.requests import (
    AlterTopicConfigs,
    CreatePartitions,
    CreateTopics,
    DescribeTopicConfigs,
    TopicConfigs,
    TopicName,
    TopicResult,
)
from tests.harness.group_calls import ANYBODY
from tests.harness.payloads import UNREADABLE_PAYLOADS
from tests.harness.world import World
from tests.simulation.history import Growth, History, SettingChange
from tests.simulation.members import TOPIC as SHARED_TOPIC
from tests.simulation.options import Options
from tests.simulation.passing import Passing

_TOPIC = "t"
_PASSING = "passing"
_MORE_MAX = 3
"""How many partitions a topic gets at most, beside those that it begins with."""
_RETENTIONS = ("-1", "1", "500", "3000")


class Topics:
    """What there is to write to, and who changes it."""

    def __init__(self, world: World, rng: Random, history: History, options: Options, now: Callable[[], int]) -> None:
        self._world = world
        self._rng = rng
        self._history = history
        self._now = now
        self._first_count = self._aimed_at = options.partitions
        self.partitions: list[str] = []
        """The partitions that are durable and never go."""
        self.passing = Passing(world, history, _PASSING if options.passing_weight else "")
        self.targets = [self.passing.partition] if options.passing_weight else []
        """Partitions that clients write to."""
        config: Mapping[str, str] = UNREADABLE_PAYLOADS
        if options.topic_keys is not None:
            config = {**config, **options.topic_compaction}
        world.create_topic(_TOPIC, options.partitions, config=config)
        if options.passing_weight:
            world.create_topic(_PASSING, 1)
        self.look()

    def change(self) -> None:
        """A client asks for more partitions, or for another setting."""
        self._rng.choices((self._grow, self._grow_shared, self._alter), (4, 2, 3))[0]()

    def delete_or_create(self) -> None:
        if self._rng.random() < 0.5:
            self._world.delete_topic(_PASSING)
        else:
            self._world.inside.topics.create_topics(CreateTopics([NewTopic(_PASSING, 1)]), ANYBODY)

    def look(self) -> None:
        """See what is durable by now."""
        count = len(self._topic().partition_ordinals)
        self._history.sizes.append((self._now(), count))
        for number in range(len(self.partitions), count):
            self.partitions.append(f"{_TOPIC}-{number}")
            self._history.removed.setdefault(f"{_TOPIC}-{number}", [])
        self._aim_at(count)
        described = DescribeTopicConfigs([TopicName(_TOPIC)])
        (found,) = self._world.inside.topics.describe_topic_configs(described, ANYBODY)
        (setting,) = (each for each in found.settings if each.name == RETENTION_BYTES)
        own = setting.value if setting.origin == "topic" else None
        self._history.settings_seen.append((self._now(), own))

    def _topic(self) -> Topic:
        return self._world.inside.catalog.durable_topic(_TOPIC, b"")

    def _aim_at(self, count: int) -> None:
        self._aimed_at = max(self._aimed_at, count)
        names = (f"{_TOPIC}-{number}" for number in range(count))
        self.targets += [name for name in names if name not in self.targets]

    def _grow(self) -> None:
        """More partitions than there are, or as many, or fewer: only the first can be had."""
        most = self._first_count + _MORE_MAX
        count = min(most, max(0, self._aimed_at + self._rng.choice((-1, 0, 1, 1, 1, 2))))
        growth = Growth(self._now(), count)
        self._history.growths.append(growth)
        life = self._world.lives

        def answered(settled: Pending[list[TopicResult]]) -> None:
            if life == self._world.lives:
                self._note(growth, settled.result()[0].error)

        asked = CreatePartitions([MorePartitions(_TOPIC, b"", count)])
        self._world.inside.topics.create_partitions(asked, ANYBODY).on_settled(answered)
        self._aim_at(count)

    def _grow_shared(self) -> None:
        with suppress(Refused):  # No member has gathered.
            grow_shared(self._world)

    def _alter(self) -> None:
        value = self._rng.choice((None, *_RETENTIONS))
        alteration = SettingChange(self._now(), value)
        self._history.alterations.append(alteration)
        life = self._world.lives

        def answered(settled: Pending[list[TopicConfigs]]) -> None:
            if life == self._world.lives:
                self._note(alteration, settled.result()[0].error)

        change = SettingsChange({}, (RETENTION_BYTES,)) if value is None else SettingsChange({RETENTION_BYTES: value})
        asked = AlterTopicConfigs([TopicToAlter(_TOPIC, b"", change)])
        self._world.inside.topics.alter_topic_configs(asked, ANYBODY).on_settled(answered)

    def _note(self, asked: Growth | SettingChange, error: CoordinatorError | None) -> None:
        """What was answered; an unknown outcome is no answer."""
        if error is None or isinstance(error, Refused):
            asked.error = "" if error is None else error.code.name
            asked.answered_at = self._now()


def grow_shared(world: World) -> None:
    """Ask for one more partition of the topic that groups share. Raises Refused where no member has gathered."""
    asked = CreatePartitions([MorePartitions(SHARED_TOPIC, b"", shared_count(world) + 1)])
    world.inside.topics.create_partitions(asked, ANYBODY)


def shared_count(world: World) -> int:
    """How many partitions groups share. Raises Refused where no member has gathered."""
    return len(world.inside.catalog.topic(SHARED_TOPIC, b"").partition_ordinals)
