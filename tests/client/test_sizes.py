"""The size of a batch is limited by the server: it refuses with both numbers what the SDK only cuts and sends."""

from __future__ import annotations

import pytest

from coordinator_client import Admin, Producer, Rejected, read
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.limits import KIBI, MEBI
from tests.harness.threaded_server import threaded_server

LARGE = b"x" * (3 * MEBI)


@pytest.mark.parametrize("transactional_id", [None, "p"])
def test_a_server_that_takes_larger_batches_is_sent_larger_ones(transactional_id: str | None) -> None:
    with threaded_server(batch_bytes_max=4 * MEBI) as address:
        with Admin(address) as admin:
            admin.create_topic("t")
        with Producer(address, transactional_id=transactional_id, batch_bytes=2 * MEBI) as producer:
            if transactional_id is None:
                producer.send("t", LARGE)
            else:
                with producer.transaction() as txn:
                    txn.send("t", LARGE)
        assert [record.value for record in read("t", address)] == [LARGE]


def test_one_that_takes_less_says_how_much_and_the_producer_goes_on() -> None:
    with threaded_server(batch_bytes_max=64 * KIBI) as address:
        with Admin(address) as admin:
            admin.create_topic("t")
        with Producer(address, transactional_id="p") as producer:
            refused = pytest.raises(Rejected, match=r"takes \d+ bytes and at most 65536 are allowed")
            with refused as failed, producer.transaction() as txn:
                txn.send("t", bytes(64 * KIBI))
            assert failed.value.code == ErrorCode.MESSAGE_TOO_LARGE
            with producer.transaction() as txn:
                txn.send("t", b"small")
        with Producer(address) as producer:
            producer.send("t", bytes(64 * KIBI))
            with pytest.raises(Rejected, match="at most 65536"):
                producer.flush()
            producer.send("t", b"plain")
            producer.flush()
        assert [record.value for record in read("t", address)] == [b"small", b"plain"]
