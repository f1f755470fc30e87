"""Counts the functions on the path of a call: `python -m bench.path`.

Counts the server's functions that the loop's thread enters for one call, their files, and the changes of package
between them. It does so on the fast path and on the general path (`lane = false`). The path begins with the bytes,
where a transport delivers them. It leads through the decision, the sealed commit group and its hand-over to the commit
thread to the encoded reply. It includes the work of the turn in which the group is durable: events, metrics, effects,
waiting readers. The commit thread does not count, and neither do timers that fire meanwhile. Each call is made several
times, after some calls that fill the caches, and only functions that are entered every time count.

A function is a code object. A method, a nested function, a lambda and a comprehension are one each. Python 3.12 makes
list comprehensions part of the function around them, so compare figures of one version of Python. Generated code and
libraries are not counted. Transactions are fused; the store is the embedded one.

`--list EndTxn` shows the path itself (`--list "EndTxn, general"` the other one). `--wanted` compares with the limits,
and ends with 1 if a path is too long. `--product DIR` measures another working tree, for example an older commit.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby, pairwise
from multiprocessing import get_context
from pathlib import Path
from types import CodeType, FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from bench.inside import HERE, Inside, is_product, run_inside, use_product

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from coordinator_api.v1 import group_pb2, log_pb2

MessageT = TypeVar("MessageT", bound="Message")


class Figures(NamedTuple):
    """Number of different functions, of files, and of changes of package in the order of first entry."""

    functions: int
    files: int
    changes: int


class Step(NamedTuple):
    """A function that was entered."""

    file: str
    """Path relative to the root of the working tree."""
    name: str
    line: int


GENERAL: Final = ", general"
"""Suffix for the name of a call that the fast path would take, and that takes the general path."""

WANTED: Final[Mapping[str, Figures]] = MappingProxyType(
    {
        "EndTxn": Figures(118, 37, 40),
        f"EndTxn{GENERAL}": Figures(124, 41, 37),
        "Produce": Figures(101, 33, 35),
        f"Produce{GENERAL}": Figures(109, 34, 33),
        "Fetch": Figures(90, 30, 30),
        "JoinGroup": Figures(123, 27, 21),
        "ConsumerGroupHeartbeat": Figures(95, 31, 23),
    }
)
"""Limits, for a Python without the compiled module. That module makes the rows of every transaction in one call
less."""

_WARM_UPS: Final = 3
_COUNTED: Final = 12
"""Number of counted calls of each kind. With fewer, the sweeps that follow a start may affect every one of them."""
_TURNS_AFTER: Final = 2
"""Number of loop turns that are traced after the reply: an effect may request a turn of its own."""
_TOPIC: Final = "path"
_GROUP: Final = "path-readers"
_MEMBERS: Final = "path-members"
_MEMBER: Final = "path-member"
_ID: Final = "path-producer"
_TIMEOUT_MS: Final = 60_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the table or a path."""
    parser = argparse.ArgumentParser(prog="python -m bench.path", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", choices=list(WANTED), help="print the functions of this call, by file, in order")
    parser.add_argument("--wanted", action="store_true", help="compare with what we want; 1 where a way is too long")
    parser.add_argument("--product", type=Path, default=HERE, metavar="DIR", help="another working tree")
    asked = parser.parse_args(arguments)
    ways = _measured(asked.product.resolve())
    if asked.list:
        found = figures_of(ways[asked.list])
        print(f"{asked.list}: {found.functions} functions in {found.files} files, {found.changes} changes of package")
        print("\n".join(listed(ways[asked.list])))
        return 0
    figures = {call: figures_of(steps) for call, steps in ways.items()}
    print("\n".join(table(figures)))
    return int(asked.wanted and any(not _is_short(each, WANTED[call]) for call, each in figures.items()))


def _measured(root: Path) -> dict[str, list[Step]]:
    """Return the steps of every call, on both paths. A process can have one server, so each path has a process of its
    own."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn"), max_tasks_per_child=1) as processes:
        fast, general = (processes.submit(_measure, root, lane=lane) for lane in (True, False))
        ways = fast.result() | {f"{call}{GENERAL}": steps for call, steps in general.result().items()}
    return {call: ways[call] for call in WANTED}


def _measure(root: Path, *, lane: bool) -> dict[str, list[Step]]:
    use_product(root)
    entered = run_inside(_live, group_initial_rebalance_delay_ms=0, lane=lane)
    return {call: steps_of(codes, root) for call, codes in entered.items()}


def steps_of(codes: Iterable[CodeType], root: Path) -> list[Step]:
    """Return the functions of the server among these, in order."""
    steps: dict[Step, None] = {}
    for code in codes:
        path = Path(code.co_filename)
        if path.is_relative_to(root) and is_product(path.relative_to(root).parts[0]):
            steps[Step(str(path.relative_to(root)), code.co_qualname, code.co_firstlineno)] = None
    return list(steps)


def figures_of(steps: Sequence[Step]) -> Figures:
    """Return the figures of a path."""
    packages = [step.file.partition("/")[0] for step in steps]
    return Figures(len(steps), len({step.file for step in steps}), sum(a != b for a, b in pairwise(packages)))


def table(found: Mapping[str, Figures]) -> list[str]:
    """Return the table in Markdown, with the limits."""
    columns = "| call | functions | files | changes of package | wanted at most |"
    lines = [columns, "| --- | --- | --- | --- | --- |"]
    for call, figures in found.items():
        wanted = WANTED[call]
        length = "" if _is_short(figures, wanted) else ": too long"
        most = f"{wanted.functions} in {wanted.files}, {wanted.changes} changes"
        lines.append(f"| {call} | {figures.functions} | {figures.files} | {figures.changes} | {most}{length} |")
    return lines


def listed(steps: Sequence[Step]) -> list[str]:
    """Return the functions by file. Files and functions are in the order of their first entry."""
    order = {file: number for number, file in enumerate(dict.fromkeys(step.file for step in steps))}
    lines = []
    for file, inside in groupby(sorted(steps, key=lambda step: order[step.file]), key=lambda step: step.file):
        lines.append(file)
        lines += [f"    {step.name} (line {step.line})" for step in inside]
    return lines


def _is_short(figures: Figures, wanted: Figures) -> bool:
    return all(figure <= most for figure, most in zip(figures, wanted, strict=True))


async def _live(inside: Inside) -> Mapping[str, Sequence[CodeType]]:
    """Make all calls, and return the functions that each entered."""
    calls = _Calls(inside)
    await calls.prepare()
    for _again in range(_WARM_UPS):
        await calls.make()
    calls.entered.clear()
    for _again in range(_COUNTED):
        await calls.make()
    return calls.entered


class _Calls:
    """One producer, a topic of two partitions, a group that commits offsets in transactions, and groups to join."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._producer_id = self._producer_epoch = -1
        self._rounds = 0
        self._member_epoch = 0
        self.entered: dict[str, list[CodeType]] = {}
        """Functions that every call of a kind has entered so far, by call."""

    async def prepare(self) -> None:
        from coordinator_api.v1 import log_pb2 as log
        from coordinator_api.v1 import transaction_pb2 as txn

        topic = log.NewTopic(name=_TOPIC, partition_count=2)
        await self._ask("CreateTopics", log.CreateTopicsRequest(topics=[topic]), log.CreateTopicsResponse)
        asked = txn.InitProducerIdRequest(transactional_id=_ID, transaction_timeout_ms=_TIMEOUT_MS)
        given = await self._ask("InitProducerId", asked, txn.InitProducerIdResponse)
        self._producer_id, self._producer_epoch = given.producer_id, given.producer_epoch

    async def make(self) -> None:
        """Make each of the calls once."""
        self._rounds += 1
        await self._transaction()
        await self._fetch()
        await self._join()
        await self._heartbeat()

    async def _transaction(self) -> None:
        """Run a transaction over two partitions and offsets of a group. The first batch opens it, by a producer of
        version 2."""
        from coordinator_api.v1 import group_pb2 as group
        from coordinator_api.v1 import log_pb2 as log
        from coordinator_api.v1 import transaction_pb2 as txn

        for partition, counted in ((0, True), (1, False)):
            produce = log.ProduceRequest(transactional_id=_ID, batches=[self._batch(partition)])
            await self._ask("Produce", produce, log.ProduceResponse, is_counted=counted)
        offset = group.PartitionOffset(partition=0, committed_offset=self._rounds)
        offsets = group.TxnOffsetCommitRequest(
            transactional_id=_ID,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            group_id=_GROUP,
            topics=[group.TopicOffsets(topic=_TOPIC, partitions=[offset])],
        )
        await self._ask("TxnOffsetCommit", offsets, group.TxnOffsetCommitResponse)
        end = txn.EndTxnRequest(
            transactional_id=_ID,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            committed=True,
        )
        self._producer_epoch = (await self._ask("EndTxn", end, txn.EndTxnResponse, is_counted=True)).producer_epoch

    def _batch(self, partition: int) -> log_pb2.PartitionBatch:
        from bench.load.stubs import encoded_batch
        from coordinator_api.v1 import log_pb2 as log

        batch = encoded_batch(1_024, 1, is_transactional=True)
        batch.producer_id, batch.producer_epoch = self._producer_id, self._producer_epoch
        return log.PartitionBatch(topic=_TOPIC, partition=partition, batch=batch)

    async def _fetch(self) -> None:
        """Fetch committed records, which exist."""
        from coordinator_api.v1 import log_pb2 as log

        fetch = log.FetchRequest(partitions=[log.FetchPartition(topic=_TOPIC)])
        await self._ask("Fetch", fetch, log.FetchResponse, is_counted=True)

    async def _join(self) -> None:
        """Join a new group, with the member id that was assigned before."""
        from coordinator_api.v1 import group_pb2 as group

        given = await self._ask("JoinGroup", self._join_request(""), group.JoinGroupResponse, may_be_refused=True)
        joined = self._join_request(given.member_id)
        await self._ask("JoinGroup", joined, group.JoinGroupResponse, is_counted=True)

    async def _heartbeat(self) -> None:
        """Send a heartbeat of a member of the consumer protocol that has its full assignment."""
        from coordinator_api.v1 import group_pb2 as group

        beat = group.ConsumerGroupHeartbeatRequest(
            group_id=_MEMBERS, member_id=_MEMBER, member_epoch=self._member_epoch
        )
        is_joining = not self._member_epoch
        if is_joining:
            beat.rebalance_timeout_ms = _TIMEOUT_MS
            beat.subscribed_topic_names.names.append(_TOPIC)
            beat.topic_partitions.SetInParent()
        answer = await self._ask(
            "ConsumerGroupHeartbeat", beat, group.ConsumerGroupHeartbeatResponse, is_counted=not is_joining
        )
        self._member_epoch = answer.member_epoch

    def _join_request(self, member_id: str) -> group_pb2.JoinGroupRequest:
        from coordinator_api.v1 import group_pb2 as group

        return group.JoinGroupRequest(
            group_id=f"path-{self._rounds}",
            session_timeout_ms=_TIMEOUT_MS,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[group.JoinGroupProtocol(name="range", metadata=b"subscription")],
        )

    async def _ask(
        self,
        method: str,
        request: Message,
        response_type: type[MessageT],
        *,
        is_counted: bool = False,
        may_be_refused: bool = False,
    ) -> MessageT:
        body = request.SerializeToString()
        answer, entered = await _traced(self._inside, method, body)
        response = response_type.FromString(answer)
        replies: list[Any] = [response, *getattr(response, "results", ())]
        for reply in replies:
            assert may_be_refused or not reply.error_code, f"{method} was refused: {reply}"
        if is_counted:
            before = self.entered.get(method, entered)
            self.entered[method] = [code for code in before if code in set(entered)]
        return response


async def _traced(inside: Inside, method: str, body: bytes) -> tuple[bytes, list[CodeType]]:
    """Return the reply to a call, and every function that this thread entered for it, in the order of the first
    entry."""
    entered: dict[CodeType, None] = {}

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            entered.setdefault(frame.f_code)

    answered = asyncio.Event()
    sys.setprofile(note)
    try:
        reply = inside.call(method, body)
        reply.on_settled(lambda _reply: answered.set())
        await answered.wait()
        for _turn in range(_TURNS_AFTER):
            await asyncio.sleep(0)
    finally:
        sys.setprofile(None)
    return reply.result(), list(entered)


if __name__ == "__main__":
    sys.exit(main())
