"""Real servers on restored directories: the records they have and lack, and clients that tell the two lines apart."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grpc
import pytest

from coordinator_api.v1 import common_pb2, log_pb2, log_pb2_grpc
from coordinator_client import Admin, Producer, read
from coordinator_client.clock import SystemClock as ClientClock
from coordinator_client.errors import TransactionError
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.backups import Restored, restore
from coordinator_runtime.clock import SystemClock
from coordinator_runtime.rocks import open_read_only
from tests.cli.terminal import Terminal
from tests.harness.patience import DEADLINE_SECONDS, looks
from tests.harness.server_process import ServerProcess
from tests.server.producer_by_wire import ProducerByWire, Reader
from txnctl.stopped.store_verify import verify_store

pytestmark = pytest.mark.slow

TOPIC: Final = "orders"
PARTITIONS: Final = 3
WRITERS: Final = 3


@pytest.fixture
def txnctl(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(monkeypatch)


class Place:
    """A server that makes backups, and the directories that come of them."""

    def __init__(self, path: Path, txnctl: Terminal) -> None:
        self.path = path
        self.shelf = path / "backups"
        self.server = ServerProcess(
            path / "data", "--set", f"backup_directory={self.shelf}", "--set", "large_batch_bytes_min=1000"
        )
        self._txnctl = txnctl

    def back_up(self) -> Path:
        """Returns the directory of a new backup."""
        made = self._txnctl("backup", "create", "--server", self.server.address, "-o", "json").well().document
        return self.shelf / str(made[0]["name"])

    def restored(self, backup: Path, name: str) -> tuple[ServerProcess, Restored]:
        """A server, not started, on what was restored; every promise of its rows holds."""
        clock = SystemClock()
        done = restore(backup, self.path / name, clock=clock, pause=ClientClock().pause)
        store = open_read_only(self.path / name)
        violations = [violation for check in verify_store(store) for violation in check.violations]
        store.close()
        assert violations == []
        return ServerProcess(self.path / name), done


@pytest.fixture
def place(tmp_path: Path, txnctl: Terminal) -> Iterator[Place]:
    place = Place(tmp_path, txnctl)
    with place.server:
        with Admin(place.server.address) as admin:
            admin.create_topic(TOPIC, PARTITIONS)
        yield place


class Writers:
    """Producers that write transactions over all partitions for as long as they may, whatever becomes of the server,
    and note what was acknowledged."""

    def __init__(self, address: str, line: str) -> None:
        """`line` begins the names of all transactions."""
        self._address = address
        self._line = line
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(f"writer-{n}",)) for n in range(WRITERS)]
        self.asked: set[str] = set()
        """Names of transactions whose commit may have been asked for."""
        self.acknowledged: set[str] = set()

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _write(self, transactional_id: str) -> None:
        number = 0
        while not self._is_over.is_set():
            try:
                with Producer(self._address, transactional_id=transactional_id) as producer:
                    while not self._is_over.is_set():
                        number += 1
                        self._write_one(producer, f"{self._line} {transactional_id} {number}")
            except TransactionError:
                continue  # The server was killed: the outcome of the last one is unknown.

    def _write_one(self, producer: Producer, name: str) -> None:
        with producer.transaction() as transaction:
            for partition in range(PARTITIONS):
                # Some lie in segments.
                value = name.encode() + b" " * (2_000 if partition == 0 else 0)
                transaction.send(TOPIC, value, partition=partition)
            self.asked.add(name)
        self.acknowledged.add(name)

    def go_on(self, count: int) -> None:
        """Return once so many more transactions were acknowledged."""
        wanted = len(self.acknowledged) + count
        for _ in looks("the number of acknowledged transactions"):
            if len(self.acknowledged) >= wanted:
                return


def visible_transactions(address: str) -> set[str]:
    """Names of the transactions that a committed reader sees; every one as a whole, and once."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for record in read(TOPIC, address):
        found[(record.value or b"").decode().strip()].append(record.partition)
    for name, partitions in found.items():
        assert sorted(partitions) == [*range(PARTITIONS)], f"{name} is in {partitions}: torn, or there twice"
    return set(found)


def test_a_drill(place: Place) -> None:
    """Load with kills, a backup in the middle, the loss of the machine, a restore: what was acknowledged before the
    backup is there, every transaction as a whole, and the same producers go on."""
    with Writers(place.server.address, "lost") as writers:
        writers.go_on(20)
        place.server.kill()
        place.server.start()
        writers.go_on(20)
        before = set(writers.acknowledged)
        backup = place.back_up()
        possible = set(writers.asked)
        writers.go_on(20)
        place.server.kill()
        place.server.start()
        writers.go_on(20)
    place.server.kill()
    server, _ = place.restored(backup, "restored")
    with server:
        restored = visible_transactions(server.address)
        assert before <= restored <= possible
        assert writers.acknowledged - restored, "the backup was made in the middle"
        with Writers(server.address, "restored") as again:
            again.go_on(20)
            server.kill()
            server.start()
            again.go_on(20)
        assert restored | again.acknowledged <= visible_transactions(server.address) <= restored | again.asked
        server.terminate()
    store = open_read_only(server.data_dir)
    assert [violation for check in verify_store(store) for violation in check.violations] == []
    store.close()


