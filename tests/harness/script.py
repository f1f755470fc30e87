"""The test language: one line is one thing that happens, and says what the outside sees of it.

Scenarios are written in it, and what Hypothesis finds is printed in it, so that a found case becomes a scenario by
pasting. A line is a verb and its arguments; `key=value` and single words after them are options.

    topic t 2                      make a topic                      (delete t: delete it)
    init p1 orders                 producer p1 initialises the transactional id "orders"
    init p1                        producer p1 gets an identity without a transactional id, for plain batches
    add p1 t-0 t-1                 AddPartitionsToTxn
    produce p1 t-0 a b             append the records a and b
    offset p1 group 7              put a group's offset of t-0 into the transaction (of=t-1: of another partition)
    end p1 commit                  EndTxn
    transact p1 commit t-0 a b , t-1 c   a whole transaction (offset=group:7: with a group's offset of t-0)
    prepare p1                     PrepareTransaction
    join p1 s 7                    p1 becomes a member of batch 7 of the sink s (run=r: as this run)
    close p1                       SealMember
    decide s 7 p1 p2               CommitBatch with these members
    give_up s                      AbortBatch of whatever is open
    cancel p1                      p1 gives its last call up
    member w1 workers t            w1 becomes a member of the share group "workers" (leave w1: leaves it)
    depart w1                      w1 leaves as over Kafka's protocol, and keeps its share session
    poll w1                        w1 acquires records in its session
    finish w1 t-0 0-4 accept       w1 acknowledges them in the last request of its session
    take w1 t-0                    w1 acquires records of t-0
    acknowledge p1 w1 t-0 0-4 accept   w1 acknowledges them in the transaction of p1 (or reject)
    flush, flush 1, seal           make durable what is staged; its first group; end a turn of the loop
    settle                         flush until nothing follows
    markers                        flush once and show the markers that became durable
    crash, crash keep=1            lose the process, and what was not durable but for some groups
    backup                         copy the store
    restore                        lose the process and all since the last backup, and go on with that
    disk_error, disk_error keep=1  the next sync fails: the process ends, and starts again
    unload orders                  let go of the shard of an id, a partition (t-0), a group (group:name), or the share
                                   partitions beside a partition (share:t-0)
    load orders                    read it from the store once more
    tick 500                       let time pass
    fetch t-0                      what a reader gets: read committed, or `uncommitted`, or `raw`
    producers t-0                  what a partition remembers of producers
    show orders                    durable state of an id, a partition (t-0), a group (group:name), or a partition as a
                                   share group reads it (share:workers:t-0)

A request is flushed once, so that its own answer can come; with `hold` it is not. `lost`: the answer never reaches the
producer. `now`: refuse_concurrent. `deadline=500`: the caller waits that long. `as=7/3`: the identity shown, producer
id 7 and epoch 3. `v1` at init: the producer speaks client version 1. `request=x` at init: the request names itself.
`2pc` and `keep` at init: enable_2pc and keep_prepared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from coordinator_protocol.errors import CoordinatorError, Outdated, Refused
from coordinator_protocol.marker import Outcome
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from partition_log.requests import ProduceResult
from partition_log.state import Isolation
from tests.harness.memory_store import MemoryStore
from tests.harness.script_line import Line, parse
from tests.harness.script_producer import Producer, identity_in
from tests.harness.share_consumers import ShareConsumer
from tests.harness.share_groups import ShareMember
from tests.harness.share_script import SHARE_VERBS, show_share
from tests.harness.shelf import MemoryShelf
from tests.harness.shown import shown_entry, shown_identity, shown_producer, shown_transaction
from tests.harness.sink_script import SINK_VERBS
from tests.harness.world import TransactContents, World
from txn_coordinator.outcomes import Ended
from txn_coordinator.service import TransactResult
from txn_coordinator.shard import Initialised
from txn_coordinator.state import Identity


class Script:
    """A world, the producers in it, and what was said."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.producers: dict[str, Producer] = {}
        self.transacts = 0
        """Number of Transacts named by a number, because the script had no name for them."""
        self.backup: MemoryStore | None = None
        self.members: dict[str, ShareMember] = {}
        self.consumers: dict[str, ShareConsumer] = {}
        """Members of share groups."""
        self._said: list[str] = []

    def run(self, text: str) -> list[str]:
        """Let one line happen; returns what the outside saw."""
        line = parse(text)
        self._said = []
        VERBS[line.verb](self, line)
        return self._said

    def say(self, text: str) -> None:
        self._said.append(text)

    def ask(self, who: str, line: Line, reply: Pending[Any], tell: Callable[[Any], str]) -> None:
        """Show the answer when it comes, and give it the one flush that it needs."""
        label = f"{who} {line.verb}" if who else line.verb

        def on_settled(settled: Pending[Any]) -> None:
            if "lost" in line.flags:
                self.say(f"{label}: answered, and the answer is lost")
                return
            try:
                self.say(f"{label}: {tell(settled.result())}")
            except CoordinatorError as error:
                self.say(f"{label}: {error.code.name}{', outdated' if isinstance(error, Outdated) else ''}")

        reply.on_settled(on_settled)
        if "hold" in line.flags:
            return
        if not reply.is_settled:
            self.world.flush()
        if not reply.is_settled:
            self.say(f"{label}: waits")

    def producer(self, line: Line) -> Producer:
        return self.producers[line.words[0]]

    def context(self, line: Line, producer: Producer) -> CallContext:
        deadline = line.options.get("deadline")
        return CallContext(
            client_id=producer.name,
            client_txn_version=producer.version,
            request_id=line.options.get("request", "").encode().ljust(16, b".") if "request" in line.options else b"",
            refuse_concurrent="now" in line.flags,
            deadline_ms=None if deadline is None else self.world.clock.monotonic_ms() + int(deadline),
        )


