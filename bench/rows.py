"""How many rows and bytes a transaction is stored as: `python -m bench.rows`.

A transaction is a batch of one record to each of three partitions, by one Transact. The server runs without a network
on the embedded store, and what it hands to the store is counted: rows by family, keys and values together, before
RocksDB compresses or replaces anything. "64 in a group" are 64 producers that ask in one turn of the loop, so that
their rows of heads and history are shared; "alone" is one at a time, each with a commit group to itself. Each batch of
groups has one row more, its version, which is not counted.

`--product DIR` counts another working tree, for example an older commit; `--two-phase split` the other way to commit.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.inside import HERE, Inside, run_inside, use_product

PRODUCERS: Final = 64
_ROUNDS: Final = 8
_WARM_UP_ROUNDS: Final = 2
_PARTITIONS: Final = 3
_TOPIC: Final = "counted"


class Rows(NamedTuple):
    """What one transaction hands to the store, on average."""

    together: dict[str, tuple[float, float]]
    """Rows and bytes by family, where 64 transactions share a group."""
    alone: dict[str, tuple[float, float]]
    """The same, where each has its own."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Count, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.rows", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--product", type=Path, default=HERE, metavar="DIR", help="another working tree")
    parser.add_argument("--value-bytes", type=int, default=100, metavar="N", help="size of a record's value (100)")
    parser.add_argument("--two-phase", choices=["fused", "split"], default="fused", help="how a transaction ends")
    asked = parser.parse_args(arguments)
    use_product(asked.product.resolve())
    print(table(count(asked.value_bytes, asked.two_phase)))
    return 0


def count(value_bytes: int, two_phase: str) -> Rows:
    """Run the transactions on a server of the product. Once in a process, on the main thread."""
    watch = _Watch()
    return run_inside(partial(_live, watch, value_bytes), two_phase=two_phase)


def table(rows: Rows) -> str:
    """Both ways side by side, a line for each family."""
    families = sorted(rows.together.keys() | rows.alone.keys())
    lines = ["| family | rows, 64 in a group | bytes | rows, alone | bytes |", "| --- | --- | --- | --- | --- |"]
    for name in [*families, "**sum**"]:
        cells: list[str] = []
        for found in (rows.together, rows.alone):
            chosen = list(found.values()) if name == "**sum**" else [found.get(name, (0, 0))]
            cells += [f"{sum(each[0] for each in chosen):.2f}", f"{sum(each[1] for each in chosen):,.0f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


class _Watch:
    """Counts what the store is given."""

    def __init__(self) -> None:
        from coordinator_runtime.rocks import RocksStore

        self._rows: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        write: Callable[..., None] = RocksStore.write

        def counted(store: RocksStore, groups: Sequence[Any]) -> None:
            for group in groups:
                for family, key, value in group.mutations:
                    self._rows[family.name] += 1
                    self._bytes[family.name] += len(key) + len(value or b"")
            write(store, groups)

        RocksStore.write = counted  # type: ignore[method-assign,assignment]

    def forget(self) -> None:
        """Begin again."""
        self._rows.clear()
        self._bytes.clear()

    def per_transaction(self, transactions: int) -> dict[str, tuple[float, float]]:
        """Rows and bytes by family since the beginning."""
        return {name: (self._rows[name] / transactions, self._bytes[name] / transactions) for name in self._rows}


async def _live(watch: _Watch, value_bytes: int, inside: Inside) -> Rows:
    from bench.load.stubs import checked
    from bench.load.transact import TransactProducer, transact_request
    from coordinator_api.v1 import log_pb2 as log

    topic = log.NewTopic(name=_TOPIC, partition_count=_PARTITIONS)
    asked = log.CreateTopicsRequest(topics=[topic])
    checked(log.CreateTopicsResponse.FromString(await inside.ask("CreateTopics", asked.SerializeToString())))
    producers = [
        TransactProducer(
            inside,
            transact_request(
                f"counted-{number:03}", _TOPIC, range(_PARTITIONS), value_bytes=value_bytes, committed=True
            ),
        )
        for number in range(PRODUCERS)
    ]

    async def together() -> None:
        await asyncio.gather(*(producer.perform() for producer in producers))

    for _ in range(_WARM_UP_ROUNDS):
        await together()
    watch.forget()
    for _ in range(_ROUNDS):
        await together()
    shared = watch.per_transaction(_ROUNDS * PRODUCERS)
    watch.forget()
    for producer in producers:
        await producer.perform()
    return Rows(shared, watch.per_transaction(PRODUCERS))


if __name__ == "__main__":
    sys.exit(main())
