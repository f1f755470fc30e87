"""A server of an installed older build under load is stopped, and this tree takes over its store; then the older one
again, where docs/compatibility.md says that it can, and this tree once more.

The next release is tried with `TXN_OLDER_WHEEL=txn_coordinator-1.0.0-py3-none-any.whl pytest tests/upgrade`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

from bench.soak.auditor import Auditor
from bench.soak.crew import TRANSACTORS, Crew
from bench.soak.ending import finish
from bench.soak.ledger import PARTITIONS, Told, differences
from bench.soak.work import BULK, COPIES, ORDERS, outcomes_of
from coordinator_client import Admin, Consumer, Producer, TopicPartition, read
from tests.harness.patience import TRANSACTION_TIMEOUT_MS, looks
from tests.harness.server_process import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.xdist_group("dist")]

KEPT: Final = "kept"
"""A topic beside the load, for what must outlast every change."""

OLDER_CLIENT: Final = """
import sys
from coordinator_client import Producer, read

with Producer(sys.argv[1], transactional_id="older-client") as producer, producer.transaction() as txn:
    txn.send("kept", b"from the older client", partition=1)
print(sorted(record.value.decode() for record in read("kept", sys.argv[1]) if record.partition == 1))
"""


def await_more_orders(auditor: Auditor, count: int) -> None:
    wanted = auditor.counts[COPIES] + count
    for _ in looks("copies of orders"):
        assert auditor.failure is None
        if auditor.counts[COPIES] >= wanted:
            return


def test_a_store_under_load_goes_to_this_tree_and_back_and_loses_nothing(older: Path, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", "--set", "transaction_two_phase_commit_enable=true")
    server.installed = older
    with server:
        with Admin(server.address) as admin:
            for topic in (ORDERS, COPIES, BULK):
                admin.create_topic(topic, PARTITIONS)
            admin.create_topic(KEPT, 2)
        prepared = leave_prepared(server.address)
        auditor = Auditor(server.address)
        crew = Crew(server.address, tmp_path)
        try:
            with Producer(
                server.address, transactional_id="open", transaction_timeout_ms=TRANSACTION_TIMEOUT_MS, wait_ms=None
            ) as producer:
                with producer.transaction() as transaction:
                    transaction.send(KEPT, b"open meanwhile", partition=1)
                    transaction.flush()
                    for build in (None, older, None):
                        await_more_orders(auditor, 60)
                        assert server.terminate() == 0
                        server.installed = build
                        server.start()
                        crew.check()
                await_more_orders(auditor, 60)
            finish(server.address, crew, auditor)
        finally:
            crew.kill()

        told = {number: Told() for number in range(TRANSACTORS)}
        for number, said in told.items():
            for line in outcomes_of(tmp_path, number).read_text().splitlines(keepends=True):
                said.note(line)
        assert sum(len(said.committed) for said in told.values()) > 0
        assert differences(told, auditor.seen[ORDERS], auditor.seen[COPIES]) == []
        commit_what_was_prepared(server.address, prepared)
        done = subprocess.run(
            [older, "-c", OLDER_CLIENT, server.address], capture_output=True, text=True, cwd="/", check=False
        )
        assert (done.stdout, done.stderr) == ("['from the older client', 'open meanwhile']\n", "")


def leave_prepared(endpoint: str) -> str:
    """Leave a prepared transaction with committed offsets beside it; return the identity to decide by."""
    with Consumer(endpoint, group_id="kept", enable_auto_commit=False) as consumer:
        consumer.commit({TopicPartition(KEPT, 0): 0})
    with (
        Producer(endpoint, transactional_id="prepared", two_phase_commit=True) as producer,
        producer.transaction() as txn,
    ):
        txn.send(KEPT, b"prepared before", partition=0)
        return txn.prepare().identity


def commit_what_was_prepared(endpoint: str, identity: str) -> None:
    assert [record for record in read(KEPT, endpoint) if record.partition == 0] == []
    with Producer(endpoint, transactional_id="prepared", two_phase_commit=True) as producer:
        kept = producer.recover()
        assert kept is not None
        assert kept.identity == identity
        kept.commit()
    assert [record.value for record in read(KEPT, endpoint) if record.partition == 0] == [b"prepared before"]
    with Consumer(endpoint, group_id="kept", enable_auto_commit=False) as consumer:
        place = TopicPartition(KEPT, 0)
        offset = consumer.committed([place])[place]
        assert offset is not None
        assert offset.offset == 0
