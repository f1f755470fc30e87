"""Verbs of the test language (`script`) for share groups: members take records and acknowledge them in transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from coordinator_protocol.errors import ErrorCode
from group_coordinator.share_partitions.rules import AckType
from tests.groups.share_partitions.pictures import picture
from tests.harness.groups import OK, code
from tests.harness.share_consumers import ShareConsumer
from tests.harness.share_groups import ShareMember
from tests.harness.share_partitions import Shares

if TYPE_CHECKING:
    from tests.harness.script import Script
    from tests.harness.script_line import Line


def _member(script: Script, line: Line) -> None:
    name, group, topic = line.words
    member = script.members[name] = ShareMember(script.world, name, group_id=group)
    member.joins(topic)
    script.say(f"member: epoch {member.epoch}")


def _leave(script: Script, line: Line) -> None:
    script.members[line.words[0]].leaves()
    script.world.settle()


def _take(script: Script, line: Line) -> None:
    name, partition = line.words
    shares = Shares(script.world, partition, script.members[name].group_id)
    if not shares.state.is_resolved:
        shares.resolve(0)
    taken = shares.acquire(name)
    script.say(f"{name} take: {' '.join(map(str, taken)) or 'nothing'}")


def _depart(script: Script, line: Line) -> None:
    script.members[line.words[0]].leaves_as_in_kafka()
    script.world.settle()


def _poll(script: Script, line: Line) -> None:
    (name,) = line.words
    consumer = script.consumers.setdefault(name, ShareConsumer(script.world, script.members[name]))
    response = consumer.asks()
    taken = consumer.acquired(response) if code(response) is OK else {}
    found = [f"{partition}: {' '.join(map(str, offsets))}" for partition, offsets in taken.items()]
    script.say(f"{name} poll: {', '.join(found) or _outcome(code(response), 'nothing')}")


def _finish(script: Script, line: Line) -> None:
    name, partition, offsets, kind = line.words
    first, _, last = offsets.partition("-")
    response = script.consumers[name].closes({partition: [(int(first), int(last or first), AckType[kind.upper()])]})
    error = code(response) if code(response) is not OK else code(response.results[0])
    script.say(f"{name} finish: {_outcome(error, 'ok')}")


def _outcome(error: ErrorCode, success: str) -> str:
    return success if error is OK else error.name


def _acknowledge(script: Script, line: Line) -> None:
    producer = script.producer(line)
    _, name, partition, offsets, kind = line.words
    first, _, last = offsets.partition("-")
    member = script.members[name]
    shares = Shares(script.world, partition, member.group_id)
    producer.last_call = shares.acknowledging_in_transaction(
        producer.transactional_id,
        producer.shown(line),
        member,
        (int(first), int(last or first), [AckType[kind.upper()]]),
        context=script.context(line, producer),
    )
    script.ask(producer.name, line, producer.last_call, lambda _done: "ok")


def show_share(script: Script, what: str) -> None:
    """Say what `share:group:partition` is on disk."""
    _, group, partition = what.split(":")
    shares = Shares(script.world, partition, group)
    state = shares.shard.durable(shares.key)
    script.say(f"{what}: {'unknown' if state is None else picture(state)}")


SHARE_VERBS: Final[dict[str, Callable[[Script, Line], None]]] = {
    "member": _member,
    "leave": _leave,
    "take": _take,
    "acknowledge": _acknowledge,
    "depart": _depart,
    "poll": _poll,
    "finish": _finish,
}