# One function per verb


def _topic(script: Script, line: Line) -> None:
    result = script.world.create_topic(line.words[0], int(line.words[1]))
    script.say(f"topic: {result.error.code.name if result.error else 'ok'}")


def _delete(script: Script, line: Line) -> None:
    reply = script.world.delete_topic(line.words[0])
    script.ask("", line, reply, lambda result: result.error.code.name if result.error else "ok")


def _init(script: Script, line: Line) -> None:
    name, *named = line.words
    producer = script.producers.get(name)
    if producer is None:
        producer = Producer(name, named[0] if named else None, version=1 if "v1" in line.flags else 2)
        script.producers[name] = producer
    if not named:
        producer.last_call = script.world.init_plain(script.context(line, producer))
        script.ask(name, line, producer.last_call, partial(_become_plain, producer))
        return
    (transactional_id,) = named
    expected = None
    if line.options.get("expected") == name:
        expected = producer.identity
    elif "expected" in line.options:
        expected = identity_in(line.options["expected"])
    timeout_ms = int(line.options.get("timeout", "60000"))
    producer.last_call = script.world.recover(
        transactional_id,
        script.context(line, producer),
        timeout_ms=timeout_ms,
        expected=expected,
        enable_2pc="2pc" in line.flags,
        keep_prepared="keep" in line.flags,
    )

    def tell(initialised: Initialised) -> str:
        producer.become(initialised.identity)
        ongoing = "" if initialised.ongoing is None else f", ongoing {shown_identity(initialised.ongoing)}"
        return shown_identity(initialised.identity) + ongoing

    script.ask(name, line, producer.last_call, tell)


def _become_plain(producer: Producer, identity: Identity) -> str:
    producer.become(identity)
    return shown_identity(identity)


def _add(script: Script, line: Line) -> None:
    producer = script.producer(line)
    producer.last_call = script.world.add(
        producer.transactional_id, producer.shown(line), line.words[1:], script.context(line, producer)
    )
    script.ask(producer.name, line, producer.last_call, lambda _added: "ok")


def _offset(script: Script, line: Line) -> None:
    producer = script.producer(line)
    _, group, offset = line.words
    producer.last_call = script.world.commit_offset(
        producer.transactional_id,
        producer.shown(line),
        group,
        int(offset),
        script.context(line, producer),
        partition=line.options.get("of", "t-0"),
    )
    script.ask(producer.name, line, producer.last_call, lambda _kept: "ok")


