"""Times are whole milliseconds, given by a keyword whose name ends in `_ms`: in every public call that takes one.

`poll(1.0)` waits for a second in one client of Kafka and is no call at all in another. What is refused here is refused
before anything is sent or changed.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import is_dataclass
from enum import Enum
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

import coordinator_client
from coordinator_client import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncShareConsumer,
    Connection,
    Consumer,
    ConsumerConfig,
    FetchOptions,
    Misconfigured,
    OffsetReset,
    Producer,
    ProducerConfig,
    ReadPlan,
    Rejected,
    ResetTo,
    ShareConsumer,
    Snapshot,
)
from coordinator_client.settings import DURATION_MS_MAX, duration_ms, timestamp_ms
from tests.client.consumers import FakeCluster
from tests.client.world import World

SETTINGS = (ProducerConfig, ConsumerConfig, ReadPlan, FetchOptions)
LIKE_A_TIME = re.compile(r"time|wait|interval|deadline|patience|linger|delay|_age|_ms|seconds")
A_TIME_BY_KEY = {"times_ms"}
"""A time for each partition, so that none stands alone."""
MADE_OF_TIMES = {"deadlines"}
"""A value of its own, whose fields have their units."""

NEEDED: dict[str, Any] = {
    "topic": "t",
    "value": b"x",
    "partition": ("t", 0),
    "partitions": [("t", 0)],
    "times_ms": {("t", 0): 0},
    "topics": ["t"],
    "snapshot": Snapshot(snapshot_id=b"s" * 16, topic_ids={}, views={}),
    "endpoint": "127.0.0.1:7070",
}


def public_calls() -> dict[str, Callable[..., Any]]:
    """Every function, method and constructor that an application calls; not those of the values that it is given."""
    calls: dict[str, Callable[..., Any]] = {}
    for name in coordinator_client.__all__:
        thing = getattr(coordinator_client, name)
        if inspect.isfunction(thing):
            calls[name] = thing
        elif not inspect.isclass(thing) or issubclass(thing, (Exception, tuple, dict, Enum)):
            continue
        elif not is_dataclass(thing) or thing in SETTINGS:
            calls[name] = thing
            methods = inspect.getmembers(thing, inspect.isfunction)
            calls |= {f"{name}.{member}": value for member, value in methods if not member.startswith("_")}
    return calls


def parameters(call: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters by name, and what is taken by `Unpack` as keywords, which it is."""
    found: dict[str, inspect.Parameter] = {}
    for parameter in inspect.signature(call).parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD:
            found[parameter.name] = parameter
            continue
        init = call.__init__ if inspect.isclass(call) else call  # type: ignore[misc]  # a class has one
        (options,) = get_args(get_type_hints(init)[parameter.name])
        for name in options.__annotations__:
            found[name] = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
    return found


CALLS = public_calls()
TIMES = [
    (label, name)
    for label, call in CALLS.items()
    for name in parameters(call)
    if name.endswith("_ms") and name not in A_TIME_BY_KEY
]


def test_whatever_takes_a_time_is_looked_at() -> None:
    labels = {label for label, _ in TIMES}
    assert labels > {"Admin", "Admin.list_transactions", "AsyncTransaction.send", "Connection", "Producer", "read"}
    for method in ("poll", "commit", "committed", "position", "beginning_offsets", "end_offsets", "close"):
        assert {f"Consumer.{method}", f"AsyncConsumer.{method}"} <= labels
    assert len(TIMES) > 60


@pytest.mark.parametrize("label", CALLS)
def test_a_time_has_its_unit_in_its_name_and_is_given_by_name(label: str) -> None:
    for name, parameter in parameters(CALLS[label]).items():
        if LIKE_A_TIME.search(name) and name not in MADE_OF_TIMES:
            assert name.endswith("_ms"), f"{label} takes {name}, without its unit"
        if name.endswith("_ms") and name not in A_TIME_BY_KEY:
            assert parameter.kind is parameter.KEYWORD_ONLY, f"{label} takes {name} by its place"


WRONG = (1.0, 0.5, True, "1000", -1, 2**63, float("nan"))


