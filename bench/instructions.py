"""Counts the machine instructions of a transaction in the server: `python -m bench.instructions`.

Instruction counts are nearly the same in every run, whatever else the machine does. So a change of two per cent shows,
while times vary by twenty. The server runs without a network, on the embedded store, in its own process under
valgrind's callgrind, which counts each thread separately. A transaction is a batch of one record of 1 KiB to each of
three partitions. It is made by one Transact, or by a Produce and an EndTxn, as calls of their own or in messages of a
session. A client of version 1 makes it by AddPartitionsToTxn, Produce and EndTxn. It is counted from the bytes of the
request to those of the reply. A new id is an InitProducerId. There are 64 producers, and 16 at a time make their
requests in one turn of the loop, so that these share a flush. The requests are made beforehand, and the replies are
read afterwards.

N transactions are counted first, then 2 N; the figure is the difference, divided by N. So it contains no fixed costs,
and no garbage collection, which is off meanwhile. Our code runs in the loop's thread. The other threads have the writes
of the commit thread and RocksDB's own work.

`--product DIR` counts another working tree, for example an older commit; `--set lane=false` the general path. Compare
figures of one machine and one Python.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from bench.inside import HERE, Inside, run_inside, use_product

if TYPE_CHECKING:
    from coordinator_api.v1 import transaction_pb2

PRODUCERS: Final = 64
_PER_TURN: Final = 16
"""Number of transactions that begin in one turn of the loop. Under valgrind all of them would take a second together,
which the server logs as a slow commit."""
_PARTITIONS: Final = 3
_VALUE_BYTES: Final = 1_024
_TOPIC: Final = "counted"
_TIMEOUT_MS: Final = 600_000
_REQUEST_ID_BYTES: Final = 16

_ROUNDS: Final = (8, 4, 8)
"""Transactions of each producer: for filling the caches, then N / PRODUCERS, then twice that."""
_SETTLE_S: Final = 4
"""Pause after the start (s). By then every shard has looked once for entries to expire; they do so one after the
other."""
_LOOP: Final = 1
"""Callgrind's number of the main thread."""
_COUNTS: Final = "counts"
_MONITOR_S_MAX: Final = 60


class Counted(NamedTuple):
    """Instructions of a measured part, or of one transaction."""

    loop: int
    """Instructions of the loop's thread."""
    all: int
    """Instructions of all threads."""


class CannotCount(Exception):
    """A program is missing, or the server failed. The message has the advice, or the server's last output."""