def _produce(script: Script, line: Line) -> None:
    producer = script.producer(line)
    _, partition, *values = line.words
    identity = producer.shown(line)
    sequence = int(line.options.get("seq", producer.sequences.get(partition, 0)))
    producer.sequences[partition] = sequence + len(values)
    producer.last_call = script.world.produce(
        None if "plain" in line.flags else producer.own_id,
        identity,
        partition,
        values,
        sequence=sequence,
        context=script.context(line, producer),
    )

    def tell(result: ProduceResult) -> str:
        if result.error is not None:
            return result.error.code.name
        return f"at {result.base_offset}" + (", a duplicate" if result.is_duplicate else "")

    script.ask(producer.name, line, producer.last_call, tell)


def _prepare(script: Script, line: Line) -> None:
    producer = script.producer(line)
    producer.last_call = script.world.prepare(
        producer.transactional_id, producer.shown(line), script.context(line, producer)
    )
    script.ask(producer.name, line, producer.last_call, lambda noted: f"ok, note {shown_identity(noted)}")


def _end(script: Script, line: Line) -> None:
    producer = script.producer(line)
    outcome = Outcome[line.words[1].upper()]
    claimed = []
    if "last" in line.options:
        partition, sequence = line.options["last"].split(":")
        claimed.append((partition, int(sequence)))
    producer.last_call = script.world.end(
        producer.transactional_id,
        producer.shown(line),
        outcome,
        script.context(line, producer),
        last_sequences=claimed,
    )

    def tell(ended: Ended) -> str:
        if producer.version == 1:
            return f"ok, csn {ended.csn}"
        producer.become(ended.next_identity)
        return f"ok, csn {ended.csn}, next {shown_identity(ended.next_identity)}"

    script.ask(producer.name, line, producer.last_call, tell)


def _transact(script: Script, line: Line) -> None:
    producer = script.producer(line)
    _, outcome, *words = line.words
    batches = []
    sequences = dict(producer.sequences)
    for partition, *values in _split(words):
        sequence = int(line.options.get("seq", sequences.get(partition, 0)))
        sequences[partition] = sequence + len(values)
        batches.append((partition, values, sequence))
    offsets = []
    if "offset" in line.options:
        group, offset = line.options["offset"].split(":")
        offsets.append((group, "t-0", int(offset)))
    context = script.context(line, producer)
    if not context.request_id:
        script.transacts += 1
        context = replace(context, request_id=b"%016d" % script.transacts)
    producer.last_call = script.world.transact(
        producer.transactional_id,
        producer.shown(line),
        TransactContents(batches, offsets),
        Outcome[outcome.upper()],
        context,
    )

    def tell(result: TransactResult) -> str:
        following = result.ended.next_identity
        producer.become(following)
        written = "".join(f", {target.topic}-{target.partition} at {at}" for target, at in result.first_offsets)
        return f"ok, csn {result.ended.csn}, next {shown_identity(following)}{written}"

    script.ask(producer.name, line, producer.last_call, tell)


