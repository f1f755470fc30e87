"""How many machine instructions a transaction costs the server: `python -m bench.instructions`.

Instructions are nearly the same in every run, whatever else the machine does, so a change of two per cent shows where
times vary by twenty. The server runs without a network, on the embedded store, in a process of its own below valgrind's
callgrind, which counts each thread apart. A transaction is a batch of one record of 1 KiB to each of three partitions,
by one Transact or by a Produce and an EndTxn, as calls of their own or in messages of a session, from the bytes of the
request to those of the answer; and a new id is an InitProducerId. There are 64 producers, and 16 at a time make their
requests in one turn of the loop, so that these share a flush. The requests were made beforehand, and the answers are
read afterwards.

N transactions are counted first, then 2 N; the figure is the difference, divided by N. So what a stretch costs once is
not in it, nor is the garbage collector, which rests meanwhile. Our code is in the loop's thread; in the others are the
writes of the commit thread and RocksDB's own work.

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
"""How many transactions begin in one turn of the loop. Below valgrind all of them would take a second together, which
the server logs as a slow commit."""
_PARTITIONS: Final = 3
_VALUE_BYTES: Final = 1_024
_TOPIC: Final = "counted"
_TIMEOUT_MS: Final = 600_000
_REQUEST_ID_BYTES: Final = 16

_ROUNDS: Final = (8, 4, 8)
"""Transactions of each producer: those that fill the caches, N / PRODUCERS, and twice that."""
_SETTLE_S: Final = 4
"""After a start every shard looks once for what can be forgotten, one after the other: by then all have."""
_LOOP: Final = 1
"""What callgrind calls the main thread."""
_COUNTS: Final = "counts"
_MONITOR_S_MAX: Final = 60


class Counted(NamedTuple):
    """Instructions, of a stretch or of one transaction."""

    loop: int
    """Instructions of the loop's thread."""
    all: int
    """Instructions of all threads."""


class CannotCount(Exception):
    """Something is missing, or the server ended badly. The message says what to do, or holds its last words."""


Call = tuple[str, bytes]
"""A method and the bytes of a request."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, and print the table; 1 where that cannot be done."""
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
    """Raises: CannotCount where this machine lacks it."""
    missing = [program for program in ("valgrind", "vgdb") if shutil.which(program) is None]
    if missing:
        raise CannotCount(
            f"valgrind counts the instructions, and {' and '.join(missing)} cannot be found: install the package "
            "`valgrind` of your system, which holds both, and run this again"
        )


def count(load: str, product: Path, settings: Sequence[str] = ()) -> Counted:
    """What one transaction costs. Raises: CannotCount."""
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
        # The order in sets of strings, and so the way through the code, is the same in every run.
        environment = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": str(HERE)}
        done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr or done.stdout).strip().splitlines()[-3:]
            raise CannotCount(f"{load} was not counted, because the server below valgrind failed: {' / '.join(last)}")
        before, after = stretches(directory)
    transactions = _ROUNDS[1] * PRODUCERS
    return Counted((after.loop - before.loop) // transactions, (after.all - before.all) // transactions)


def stretches(directory: Path) -> list[Counted]:
    """What callgrind wrote of both, a file for each stretch and thread. Raises: CannotCount."""
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
    """Be the server that is counted, below valgrind."""
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
        "New id in a session": _new_ids,
    }
)


async def _new_producer(inside: Inside, number: int) -> transaction_pb2.TransactRequest:
    """The first request of a producer, complete but for its request id."""
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
    """Every transaction gives the next one an epoch, so that it is known before it is answered."""
    for request in requests:
        request.producer_epoch += 1


async def _count(inside: Inside, wave: Callable[[int], list[list[Call]]], *, in_session: bool = False) -> None:
    """Fill the caches, then count both stretches."""
    made = [[wave(100 * stretch + number) for number in range(rounds)] for stretch, rounds in enumerate(_ROUNDS)]
    answers: list[tuple[str, bytes]] = []
    warm_up, first, second = made
    await _make(inside, warm_up, answers, in_session=in_session)
    await asyncio.sleep(_SETTLE_S)
    # It looks once in hundreds of transactions, for as long as a dozen of them take: by chance in this stretch or that.
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
    """Make the calls: so many of a list in one turn of the loop, the next ones once all of them are answered."""
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
    """Raises: Refusal. What was refused is no transaction."""
    from bench.load.stubs import checked
    from coordinator_api.v1 import log_pb2 as log
    from coordinator_api.v1 import transaction_pb2 as txn

    for method, body in answers:
        if method == "Produce":
            for result in checked(log.ProduceResponse.FromString(body)).results:
                checked(result)
        elif method == "EndTxn":
            checked(txn.EndTxnResponse.FromString(body))
        elif method == "InitProducerId":
            checked(txn.InitProducerIdResponse.FromString(body))
        else:
            checked(txn.TransactResponse.FromString(body))


def _monitor(*words: str) -> None:
    """Tell the valgrind around this process, which listens only while a thread runs: so this looks again and again."""
    command = ["vgdb", f"--pid={os.getpid()}", "--max-invoke-ms=0", f"--wait={_MONITOR_S_MAX}", *words]
    told = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while told.poll() is None:
        time.sleep(0.02)
    said, _ = told.communicate()
    assert told.returncode == 0, f"{' '.join(words)}: {said}"


if __name__ == "__main__":
    sys.exit(main())
