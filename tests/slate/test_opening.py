"""Stores in a bucket: opened, taken over, refused."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from coordinator_runtime import own_rows
from coordinator_runtime.incarnation import IncarnationCause
from coordinator_runtime.slate import binding
from coordinator_runtime.slate.location import parse_location
from coordinator_runtime.slate.opening import SlateOptions, _settings, open_slate_stopped, open_slate_store, put_meta
from coordinator_runtime.slate.store import SlateStore, StoreOpening
from coordinator_runtime.store import CommitGroup, Family, StoreFailed, StoreFenced, StoreRefused
from tests.harness.manual_clock import ManualClock
from tests.harness.object_store import ObjectServer
from tests.harness.patience import looks

WALL_MS = 1_800_000_000_000
SHARDS = 4


def opened(address: str, **changes: object) -> SlateStore:
    wanted = {"shard_count": SHARDS, "clock": ManualClock(wall_ms=WALL_MS)} | changes
    return open_slate_store(parse_location(address), **wanted)  # type: ignore[arg-type]


def put(store: SlateStore, key: bytes) -> None:
    """A durable row."""
    store.write([CommitGroup(store.version() + 1, [(Family.LOG, key, b"value")])])
    store.sync()
    store.mark_durable(store.version())


def test_what_was_acknowledged_survives_the_machine(address: str) -> None:
    store = opened(address)
    put(store, b"a")
    # The process is gone without a word.
    again = opened(address)
    assert (again.version(), again.get(Family.LOG, b"a")) == (1, b"value")
    assert again.identity.store_id == store.identity.store_id
    again.close()


class Ticking(ManualClock):
    """A clock that goes on by a second with each look at it."""

    def monotonic_ms(self) -> int:
        self.advance(1_000)
        return super().monotonic_ms()


def test_an_opening_tells_the_time_of_its_parts(address: str) -> None:
    store = opened(address, clock=Ticking(wall_ms=WALL_MS))
    assert store.opening == StoreOpening(is_new=True, look_ms=1_000, engine_ms=1_000)
    store.close()


def manifest_bytes(server: ObjectServer) -> int:
    """Size of the newest manifest, which grows with each table that it names."""
    return len(max((name, each.content) for name, each in list(server.objects.items()) if "/manifest/" in name)[1])


def test_the_log_that_a_server_read_is_not_read_again_by_the_next(server: ObjectServer, address: str) -> None:
    store = opened(address)
    for number in range(50):
        put(store, b"%d" % number)
    before = server.requests.copy()
    without_tables = manifest_bytes(server)
    # Its process is gone, and the next one goes, too, before a checkpoint is due.
    opened(address)
    assert any(manifest_bytes(server) > without_tables for _ in looks("the manifest"))
    between = server.requests.copy()
    opened(address).close()
    assert (server.requests - between)["HEAD"] < (between - before)["HEAD"] / 3


def test_the_server_that_opened_last_is_the_one_writer(address: str) -> None:
    first = opened(address)
    put(first, b"a")
    second = opened(address)
    with pytest.raises(StoreFenced, match="another server has opened the store"):
        put(first, b"lost")
    with pytest.raises(StoreFailed):
        first.get(Family.LOG, b"a")
    put(second, b"b")
    assert [key for key, _value in second.scan(Family.LOG, b"", b"\xff")] == [b"a", b"b"]
    second.close()


def test_a_clean_end_leaves_a_store_that_tools_can_read(address: str) -> None:
    store = opened(address)
    put(store, b"a")
    store.close()
    stopped = open_slate_stopped(parse_location(address))
    assert (stopped.version(), stopped.shard_count, stopped.format_version) == (1, SHARDS, own_rows.FORMAT_VERSION)
    assert stopped.get(Family.LOG, b"a") == b"value"
    stopped.close()


def test_a_look_fences_no_server(address: str) -> None:
    store = opened(address)
    put(store, b"a")
    with pytest.raises(StoreRefused, match="made with 4 shards and cannot be opened with 5"):
        opened(address, shard_count=5)
    open_slate_stopped(parse_location(address)).close()
    put(store, b"b")
    store.close()


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (
            own_rows.FORMAT_VERSION_KEY,
            own_rows.stored_number(99),
            "has format 99.*use the version that wrote it, or a la",
        ),
        (
            own_rows.FORMAT_VERSION_KEY,
            own_rows.stored_number(1),
            "has format 1.*no release ever wrote it: use another pl",
        ),
        (own_rows.FEATURES_KEY, b"queues", "has the feature 'queues'"),
        (b"!novelty", b"", "has the row '!novelty' in META"),
    ],
)
def test_a_store_of_another_program_is_refused(address: str, key: bytes, value: bytes, words: str) -> None:
    store = opened(address)
    put_meta(store._database, [(key, value)])
    with pytest.raises(StoreRefused, match=words):
        opened(address)


def set_back(server: ObjectServer, before: dict[str, object]) -> None:
    """An operator puts an older version of all objects back, apart from the record of the owner."""
    record = server.objects["some/prefix/owner/record"]
    server.objects.clear()
    server.objects.update(before)  # type: ignore[arg-type]
    server.objects["some/prefix/owner/record"] = record


def test_a_bucket_that_was_set_back_is_refused_until_the_loss_is_accepted(server: ObjectServer, address: str) -> None:
    store = opened(address)
    put(store, b"a")
    store.close()
    before = dict(server.objects)
    store = opened(address)
    put(store, b"b")
    store.close()
    set_back(server, before)
    with pytest.raises(StoreRefused, match=r"is at version 1, but version 2 had been durable: the bucket was set back"):
        opened(address)
    going_on = opened(address, accepts_data_loss=True)
    assert going_on.incarnation.cause is IncarnationCause.DATA_LOSS
    assert going_on.version() == 1
    going_on.close()
    opened(address).close()


def test_an_empty_prefix_whose_record_is_left_is_refused(server: ObjectServer, address: str) -> None:
    store = opened(address)
    put(store, b"a")
    store.close()
    set_back(server, {})
    with pytest.raises(StoreRefused, match="holds no store, but the record of its owner says version 1"):
        opened(address)


def test_a_record_of_another_store_is_refused(server: ObjectServer, address: str) -> None:
    opened(address).close()
    opened("s3://tests/other").close()
    server.objects["some/prefix/owner/record"] = server.objects["other/owner/record"]
    with pytest.raises(StoreRefused, match="parts of two stores lie in one place"):
        opened(address)


def test_a_clock_that_is_far_off_is_refused(address: str) -> None:
    with pytest.raises(StoreRefused, match=r"differ by 600000 ms, and at most 300000 are safe"):
        opened(address, clock=ManualClock(wall_ms=WALL_MS + 600_000))


def test_a_store_whose_answers_are_not_atomic_is_refused_at_the_first_start(server: ObjectServer, address: str) -> None:
    server.is_atomic = False
    with pytest.raises(StoreRefused, match="of writers that create one object, exactly one succeeds"):
        opened(address)
    assert not server.objects, "nothing is left"


def test_a_store_that_drops_metadata_is_refused(server: ObjectServer, address: str) -> None:
    server.keeps_metadata = False
    with pytest.raises(StoreRefused, match="metadata of an object is kept"):
        opened(address)


def test_wrong_credentials_are_one_line_with_advice(server: ObjectServer, address: str) -> None:
    server.refusal = 403
    with pytest.raises(
        StoreRefused, match=r"s3://tests/some/prefix cannot be used: .*check the bucket and the"
    ) as refused:
        opened(address)
    assert "\n" not in str(refused.value)


def lose_answer(server: ObjectServer) -> None:
    server.lose_next_answer.add("PUT")


def fail_thrice(server: ObjectServer) -> None:
    server.fail_next["PUT"] = 3


def answer_late(server: ObjectServer) -> None:
    server.delay_seconds["PUT"] = 0.1


@pytest.mark.parametrize("spoil", [lose_answer, fail_thrice, answer_late])
def test_a_flush_outlives_an_unreliable_store(
    server: ObjectServer, address: str, spoil: Callable[[ObjectServer], None]
) -> None:
    store = opened(address)
    for number in range(3):
        spoil(server)
        put(store, b"%d" % number)
    again = opened(address)
    assert again.version() == 3
    again.close()


def test_a_flush_is_one_object_and_an_idle_store_writes_nothing(server: ObjectServer, address: str) -> None:
    store = opened(address)
    server.requests.clear()
    for number in range(5):
        put(store, b"%d" % number)
    assert server.requests["PUT"] == 5
    store.close()


def test_fences_are_never_collected_and_other_objects_only_after_an_hour() -> None:
    settings = json.loads(_settings(SlateOptions()).to_json_string())
    options = settings["garbage_collector_options"]
    assert options["wal_fence_options"]["dry_run"] is True
    kinds = [value for name, value in options.items() if name.endswith("_options") and name != "detach_options"]
    assert {each["min_age"] for each in kinds} == {"3600s"}
    assert len(kinds) == 5
    assert settings["l0_flush_parallelism"] == 1
    assert binding.PATIENCE_SECONDS * 10 < 3_600, "a table is published long before it can be collected"


def test_rows_of_retired_ranges_are_hidden_after_a_crash_and_then_removed(address: str) -> None:
    store = opened(address)
    store.write([CommitGroup(1, [(Family.LOG, b"%04d" % number, b"value") for number in range(2_000)])])
    store.write([CommitGroup(2, [], [(Family.LOG, b"0000", b"1990")])])
    store.sync()
    again = opened(address)
    assert next(again.scan(Family.LOG, b"", b"\xff"))[0] == b"1990"
    assert len(list(again.scan_backwards(Family.LOG, b"", b"\xff"))) == 10
    again._sweep((Family.LOG, b"0000", b"1990"))
    rows = binding.result_of(again._database.scan_with_options(binding.range_of(b"\x01", b"\x02"), binding.FORWARDS))
    assert len(binding.result_of(rows.next_batch(256))) == 10
    again.close()
