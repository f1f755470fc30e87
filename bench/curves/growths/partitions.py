"""Partitions with one committed record in each."""

from __future__ import annotations

from typing import Final

from bench.curves.growths.appending import create
from bench.curves.growths.growth import Growth, Place
from bench.load.asking import UnaryAsker
from bench.load.stubs import open_channel
from bench.load.transact import TransactProducer, transact_request

_OF_A_TOPIC: Final = 1_000
_OF_A_TRANSACTION: Final = 500
"""Number of partitions of one transaction. Those of more are split, and take a way of their own."""
_VALUE_BYTES: Final = 100


class Partitions(Growth):
    """Topics of up to 1,000 partitions."""

    async def grow(self, place: Place, have: int, to: int) -> None:
        async with open_channel(place.endpoint) as channel:
            for first in range(have, to, _OF_A_TOPIC):
                topic, partitions = f"from-{first}", min(_OF_A_TOPIC, to - first)
                await create(channel, topic, partitions)
                for start in range(0, partitions, _OF_A_TRANSACTION):
                    chosen = range(start, min(partitions, start + _OF_A_TRANSACTION))
                    request = transact_request("filler", topic, chosen, value_bytes=_VALUE_BYTES, committed=True)
                    await TransactProducer(UnaryAsker(channel), request).perform()
