"""A share group with one member, on the topic "t": its heartbeats, its session, and the state of each record.

It knows the rules a client depends on: epochs of the session, holders, counts of deliveries. The suite against the real
server holds it to the truth.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1 import share_pb2 as share
from coordinator_client import ShareConsumer, TopicPartition
from coordinator_client.encodings import BatchStamp, write_batch
from coordinator_client.values import Row
from coordinator_protocol.batch import Compression, Encoding
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from tests.client.fake_server import refuse
from tests.client.world import Held, World

INTERVAL_MS = 5_000
LOCK_MS = 30_000

_ENDS = {0: "archived", 1: "acknowledged", 2: "available", 3: "archived", 4: "held"}


@dataclass
class Cell:
    """The state of one offset."""

    state: str = "available"
    count: int = 0


@dataclass
class FakeSharePartition:
    """The batches of one partition, and the state of each offset."""

    batches: list[log.RecordBatch] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)

    def in_state(self, state: str) -> list[int]:
        return [offset for offset, cell in enumerate(self.cells) if cell.state == state]


class FakeShareGroup:
    """A share group of a fake server. Tests look at `partitions` and `acks`."""

    def __init__(self, world: World, *, partition_count: int = 2) -> None:
        world.server.topics["t"] = partition_count
        world.server.handle(Method.SHARE_GROUP_HEARTBEAT, self.heartbeat)
        world.server.handle(Method.SHARE_FETCH, self.fetch)
        world.server.handle(Method.SHARE_ACKNOWLEDGE, self.acknowledge)
        self.partitions = [FakeSharePartition() for _ in range(partition_count)]
        self.member_id = ""
        self.member_epoch = 0
        self.epoch = 0
        self.given = set(range(partition_count))
        self.session_epoch: int | None = None
        """Next epoch of the session; None = there is none."""
        self.session: set[int] = set()
        self.allows_renewal = True
        self.acks: list[tuple[int, int, int]] = []
        """Partition, offset and type of every acknowledgement that was done."""
        self.refusals: list[ErrorCode] = []
        """Codes with which the next requests of the session are refused as a whole."""
        self._told: set[int] | None = None
        self._world = world
        self._beats: list[tuple[group.ShareGroupHeartbeatRequest, Held]] = []
        self._fetches: list[tuple[share.ShareFetchRequest, Held]] = []

    # What a test does.

    def append(self, partition: int, *values: bytes, holes: int = 0, payload: bytes | None = None) -> None:
        """Lay a batch of these values down, with offsets behind them that have no record."""
        batch = log.RecordBatch()
        stamp = BatchStamp(producer_id=-1, producer_epoch=-1, base_sequence=-1, is_transactional=False)
        rows: list[Row] = [(None, value, 1_000, ()) for value in values]
        write_batch(batch, rows, encoding=Encoding.RECORDS_V1, compression=Compression.NONE, stamp=stamp)
        part = self.partitions[partition]
        batch.base_offset = len(part.cells)
        if payload is not None:
            batch.payload = payload
        part.batches.append(batch)
        part.cells += [Cell() for _ in range(len(values) + holes)]
        self._answer_fetches()

    def give(self, *partitions: int) -> None:
        """Let the member fetch from these, from now on."""
        self.given = set(partitions)
        self.epoch += 1
        self._answer_beats()

    def remove(self) -> None:
        """Take the member out, as the session timer does; its records are available again."""
        self.member_id, self.member_epoch = "", 0
        self.restart()
        self._answer_beats()

    def expire(self, *, partition: int = 0, offsets: Iterable[int] | None = None) -> None:
        """End the locks of these records, by default of all of a partition."""
        for offset in self.partitions[partition].in_state("held") if offsets is None else offsets:
            self.partitions[partition].cells[offset].state = "available"
        self._answer_fetches()

    def forget_session(self) -> None:
        """End the session, as a server with too many does. The records stay held."""
        self.session_epoch = None

    def restart(self) -> None:
        """Lose what is in memory only: the session, and the holders of records."""
        self.session_epoch = None
        self._fetches.clear()
        for number in range(len(self.partitions)):
            self.expire(partition=number)

    def state(self, partition: int = 0) -> str:
        """The first letters of the states: (a)vailable, (h)eld, ac(k)nowledged, a(r)chived."""
        letters = {"available": "a", "held": "h", "acknowledged": "k", "archived": "r"}
        return "".join(letters[cell.state] for cell in self.partitions[partition].cells)

    # Heartbeats.

    def heartbeat(self, request: group.ShareGroupHeartbeatRequest) -> group.ShareGroupHeartbeatResponse | Held:
        if request.member_epoch == 0:
            self.epoch += 1
            self.member_id, self._told = request.member_id, None
        self._beats.clear()
        reply = self._answer(request)
        if reply.error_code or reply.HasField("assignment") or request.max_wait_ms == 0:
            return reply
        held = Held()
        self._beats.append((request, held))
        self._world.call_after(request.max_wait_ms, lambda: held.give(self._answer(request)))
        return held

    def _answer(self, request: group.ShareGroupHeartbeatRequest) -> group.ShareGroupHeartbeatResponse:
        reply = group.ShareGroupHeartbeatResponse(member_id=request.member_id, heartbeat_interval_ms=INTERVAL_MS)
        if request.member_id != self.member_id:
            return refuse(reply, Method.SHARE_GROUP_HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID)
        if request.member_epoch < 0:
            self.member_id = ""
            self.restart()
            reply.member_epoch = -1
            return reply
        if request.member_epoch not in (0, self.member_epoch):
            return refuse(reply, Method.SHARE_GROUP_HEARTBEAT, ErrorCode.FENCED_MEMBER_EPOCH)
        self.member_epoch = reply.member_epoch = self.epoch
        if self._told != self.given:
            self._told = set(self.given)
            reply.assignment.SetInParent()
            if self.given:
                topic_id = self._world.server.id_of("t")
                reply.assignment.topics.add(topic="t", topic_id=topic_id, partitions=sorted(self.given))
        return reply

    def _answer_beats(self) -> None:
        beats, self._beats = self._beats, []
        for request, held in beats:
            held.give(self._answer(request))

    # The session.

    def _take_epoch(self, request: share.ShareFetchRequest | share.ShareAcknowledgeRequest) -> ErrorCode:
        if self.refusals:
            return self.refusals.pop(0)
        if request.session_epoch == 0:
            if request.member_id != self.member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
            self.session_epoch, self.session = 1, set()
            return ErrorCode.NONE
        if self.session_epoch is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if request.session_epoch == -1:
            return ErrorCode.NONE
        if request.session_epoch != self.session_epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        self.session_epoch += 1
        return ErrorCode.NONE

    def fetch(self, request: share.ShareFetchRequest) -> share.ShareFetchResponse | Held:
        reply = share.ShareFetchResponse(lock_duration_ms=LOCK_MS)
        code = self._take_epoch(request)
        if code:
            return refuse(reply, Method.SHARE_FETCH, code)
        has_acks = False
        for asked in request.partitions:
            why = self._world.server.why_gone("t", asked.topic_id, asked.partition)
            if asked.acknowledgements:
                has_acks = True
                result = reply.results.add(topic="t", topic_id=asked.topic_id, partition=asked.partition)
                code = self._acknowledge(asked)
                if code:
                    refused = refuse(share.ShareAcknowledgeResult(), Method.SHARE_FETCH, code)
                    result.acknowledge_error_code = refused.error_code
                    result.acknowledge_error_class = refused.error_class
                    result.acknowledge_error_message = refused.error_message
            if why and asked.acknowledgements:
                refuse(result, Method.SHARE_FETCH, why)
            elif why:
                refuse(reply.results.add(topic="t", partition=asked.partition), Method.SHARE_FETCH, why)
            else:
                self.session.add(asked.partition)
        for forgotten in request.forgotten:
            self.session -= set(forgotten.partitions)
        self._acquire(request, reply)
        if has_acks or reply.results or request.max_wait_ms == 0:
            return reply
        held = Held()
        self._fetches.append((request, held))
        self._world.call_after(request.max_wait_ms, lambda: self._time_out(request, held))
        return held

    def _time_out(self, request: share.ShareFetchRequest, held: Held) -> None:
        if (request, held) in self._fetches:
            self._fetches.remove((request, held))
            held.give(share.ShareFetchResponse(lock_duration_ms=LOCK_MS))

    def _answer_fetches(self) -> None:
        fetches, self._fetches = self._fetches, []
        for request, held in fetches:
            reply = share.ShareFetchResponse(lock_duration_ms=LOCK_MS)
            self._acquire(request, reply)
            if reply.results:
                held.give(reply)
            else:
                self._fetches.append((request, held))

    def _acquire(self, request: share.ShareFetchRequest, reply: share.ShareFetchResponse) -> None:
        left = request.max_records
        for number in sorted(self.session & self.given):
            part = self.partitions[number]
            result = share.ShareFetchResult(topic="t", topic_id=self._world.server.id_of("t"), partition=number)
            ends = [*[batch.base_offset for batch in part.batches[1:]], len(part.cells)]
            # Without a batch there is one end too many.
            for batch, end in zip(part.batches, ends, strict=False):
                free = [offset for offset in range(batch.base_offset, end) if part.cells[offset].state == "available"]
                if not free or left <= 0:
                    continue
                free = free[:left] if request.strict_max_records else free
                left -= len(free)
                result.batches.append(batch)
                for offset in free:
                    cell = part.cells[offset]
                    cell.state, cell.count = "held", cell.count + 1
                    last = result.acquired[-1] if result.acquired else None
                    if last is not None and (last.last_offset, last.delivery_count) == (offset - 1, cell.count):
                        last.last_offset = offset
                    else:
                        result.acquired.add(first_offset=offset, last_offset=offset, delivery_count=cell.count)
            if not result.acquired:
                continue
            mine = next((each for each in reply.results if each.partition == number), None)
            if mine is None:
                reply.results.append(result)
            else:
                mine.acquired.extend(result.acquired)
                mine.batches.extend(result.batches)

    def acknowledge(self, request: share.ShareAcknowledgeRequest) -> share.ShareAcknowledgeResponse:
        reply = share.ShareAcknowledgeResponse(lock_duration_ms=LOCK_MS)
        code = self._take_epoch(request)
        if code:
            return refuse(reply, Method.SHARE_ACKNOWLEDGE, code)
        for asked in request.partitions:
            result = reply.results.add(topic="t", topic_id=asked.topic_id, partition=asked.partition)
            code = self._acknowledge(asked)
            if code:
                refuse(result, Method.SHARE_ACKNOWLEDGE, code)
        if request.session_epoch == -1:
            self.restart()
        return reply

    def _acknowledge(self, asked: share.SharePartition) -> ErrorCode:
        why = self._world.server.why_gone("t", asked.topic_id, asked.partition)
        if why:
            return why
        cells, todo = self.partitions[asked.partition].cells, []
        for batch in asked.acknowledgements:
            offsets = range(batch.first_offset, batch.last_offset + 1)
            types = list(batch.types) * (len(offsets) if len(batch.types) == 1 else 1)
            todo += list(zip(offsets, types, strict=True))
        if any(how == 4 for _, how in todo) and not self.allows_renewal:
            return ErrorCode.INVALID_REQUEST
        if any(cells[offset].state != "held" for offset, _ in todo):
            return ErrorCode.INVALID_RECORD_STATE
        for offset, how in todo:
            cells[offset].state = _ENDS[how]
            self.acks.append((asked.partition, offset, how))
        return ErrorCode.NONE


class ShareCluster:
    """A topic "t" with two partitions, a share group, and its consumers."""

    def __init__(self, world: World | None = None) -> None:
        self.world = World() if world is None else world
        self.group = FakeShareGroup(self.world)

    def member(self, **options: object) -> ShareConsumer:
        """A consumer that subscribes to "t"."""
        consumer = ShareConsumer(self.world.connection(), **({"group_id": "g"} | options))  # type: ignore[arg-type]
        consumer.subscribe(["t"])
        return consumer


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