Call = tuple[str, bytes]
"""A method and the bytes of a request."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, and print the table. Returns 1 if that is not possible."""
    parser = argparse.ArgumentParser(prog="python -m bench.instructions", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--product", type=Path, default=HERE, metavar="DIR", help="another working tree")
    parser.add_argument("--load", choices=list(LOADS), help="only this one")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the server")
    asked = parser.parse_args(arguments)
    try:
        find_valgrind()
        print("| transaction | instructions of the loop | of all threads |\n| --- | --- | --- |")
        for load in LOADS if asked.load is None else [asked.load]:
            cost = count(load, asked.product.resolve(), asked.set)
            print(f"| {load} | {cost.loop:,} | {cost.all:,} |", flush=True)
    except CannotCount as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


def find_valgrind() -> None:
    """Check that valgrind is installed. Raises: CannotCount."""
    missing = [program for program in ("valgrind", "vgdb") if shutil.which(program) is None]
    if missing:
        raise CannotCount(
            f"valgrind counts the instructions, and {' and '.join(missing)} cannot be found: install the package "
            "`valgrind` of your system, which holds both, and run this again"
        )


def count(load: str, product: Path, settings: Sequence[str] = ()) -> Counted:
    """Return the cost of one transaction. Raises: CannotCount."""
    with tempfile.TemporaryDirectory(prefix="bench-instructions-") as name:
        directory = Path(name)
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--separate-threads=yes", "--quiet"]
        command += [f"--callgrind-out-file={directory / _COUNTS}", sys.executable, "-c"]
        command += [
            "import sys; from bench.instructions import live; live(*sys.argv[1:])",
            load,
            str(product),
            *settings,
        ]
        # With a fixed hash seed, sets of strings have the same order, and so the code takes the same path in every run.
        environment = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": str(HERE)}
        done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr or done.stdout).strip().splitlines()[-3:]
            raise CannotCount(f"{load} was not counted, because the server below valgrind failed: {' / '.join(last)}")
        before, after = stretches(directory)
    transactions = _ROUNDS[1] * PRODUCERS
    return Counted((after.loop - before.loop) // transactions, (after.all - before.all) // transactions)


def stretches(directory: Path) -> list[Counted]:
    """Read callgrind's results for both parts, from a file for each part and thread. Raises: CannotCount."""
    found = []
    for stretch in (1, 2):
        totals = {
            int(file.suffix.partition("-")[2]): next(
                int(line.split()[1]) for line in file.read_text().splitlines() if line.startswith("totals:")
            )
            for file in directory.glob(f"{_COUNTS}.{stretch}-*")
        }
        if _LOOP not in totals:
            raise CannotCount(f"callgrind wrote nothing of stretch {stretch}: `vgdb` could not reach it")
        found.append(Counted(totals[_LOOP], sum(totals.values())))
    return found


def live(load: str, product: str, *settings: str) -> None:
    """Run the server that is counted, under valgrind."""
    use_product(Path(product))
    run_inside(LOADS[load], **dict(each.split("=", 1) for each in settings))


async def _transact_in_session(inside: Inside) -> None:
    await _transact(inside, in_session=True)


async def _transact(inside: Inside, *, in_session: bool = False) -> None:
    requests = [await _new_producer(inside, number) for number in range(PRODUCERS)]

    def wave(number: int) -> list[list[Call]]:
        for request in requests:
            request.header.request_id = number.to_bytes(_REQUEST_ID_BYTES, "big")
        calls: list[Call] = [("Transact", request.SerializeToString()) for request in requests]
        _advance(requests)
        return [calls]

    await _count(inside, wave, in_session=in_session)


async def _produce_and_end_in_session(inside: Inside) -> None:
    await _produce_and_end(inside, in_session=True)


async def _produce_and_end(inside: Inside, *, in_session: bool = False) -> None:
    from coordinator_api.v1 import log_pb2 as log
    from coordinator_api.v1 import transaction_pb2 as txn

    requests = [await _new_producer(inside, number) for number in range(PRODUCERS)]

    def wave(_number: int) -> list[list[Call]]:
        produces: list[Call] = []
        ends: list[Call] = []
        for request in requests:
            named = request.transactional_id
            for item in request.batches:
                item.batch.producer_id, item.batch.producer_epoch = request.producer_id, request.producer_epoch
            produce = log.ProduceRequest(transactional_id=named, batches=request.batches)
            end = txn.EndTxnRequest(
                transactional_id=named,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                committed=True,
            )
            produces.append(("Produce", produce.SerializeToString()))
            ends.append(("EndTxn", end.SerializeToString()))
        _advance(requests)
        return [produces, ends]

    await _count(inside, wave, in_session=in_session)


async def _version_1_in_session(inside: Inside) -> None:
    await _version_1(inside, in_session=True)


async def _version_1(inside: Inside, *, in_session: bool = False) -> None:
    from coordinator_api.v1 import common_pb2 as common
    from coordinator_api.v1 import log_pb2 as log
    from coordinator_api.v1 import transaction_pb2 as txn

    requests = [await _new_producer(inside, number) for number in range(PRODUCERS)]
    header = common.RequestHeader(client_txn_version=1)
    topics = [common.TopicPartitions(topic=_TOPIC, partitions=range(_PARTITIONS))]

    def wave(_number: int) -> list[list[Call]]:
        adds: list[Call] = []
        produces: list[Call] = []
        ends: list[Call] = []
        for request in requests:
            named, producer_id, epoch = request.transactional_id, request.producer_id, request.producer_epoch
            for item in request.batches:
                item.batch.producer_id, item.batch.producer_epoch = producer_id, epoch
            add = txn.AddPartitionsToTxnRequest(
                header=header, transactional_id=named, producer_id=producer_id, producer_epoch=epoch, topics=topics
            )
            produce = log.ProduceRequest(header=header, transactional_id=named, batches=request.batches)
            end = txn.EndTxnRequest(
                header=header, transactional_id=named, producer_id=producer_id, producer_epoch=epoch, committed=True
            )
            adds.append(("AddPartitionsToTxn", add.SerializeToString()))
            produces.append(("Produce", produce.SerializeToString()))
            ends.append(("EndTxn", end.SerializeToString()))
            # The identity stays, and so the sequence numbers go on.
            for item in request.batches:
                item.batch.base_sequence += 1
        return [adds, produces, ends]

    await _count(inside, wave, in_session=in_session)


async def _new_ids(inside: Inside) -> None:
    from coordinator_api.v1 import transaction_pb2 as txn

    def wave(number: int) -> list[list[Call]]:
        asked = [
            txn.InitProducerIdRequest(transactional_id=f"new-{number}-{each}", transaction_timeout_ms=_TIMEOUT_MS)
            for each in range(PRODUCERS)
        ]
        return [[("InitProducerId", request.SerializeToString()) for request in asked]]

    await _count(inside, wave, in_session=True)


LOADS: Final = MappingProxyType(
    {
        "Transact": _transact,
        "Transact in a session": _transact_in_session,
        "Produce and EndTxn": _produce_and_end,
        "Produce and EndTxn in a session": _produce_and_end_in_session,
        "Version 1": _version_1,
        "Version 1 in a session": _version_1_in_session,
        "New id in a session": _new_ids,
    }
)


async def _new_producer(inside: Inside, number: int) -> transaction_pb2.TransactRequest:
    """Return the first request of a producer, complete except for its request id."""
    from bench.load.stubs import checked
    from bench.load.transact import transact_request
    from coordinator_api.v1 import log_pb2 as log
    from coordinator_api.v1 import transaction_pb2 as txn

    if number == 0:
        topic = log.NewTopic(name=_TOPIC, partition_count=_PARTITIONS)
        asked = log.CreateTopicsRequest(topics=[topic])
        checked(log.CreateTopicsResponse.FromString(await inside.ask("CreateTopics", asked.SerializeToString())))
    request = transact_request(
        f"counted-{number}", _TOPIC, range(_PARTITIONS), value_bytes=_VALUE_BYTES, committed=True
    )
    init = txn.InitProducerIdRequest(transactional_id=request.transactional_id, transaction_timeout_ms=_TIMEOUT_MS)
    answer = await inside.ask("InitProducerId", init.SerializeToString())
    given = checked(txn.InitProducerIdResponse.FromString(answer))
    request.producer_id, request.producer_epoch = given.producer_id, given.producer_epoch
    return request


def _advance(requests: Sequence[transaction_pb2.TransactRequest]) -> None:
    """Advance the epochs: every transaction raises the epoch, so the next one is known before the reply."""
    for request in requests:
        request.producer_epoch += 1


async def _count(inside: Inside, wave: Callable[[int], list[list[Call]]], *, in_session: bool = False) -> None:
    """Fill the caches, then count both parts."""
    made = [[wave(100 * stretch + number) for number in range(rounds)] for stretch, rounds in enumerate(_ROUNDS)]
    answers: list[tuple[str, bytes]] = []
    warm_up, first, second = made
    await _make(inside, warm_up, answers, in_session=in_session)
    await asyncio.sleep(_SETTLE_S)
    # The collector runs once in hundreds of transactions, for as long as a dozen of them take, so it would affect one
    # of the parts by chance.
    gc.collect()
    gc.disable()
    _monitor("instrumentation", "on")
    await _make(inside, first, answers, in_session=in_session)
    _monitor("dump")
    await _make(inside, second, answers, in_session=in_session)
    _monitor("dump")
    _monitor("instrumentation", "off")
    _check(answers)


async def _make(
    inside: Inside, waves: list[list[list[Call]]], answers: list[tuple[str, bytes]], *, in_session: bool
) -> None:
    """Make the calls, `_PER_TURN` of a list in one turn of the loop. The next ones follow once all of them are
    answered."""
    for calls in (calls for wave in waves for calls in wave):
        for first in range(0, len(calls), _PER_TURN):
            turn = calls[first : first + _PER_TURN]
            pending: Sequence[Awaitable[bytes]]
            if in_session:
                pending = inside.message(turn)
            else:
                pending = [inside.call(method, body) for method, body in turn]
            answers += [(method, await reply) for (method, _body), reply in zip(turn, pending, strict=True)]


def _check(answers: Sequence[tuple[str, bytes]]) -> None:
    """Raise Refusal for a refused call: it is not a transaction."""
    from bench.load.stubs import checked
    from coordinator_api.v1 import log_pb2 as log
    from coordinator_api.v1 import transaction_pb2 as txn

    for method, body in answers:
        if method == "Produce":
            for result in checked(log.ProduceResponse.FromString(body)).results:
                checked(result)
        elif method == "EndTxn":
            checked(txn.EndTxnResponse.FromString(body))
        elif method == "AddPartitionsToTxn":
            checked(txn.AddPartitionsToTxnResponse.FromString(body))
        elif method == "InitProducerId":
            checked(txn.InitProducerIdResponse.FromString(body))
        else:
            checked(txn.TransactResponse.FromString(body))


def _monitor(*words: str) -> None:
    """Send a command to the valgrind around this process. It listens only while a thread runs, so this function wakes
    up repeatedly."""
    command = ["vgdb", f"--pid={os.getpid()}", "--max-invoke-ms=0", f"--wait={_MONITOR_S_MAX}", *words]
    told = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while told.poll() is None:
        time.sleep(0.02)
    said, _ = told.communicate()
    assert told.returncode == 0, f"{' '.join(words)}: {said}"


if __name__ == "__main__":
    sys.exit(main())