@pytest.mark.parametrize(("label", "name"), TIMES)
def test_what_is_no_time_is_refused_and_nothing_is_sent(label: str, name: str) -> None:
    cluster = FakeCluster()
    call = cluster.world.run(bound(label, cluster.world))
    needed = {each: NEEDED[each] for each in parameters(call) if each in NEEDED}
    if "ShareConsumer" in label and "." not in label:
        needed["group_id"] = "g"
    sent = len(cluster.world.sent)
    for wrong in WRONG:
        with pytest.raises((TypeError, Rejected, Misconfigured), match=rf"{name} is .* (milliseconds|{2**63 - 1})"):
            cluster.world.run(awaited(call(**needed, **{name: wrong})))
    assert len(cluster.world.sent) == sent


async def bound(label: str, world: World) -> Callable[..., Any]:
    """The call, ready to be made: of an object that is in use, where it is a method."""
    owner, _, method = label.partition(".")
    if not method:
        return CALLS[label]
    connection = world.connection()
    if owner == "Transaction":
        txn = Producer(connection, transactional_id="p").transaction()
        txn.__enter__()
        return getattr(txn, method)  # type: ignore[no-any-return]
    if owner == "AsyncTransaction":
        async_txn = AsyncProducer(connection, transactional_id="p").transaction()
        await async_txn.__aenter__()
        return getattr(async_txn, method)  # type: ignore[no-any-return]
    made: Any = {"Admin": Admin, "AsyncAdmin": AsyncAdmin, "Producer": Producer, "AsyncProducer": AsyncProducer}.get(
        owner
    )
    if made is None and "Share" in owner:
        made = {"ShareConsumer": ShareConsumer, "AsyncShareConsumer": AsyncShareConsumer}[owner]
        return getattr(made(connection, group_id="g"), method)  # type: ignore[no-any-return]
    if made is None:
        made = {"Consumer": Consumer, "AsyncConsumer": AsyncConsumer}[owner]
        consumer = made(connection, group_id="g")
        consumer.assign([("t", 0)])
        return getattr(consumer, method)  # type: ignore[no-any-return]
    return getattr(made(connection), method)  # type: ignore[no-any-return]


async def awaited(answer: object) -> None:
    if isinstance(answer, Awaitable):
        await answer


@pytest.mark.parametrize("wait", [1.0, 1_000, 0, None])
def test_a_poll_that_is_given_a_bare_number_says_what_to_write(wait: Any) -> None:
    cluster = FakeCluster()
    advice = r"poll takes milliseconds by name: for one second write poll\(timeout_ms=1000\)"
    with pytest.raises(TypeError, match=advice):
        cluster.member().poll(wait)

    async def use() -> None:
        with pytest.raises(TypeError, match=advice):
            await AsyncConsumer(cluster.world.connection(), group_id="g").poll(wait)

    cluster.world.run(use())
    assert cluster.world.sent == []


@pytest.mark.parametrize("time_ms", [1.0, True, -1, 2**63])
def test_a_point_in_time_is_unix_milliseconds(time_ms: Any) -> None:
    """In seconds, as `time.time()` has them, it would be a day of January 1970."""
    cluster = FakeCluster()
    with pytest.raises((TypeError, Rejected), match="must be Unix milliseconds"):
        OffsetReset(ResetTo.TIME, time_ms)
    with pytest.raises((TypeError, Rejected), match="must be Unix milliseconds"):
        cluster.consumer().offsets_for_times({("t", 0): time_ms})
    assert cluster.world.sent == []


def test_none_stands_for_the_default_only_where_there_is_one() -> None:
    with pytest.raises(TypeError, match="delivery_timeout_ms is None"):
        ProducerConfig(delivery_timeout_ms=None)  # type: ignore[arg-type]
    assert ProducerConfig(wait_ms=None).wait_ms is None
    assert Connection("h:1", wait_ms=None).endpoint == "h:1"


@given(st.integers() | st.floats() | st.booleans() | st.text() | st.none() | st.binary())
def test_a_time_is_a_whole_number_in_its_range_and_nothing_else(value: object) -> None:
    for check, most in ((duration_ms, DURATION_MS_MAX), (timestamp_ms, 2**63 - 1)):
        if isinstance(value, int) and not isinstance(value, bool):
            if 0 <= value <= most:
                assert check("wait_ms", value) == value
                continue
            with pytest.raises(Rejected, match=f"wait_ms is {value} and must be"):
                check("wait_ms", value)
        else:
            with pytest.raises(TypeError, match=re.escape(f"wait_ms is {value!r} and must be")):
                check("wait_ms", value)
