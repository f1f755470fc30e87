"""A server with something of everything on it: what the pages of the tests and the screenshots show."""

from __future__ import annotations

import json
import math
import time
from contextlib import suppress
from typing import Final

from coordinator_client import (
    Admin,
    Connection,
    Consumer,
    Fenced,
    Producer,
    ShareConsumer,
    Snapshot,
    TransactionError,
)
from coordinator_client.producer.sink import SinkClient

TIMEOUT_MS: Final = 900_000
"""Longest timeout: no test waits for one, on however busy a machine."""
HOSTILE_ID: Final = '"><script>document.title="owned"</script><img src=x onerror=alert(1)>\u202eevil\x07&lt;'
HOSTILE_GROUP: Final = "</title><style>*{display:none}</style>' onmouseover='alert(1)"
HOSTILE_VALUE: Final = b'</pre></table><script>document.title="owned"</script><iframe src="//evil.example"></iframe>'


class Filled:
    """Work that stays open: producers with open transactions, a consumer, a snapshot."""

    def __init__(self, endpoint: str, *, is_hostile: bool = True) -> None:
        self._is_hostile = is_hostile
        self.connection = Connection(endpoint, client_id="till-eu-1")
        self.admin = Admin(self.connection)
        self.producers: list[Producer] = []
        self.consumers: list[Consumer | ShareConsumer] = []
        self.snapshot: Snapshot | None = None
        self._topics()
        self._ended()
        self._open()
        self._groups()
        self._share_group()
        SinkClient(self.connection, "spark/late-orders", run_id="run 1").join(
            0, attempt="task 1", transaction_timeout_ms=TIMEOUT_MS
        )

    def _topics(self) -> None:
        self.admin.create_topic("orders", 3)
        self.admin.create_topic("payments", 2, config={"retention_ms": "604800000"})
        self.admin.create_topic("audit-log", 1)

    def _producer(self, transactional_id: str) -> Producer:
        producer = Producer(self.connection, transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS)
        self.producers.append(producer)
        return producer

    def _ended(self) -> None:
        billing = self._producer("billing-eu-7f3a")
        for number in range(12):
            with billing.transaction() as transaction:
                order = {"order": 1_000 + number, "total": f"{number * 7}.50", "currency": "EUR"}
                transaction.send("orders", json.dumps(order).encode(), key=f"customer-{number % 4}".encode())
                transaction.send("payments", json.dumps({"order": 1_000 + number, "state": "paid"}).encode())
        with suppress(RuntimeError), billing.transaction() as transaction:
            transaction.send("orders", b'{"order": 1012, "total": "0.00"}', key=b"customer-1", partition=0)
            transaction.flush()
            raise RuntimeError("the card was refused")
        old, new = self._producer("shipping-2"), self._producer("shipping-2")
        with old.transaction() as transaction:
            transaction.send("payments", b"shipped 1")
        with new.transaction() as transaction:
            transaction.send("payments", b"shipped 2")
        with suppress(Fenced, TransactionError), old.transaction() as transaction:
            transaction.send("payments", b"too late")
        if not self._is_hostile:
            return
        hostile = self._producer(HOSTILE_ID)
        with hostile.transaction() as transaction:
            transaction.send("audit-log", HOSTILE_VALUE, key=HOSTILE_VALUE[:40], headers=[("<b>", b"<i>")])
            transaction.send("audit-log", b"\x00\xff\xfe binary")

    def _open(self) -> None:
        for name, topic, partition in (("checkout-web-01", "orders", 0), ("checkout-web-02", "orders", 2)):
            producer = self._producer(name)
            transaction = producer.transaction().__enter__()
            transaction.send(topic, b'{"order": 2000, "total": "12.00"}', key=b"customer-9", partition=partition)
            transaction.flush()
        if not self._is_hostile:
            return
        hostile = self._producer(HOSTILE_ID + " open")
        transaction = hostile.transaction().__enter__()
        transaction.send("audit-log", HOSTILE_VALUE)
        transaction.flush()

    def _groups(self) -> None:
        for group_id in ("billing-readers", *([HOSTILE_GROUP] if self._is_hostile else [])):
            consumer = Consumer(
                self.connection, group_id=group_id, auto_offset_reset="earliest", enable_auto_commit=False
            )
            consumer.subscribe(["orders"])
            while not consumer.poll(timeout_ms=1_000):
                pass
            consumer.commit()
            self.consumers.append(consumer)
        self.snapshot = self.admin.take_snapshot(["orders", "payments"])

    def _share_group(self) -> None:
        self.admin.create_topic("parcels", 1)
        self.admin.alter_group_configs("packers", {"share_auto_offset_reset": "earliest"})
        worker = self._producer("packer-1")
        with worker.transaction() as transaction:
            for number in range(4):
                transaction.send("parcels", f"parcel {number}".encode())
        consumer = ShareConsumer(self.connection, group_id="packers", explicit=True)
        self.consumers.append(consumer)
        consumer.subscribe(["parcels"])
        while not (parcels := consumer.poll(timeout_ms=1_000)):
            pass
        transaction = worker.begin()
        transaction.acknowledge(parcels)
        transaction.flush()

    def work(self, seconds: float) -> None:
        """Commit and abort for a while, more and less, so that the rates have a course."""
        producer, began = self._producer("till-17"), time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            for number in range(1 + int(8 * abs(math.sin(passed / 9)))):
                with suppress(RuntimeError), producer.transaction() as transaction:
                    transaction.send("payments", b'{"order": 3000, "state": "paid"}')
                    if number == 3:
                        raise RuntimeError("refused")
            self.connection.clock.pause(50)

    def close(self) -> None:
        for consumer in self.consumers:
            consumer.close()
        for producer in self.producers:
            with suppress(TransactionError):
                producer.close()
        self.connection.close()