def _split(words: Sequence[str]) -> list[list[str]]:
    """The words between commas."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word == ",":
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


def _cancel(script: Script, line: Line) -> None:
    reply = script.producer(line).last_call
    assert reply is not None, "nothing to give up"
    reply.cancel()


def _flush(script: Script, line: Line) -> None:
    script.world.flush(int(line.words[0]) if line.words else None)


def _seal(script: Script, line: Line) -> None:
    script.world.seal()


def _settle(script: Script, line: Line) -> None:
    script.world.settle()


def _markers(script: Script, line: Line) -> None:
    before = {partition: _high_watermark(script.world, partition) for partition in _partitions(script.world)}
    script.world.flush()
    for partition, offset in before.items():
        reading = script.world.read(partition, fetch_offset=offset, is_raw=True)
        for entry in reading.entries:
            if entry.marker is not None:
                script.say(f"{partition}: {shown_entry(entry)}")


def _backup(script: Script, _line: Line) -> None:
    script.world.settle()
    assert isinstance(script.world.shelf, MemoryShelf), "only the memory store is copied"
    script.backup = script.world.shelf.store.copy()


def _restore(script: Script, _line: Line) -> None:
    assert script.backup is not None, "a backup comes first"
    script.world.restore(script.backup)
    script.world.settle()


def _crash(script: Script, line: Line) -> None:
    script.world.crash(kept_groups=int(line.options.get("keep", "0")), down_ms=int(line.options.get("down", "0")))


def _disk_error(script: Script, line: Line) -> None:
    script.world.fail_disk(kept_groups=int(line.options.get("keep", "0")))


def _unload(script: Script, line: Line) -> None:
    (what,) = line.words
    script.ask(what, line, script.world.unload(what), lambda _unloaded: "gone")


def _load(script: Script, line: Line) -> None:
    (what,) = line.words
    loading = script.world.load(what)
    if "hold" not in line.flags:
        script.world.inside.driver.read_all()
    script.ask(what, line, loading, lambda _loaded: "serves")


def _tick(script: Script, line: Line) -> None:
    script.world.tick(int(line.words[0]))


def _fetch(script: Script, line: Line) -> None:
    (partition,) = line.words
    isolation = Isolation.READ_UNCOMMITTED if "uncommitted" in line.flags else Isolation.READ_COMMITTED
    try:
        reading = script.world.read(
            partition,
            fetch_offset=int(line.options.get("from", "0")),
            isolation=isolation,
            is_raw="raw" in line.flags,
        )
    except Refused as refusal:
        script.say(f"{partition}: {refusal.code.name}")
        return
    entries = " ".join(shown_entry(entry) for entry in reading.entries) or "nothing"
    hidden = f", {reading.aborted_records_hidden} hidden" if reading.aborted_records_hidden else ""
    script.say(f"{partition}: {entries} | next {reading.next_offset}{hidden}")


def _remembered(script: Script, line: Line) -> None:
    (partition,) = line.words
    found = script.world.remembered(partition)
    script.say(f"{partition}: {', '.join(shown_producer(*each) for each in found) or 'remembers none'}")


def _show(script: Script, line: Line) -> None:
    (what,) = line.words
    if what.startswith("share:"):
        show_share(script, what)
    elif what.startswith("group:"):
        view = script.world.inside.groups.view(what.removeprefix("group:"))
        committed = ", ".join(f"{partition} {offset}" for partition, offset in sorted(view.committed.items()))
        waiting = ", ".join(
            f"{shown_identity(Identity(*producer))} {partition} {offset}"
            for producer, partition, offset in view.pending
        )
        script.say(f"{what}: {committed or 'no offset'} | pending {waiting or 'nothing'}")
    elif what in _partitions(script.world):
        reading = script.world.read(what, isolation=Isolation.READ_UNCOMMITTED, is_raw=True)
        entries = " ".join(shown_entry(entry) for entry in reading.entries) or "empty"
        script.say(f"{what}: {entries} | stable {reading.last_stable_offset} of {reading.high_watermark}")
    else:
        try:
            script.say(shown_transaction(script.world, script.world.describe(what)))
        except Refused as refusal:
            script.say(f"{what}: {refusal.code.name}")


VERBS: Final[dict[str, Callable[[Script, Line], None]]] = {
    "topic": _topic,
    "delete": _delete,
    "init": _init,
    "add": _add,
    "offset": _offset,
    "produce": _produce,
    "prepare": _prepare,
    "end": _end,
    "transact": _transact,
    "cancel": _cancel,
    "flush": _flush,
    "seal": _seal,
    "settle": _settle,
    "markers": _markers,
    "crash": _crash,
    "backup": _backup,
    "restore": _restore,
    "disk_error": _disk_error,
    "unload": _unload,
    "load": _load,
    "tick": _tick,
    "fetch": _fetch,
    "producers": _remembered,
    "show": _show,
    **SINK_VERBS,
    **SHARE_VERBS,
}


def _partitions(world: World) -> Sequence[str]:
    topics = world.inside.catalog.durable_topics()
    return [f"{topic.name}-{partition}" for topic in topics for partition in range(len(topic.partition_ordinals))]


def _high_watermark(world: World, partition: str) -> int:
    return world.read(partition, is_raw=True).high_watermark
