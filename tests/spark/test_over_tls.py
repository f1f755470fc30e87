"""A real Spark session reads from a server that demands certificates; executors read the files by their names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coordinator_client import Admin, Producer, Tls
from tests.harness.certificates import Authority
from tests.harness.server_process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.long
def test_executors_show_their_certificate(spark: SparkSession, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    pair, client = authority.issue("server"), authority.issue("executor")
    settings = (
        *("--set", f"tls_certificate_file={pair.certificate}", "--set", f"tls_key_file={pair.key}"),
        *("--set", f"tls_client_ca_file={authority.ca_file}", "--set", "tls_client_auth=required"),
    )
    tls = Tls(ca_file=authority.ca_file, certificate_file=client.certificate, key_file=client.key)
    options = {
        "tlsCaFile": str(authority.ca_file),
        "tlsCertificateFile": str(client.certificate),
        "tlsKeyFile": str(client.key),
    }
    with ServerProcess(tmp_path / "data", *settings) as server:
        with Admin(server.address, tls=tls) as admin:
            admin.create_topic("t", partition_count=2)
        with Producer(server.address, transactional_id="p", tls=tls) as producer, producer.transaction() as transaction:
            for number in range(10):
                transaction.send("t", b"%d" % number, partition=number % 2)
        where = {"endpoint": server.address, "subscribe": "t"}
        rows = spark.read.format("txnlog").options(**where, **options).load().select("value").collect()
        assert sorted(int(bytes(row.value)) for row in rows) == list(range(10))
        without = where | {"tlsCaFile": options["tlsCaFile"], "rpcTimeoutMs": "3000"}
        frame = spark.read.format("txnlog").options(**without).load()
        with pytest.raises(Exception, match="it demands a certificate of its clients"):
            frame.collect()