def fetched(address: str, offset: int, last_read_epoch: int | None) -> log_pb2.FetchResult:
    partition = log_pb2.FetchPartition(topic=TOPIC, partition=0, fetch_offset=offset, last_read_epoch=last_read_epoch)
    with grpc.insecure_channel(address) as channel:
        request = log_pb2.FetchRequest(
            isolation_level=common_pb2.ISOLATION_LEVEL_READ_COMMITTED, partitions=[partition]
        )
        (result,) = log_pb2_grpc.LogServiceStub(channel).Fetch(request, timeout=DEADLINE_SECONDS).results
    return result


def write_as(address: str, transactional_id: str, *values: str) -> ProducerByWire:
    with grpc.insecure_channel(address) as channel:
        producer = ProducerByWire(channel, transactional_id)
        producer.init()
        for value in values:
            producer.write(TOPIC, 0, value)
        assert producer.ends(committed=True)[-1] == 0
    return producer


@pytest.mark.long
def test_a_reader_of_the_first_restore_is_told_by_the_second(place: Place) -> None:
    write_as(place.server.address, "shop", "both")
    backup = place.back_up()
    place.server.kill()
    (first, _), (second, _) = place.restored(backup, "first"), place.restored(backup, "second")
    with first, second:
        shared = fetched(first.address, 0, None).next_offset
        write_as(first.address, "shop", "first")
        write_as(second.address, "shop", "second", "second")
        of_first = fetched(first.address, shared, fetched(first.address, 0, None).last_read_epoch)
        assert of_first.batches, "its own reader is served"
        told = fetched(second.address, of_first.next_offset, of_first.last_read_epoch)
        assert told.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (told.diverging.end_offset, len(told.batches)) == (shared, 0)
        # A reader that stopped where both are the same is served by both.
        assert fetched(second.address, shared, fetched(first.address, 0, None).batches[0].leader_epoch).batches


@pytest.mark.long
def test_a_zombie_is_fenced_whose_epoch_the_restored_id_reaches_again(place: Place) -> None:
    write_as(place.server.address, "shop", "before")
    backup = place.back_up()
    for _ in range(5):
        zombie = write_as(place.server.address, "shop", "lost")
    place.server.kill()
    server, _ = place.restored(backup, "restored")
    with server, grpc.insecure_channel(server.address) as channel:
        zombie.channel = channel
        assert_shut_out(zombie)
        for _ in range(8):
            current = write_as(server.address, "shop", "after")
            assert_shut_out(zombie)
        assert current.producer_id != zombie.producer_id
        assert current.producer_epoch >= zombie.producer_epoch, "or the zombie would be behind anyway"
        assert Reader(channel).read(TOPIC, 0).values == ["before", *["after"] * 8]


def assert_shut_out(zombie: ProducerByWire) -> None:
    with pytest.raises(AssertionError, match=r"INVALID_PRODUCER_EPOCH|PRODUCER_FENCED|INVALID_PRODUCER_ID_MAPPING"):
        zombie.write(TOPIC, 0, "zombie")
    (answered,) = zombie.ends(committed=True)
    assert ErrorCode(answered) in (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    )


@pytest.mark.long
def test_what_is_prepared_waits_for_its_decision_and_what_is_open_is_aborted(tmp_path: Path, txnctl: Terminal) -> None:
    place = Place(tmp_path, txnctl)
    place.server.arguments = [*place.server.arguments, "--set", "transaction_two_phase_commit_enable=true"]
    with place.server:
        with Admin(place.server.address) as admin:
            admin.create_topic(TOPIC, 1)
        with grpc.insecure_channel(place.server.address) as channel:
            opened = ProducerByWire(channel, "open")
            opened.init()
            opened.write(TOPIC, 0, "open")
        with Producer(place.server.address, transactional_id="paid", two_phase_commit=True) as producer:
            with producer.transaction() as transaction:
                transaction.send(TOPIC, b"paid")
                transaction.prepare()
            backup = place.back_up()
    server, _ = place.restored(backup, "restored")
    server.arguments = ["--set", "transaction_two_phase_commit_enable=true"]
    with server:
        with Admin(server.address) as admin:
            for _ in looks("the abort of what was open, which begins when the server serves"):
                states = {each.transactional_id: each.state for each in admin.list_transactions()}
                if states["open"] == "CompleteAbort":
                    break
        assert states == {"open": "CompleteAbort", "paid": "Ongoing"}
        assert visible(server.address) == []
        with Producer(server.address, transactional_id="paid", two_phase_commit=True) as producer:
            prepared = producer.recover()
            assert prepared is not None
            prepared.commit()
        assert visible(server.address) == [b"paid"]


def visible(address: str) -> list[bytes | None]:
    return [record.value for record in read(TOPIC, address)]
