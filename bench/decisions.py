"""Measures the longest turn of the loop for one decision on a large batch of a sink.

    python -m bench decisions

200 members write to 50 partitions each and seal. Then one CommitBatch decides on all of them, and its 10,000 markers
are written in slices. A batch of one member follows at once. Its decision waits until the previous one is carried out,
so its reply shows the end. The result is the longest turn of the loop in between, by the clock and by the processor
time of the loop's thread. Other processes of the machine do not lengthen the latter. A whole server runs in this
process, without a network, first with `two_phase=fused` and then with `split`.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from bench.inside import Inside, run_inside
from bench.turn_meter import TurnMeter

if TYPE_CHECKING:
    from google.protobuf.message import Message

MessageT = TypeVar("MessageT", bound="Message")

MEMBERS: Final = 200
PARTITIONS: Final = 50
_ROUNDS: Final = 5
_VALUE_BYTES: Final = 100
_TIMEOUT_MS: Final = 600_000
_SINK: Final = "bench/query"
_RUN: Final = "run"


def main(_arguments: Sequence[str] = ()) -> None:
    """Print a table with a row for each of several batches, one after the other."""
    print("| members x partitions | answered, ms | carried out, ms | longest turn, ms | by processor time, ms |")
    print("| --- | --- | --- | --- | --- |")
    for two_phase in ("fused", "split"):
        run_inside(_story, two_phase=two_phase)


async def _story(inside: Inside) -> None:
    from coordinator_api.v1 import log_pb2 as log
    from coordinator_api.v1 import transaction_pb2 as txn

    async def ask(method: str, request: Message, response_type: type[MessageT]) -> MessageT:
        response = response_type.FromString(await inside.ask(method, request.SerializeToString()))
        replies: list[Any] = [response, *getattr(response, "results", ())]
        for reply in replies:
            assert not reply.error_code, f"{method} was refused: {reply}"
        return response

    async def sealed_member(batch_id: int, partition_count: int) -> txn.SinkMember:
        """Return a member that wrote to so many partitions and is sealed."""
        from bench.load.stubs import encoded_batch

        header = _header()
        join = txn.JoinBatchRequest(
            header=header, sink=_SINK, run_id=_RUN, batch_id=batch_id, transaction_timeout_ms=_TIMEOUT_MS
        )
        joined = await ask("JoinBatch", join, txn.JoinBatchResponse)
        produce = log.ProduceRequest(transactional_id=joined.transactional_id)
        for partition in range(partition_count):
            batch = encoded_batch(_VALUE_BYTES, 1, is_transactional=True)
            batch.producer_id, batch.producer_epoch = joined.producer_id, joined.producer_epoch
            produce.batches.append(log.PartitionBatch(topic="t", partition=partition, batch=batch))
        await ask("Produce", produce, log.ProduceResponse)
        member = txn.SinkMember(producer_id=joined.producer_id, producer_epoch=joined.producer_epoch)
        seal = txn.SealMemberRequest(transactional_id=joined.transactional_id)
        seal.producer_id, seal.producer_epoch = member.producer_id, member.producer_epoch
        await ask("SealMember", seal, txn.SealMemberResponse)
        return member

    async def decide(batch_id: int, members: Sequence[txn.SinkMember]) -> None:
        commit = txn.CommitBatchRequest(sink=_SINK, run_id=_RUN, batch_id=batch_id, members=members)
        await ask("CommitBatch", commit, txn.CommitBatchResponse)

    new = log.NewTopic(name="t", partition_count=PARTITIONS)
    await ask("CreateTopics", log.CreateTopicsRequest(topics=[new]), log.CreateTopicsResponse)
    for number in range(_ROUNDS):
        members = [await sealed_member(2 * number, PARTITIONS) for _ in range(MEMBERS)]
        turns, began = TurnMeter(), perf_counter()
        await decide(2 * number, members)
        answered = perf_counter()
        await decide(2 * number + 1, [await sealed_member(2 * number + 1, 1)])
        turns.end()
        times = f"{(answered - began) * 1_000:.0f} | {(perf_counter() - began) * 1_000:.0f}"
        longest = f"{turns.took_ms:.1f} | {turns.processor_ms:.1f}"
        print(f"| {MEMBERS} x {PARTITIONS} | {times} | {longest} |")


def _header() -> Any:  # noqa: ANN401  of generated code
    from uuid import uuid4

    from coordinator_api.v1.common_pb2 import RequestHeader

    return RequestHeader(client_id="bench", request_id=uuid4().bytes)
