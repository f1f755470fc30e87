"""Measures the longest turn of the server's loop with a million records of share groups in flight.

    python -m bench.share_turns                      1,000 share partitions with 1,000 records each
    python -m bench.share_turns --partitions 100     fewer

The server runs in this process, without a network. All records are held by one member, which is the worst case: its end
releases all of them. The turns are those of `bench.turns`. Garbage is not collected meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from google.protobuf.message import Message

from bench.inside import Inside, run_inside
from bench.turns import longest_turn_s
from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1 import share_pb2 as share

TOPIC: Final = "t"
GROUP: Final = "workers"
RECORDS: Final = 1_000
"""Number of records in each partition."""
_BATCHES: Final = 10
_BATCH_RECORDS: Final = RECORDS // _BATCHES
_PARTITIONS_PER_CALL: Final = 100
_LOCK_MS: Final = 600_000
_SHORT_LOCK_MS: Final = 15_000
_SETTINGS: Final = {
    "group_share_session_timeout_ms": 600_000,
    "group_share_session_timeout_ms_max": 600_000,
    "group_share_record_lock_duration_ms_max": 600_000,
}
"""Settings of the server: the member sends no heartbeat while it takes the records, however long a busy machine
needs."""
_WAIT_MS: Final = 500
_ROUNDS_MAX: Final = 20_000
_QUIET_ROUNDS: Final = 3

AnswerT = TypeVar("AnswerT", bound=Message)


def main(arguments: Sequence[str] = ()) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.share_turns", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--partitions", type=int, default=1_000, help="share partitions (default: %(default)s)")
    asked = parser.parse_args(arguments)
    run_inside(lambda inside: _Story(inside, asked.partitions).tell(), **_SETTINGS)
    return 0


class _Story:
    """A member that takes everything, twice: its membership ends, and then its locks do."""

    def __init__(self, inside: Inside, partitions: int) -> None:
        self._inside = inside
        self._partitions = partitions
        self._member_id, self._member_epoch, self._session_epoch = "", 0, 0
        self._records = 0

    async def tell(self) -> None:
        await self._prepare()
        print("| with what in flight | longest turn |\n| --- | --- |")
        await self._join()
        await self._print("records handed out", self._take_all)
        await self._print("acknowledgements of single records", self._acknowledge)
        await self._print("acknowledgements of a record of each partition in one call", self._acknowledge_all)
        await self._print("a fetch that waits", self._wait_for_records)
        await self._print("descriptions of the group", self._describe)
        await self._print("the member leaves", self._leave)
        await self._configure(_SHORT_LOCK_MS)
        await self._join()
        await self._take_all()
        await self._print("all locks end", self._wait_for_locks)

    async def _print(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        longest_s = await longest_turn_s(lambda: [work()])
        print(f"| {name}, {self._records:,} records | {1_000 * longest_s:.1f} ms |", flush=True)

    async def _ask(self, request: Message, answer: type[AnswerT]) -> AnswerT:
        name = type(request).__name__.removesuffix("Request")
        # The request was made in an earlier turn.
        await asyncio.sleep(0)
        found = answer.FromString(await self._inside.ask(name, request.SerializeToString()))
        code = found.error_code  # type: ignore[attr-defined]  # all answers have one
        assert not code, f"{name}: {found}"
        return found

    # Before

    async def _prepare(self) -> None:
        topic = log.NewTopic(name=TOPIC, partition_count=self._partitions)
        await self._ask(log.CreateTopicsRequest(topics=[topic]), log.CreateTopicsResponse)
        await self._configure(_LOCK_MS)
        record = log.Record(value=os.urandom(16))
        payload = log.Records(records=[record] * _BATCH_RECORDS).SerializeToString()
        batch = log.RecordBatch(
            record_count=_BATCH_RECORDS,
            encoding=log.ENCODING_RECORDS_V1,
            payload=payload,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
        )
        for _ in range(_BATCHES):
            for first in range(0, self._partitions, _PARTITIONS_PER_CALL):
                numbers = range(first, min(self._partitions, first + _PARTITIONS_PER_CALL))
                batches = [log.PartitionBatch(topic=TOPIC, partition=number, batch=batch) for number in numbers]
                answer = await self._ask(log.ProduceRequest(batches=batches), log.ProduceResponse)
                assert not any(each.error_code for each in answer.results), answer.results[0]

    async def _configure(self, lock_ms: int) -> None:
        configs = [
            group.GroupConfig(name="share_auto_offset_reset", text="earliest"),
            group.GroupConfig(name="share_record_lock_duration_ms", value=lock_ms),
        ]
        await self._ask(group.AlterGroupConfigsRequest(group_id=GROUP, set=configs), group.AlterGroupConfigsResponse)

    # The member

    async def _join(self) -> None:
        """Join, and wait until all partitions are assigned."""
        self._member_epoch = self._session_epoch = 0
        for _ in range(_ROUNDS_MAX):
            names = None if self._member_epoch else group.TopicNames(names=[TOPIC])
            request = group.ShareGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=self._member_id,
                member_epoch=self._member_epoch,
                subscribed_topic_names=names,
            )
            answer = await self._ask(request, group.ShareGroupHeartbeatResponse)
            self._member_id, self._member_epoch = answer.member_id, answer.member_epoch
            if sum(len(each.partitions) for each in answer.assignment.topics) == self._partitions:
                return
        raise RuntimeError("the member did not get all partitions")

    async def _take_all(self) -> None:
        """Fetch until nothing comes any more."""
        self._records = quiet = 0
        while quiet < _QUIET_ROUNDS:
            joining = [] if self._session_epoch else range(self._partitions)
            request = share.ShareFetchRequest(
                group_id=GROUP,
                member_id=self._member_id,
                session_epoch=self._session_epoch,
                partitions=[share.SharePartition(topic=TOPIC, partition=number) for number in joining],
            )
            answer = await self._ask(request, share.ShareFetchResponse)
            self._session_epoch += 1
            acquired = [each for result in answer.results for each in result.acquired]
            self._records += sum(each.last_offset - each.first_offset + 1 for each in acquired)
            quiet = 0 if acquired else quiet + 1

    async def _acknowledge(self) -> None:
        """Accept one record of each partition, each in a call of its own."""
        for number in range(self._partitions):
            offset = RECORDS // 2
            one = share.AcknowledgementBatch(
                first_offset=offset, last_offset=offset, types=[share.ACKNOWLEDGE_TYPE_ACCEPT]
            )
            request = share.ShareAcknowledgeRequest(
                group_id=GROUP,
                member_id=self._member_id,
                session_epoch=self._session_epoch,
                partitions=[share.SharePartition(topic=TOPIC, partition=number, acknowledgements=[one])],
            )
            await self._ask(request, share.ShareAcknowledgeResponse)
            self._session_epoch += 1
        self._records -= self._partitions

    async def _acknowledge_all(self) -> None:
        """Accept one further record of each partition, all in one call."""
        offset = RECORDS // 2 + 1
        one = share.AcknowledgementBatch(first_offset=offset, last_offset=offset, types=[share.ACKNOWLEDGE_TYPE_ACCEPT])
        request = share.ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self._member_id,
            session_epoch=self._session_epoch,
            partitions=[
                share.SharePartition(topic=TOPIC, partition=number, acknowledgements=[one])
                for number in range(self._partitions)
            ],
        )
        answer = await self._ask(request, share.ShareAcknowledgeResponse)
        assert not any(each.error_code for each in answer.results), answer.results[0]
        self._session_epoch += 1
        self._records -= self._partitions

    async def _wait_for_records(self) -> None:
        """Wait until the time of a fetch is over, in all partitions."""
        request = share.ShareFetchRequest(
            group_id=GROUP, member_id=self._member_id, session_epoch=self._session_epoch, max_wait_ms=_WAIT_MS
        )
        answer = await self._ask(request, share.ShareFetchResponse)
        assert not answer.results, answer.results[0]
        self._session_epoch += 1

    async def _describe(self) -> None:
        await self._ask(group.ShareGroupDescribeRequest(group_ids=[GROUP]), group.ShareGroupDescribeResponse)
        await self._ask(group.ListGroupsRequest(), group.ListGroupsResponse)
        await self._ask(group.DescribeShareGroupOffsetsRequest(group_id=GROUP), group.DescribeShareGroupOffsetsResponse)

    async def _leave(self) -> None:
        request = group.ShareGroupHeartbeatRequest(group_id=GROUP, member_id=self._member_id, member_epoch=-1)
        await self._ask(request, group.ShareGroupHeartbeatResponse)
        await asyncio.sleep(2)

    async def _wait_for_locks(self) -> None:
        await asyncio.sleep(2 * _SHORT_LOCK_MS / 1_000)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
