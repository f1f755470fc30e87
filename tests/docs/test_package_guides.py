"""The guides in the packages' `__init__`: the modules that they name exist, and their code runs."""

from __future__ import annotations

import importlib
import re
from typing import Any, Final

import pytest

from coordinator_core.assembly import Dependencies, assemble
from coordinator_core.config import CoreConfig
from coordinator_protocol.marker import Outcome
from coordinator_runtime.decision import Turn
from coordinator_runtime.loader import ShardLoader
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import INTERNAL
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import CommitGroup
from tests.docs.fences import ROOT
from tests.harness.hand_driver import HandDriver
from tests.harness.manual_clock import ManualClock
from tests.harness.memory_store import MemoryStore
from tests.harness.workers import HeldWorker
from tests.harness.world import World
from tests.runtime.ledger import FIRST, ledger_kind, put
from txn_coordinator.requests import EndTxn, InitProducerId
from txn_coordinator.rules.ending import Ending, EndVerdict, judge_end

GUIDES: Final = (
    "coordinator_runtime",
    "txn_coordinator",
    "partition_log",
    "group_coordinator",
    "coordinator_core",
    "coordinator_server",
    "coordinator_client",
    "pyspark_txnlog",
    "txnctl",
)
NAME = re.compile(r"`([a-z_]+(?:/[a-z_]+)*)`")


def guide(package: str) -> str:
    text = importlib.import_module(package).__doc__
    assert text is not None
    return text


def example(package: str) -> str:
    (found,) = re.findall(r"^```python\n(.*?)^```$", guide(package), re.MULTILINE | re.DOTALL)
    assert isinstance(found, str)
    return found


def run(source: str, names: dict[str, Any]) -> None:
    exec(source, names)  # noqa: S102  code of ours, from a docstring


@pytest.mark.parametrize("package", GUIDES)
def test_the_modules_that_a_guide_tells_to_read_exist(package: str) -> None:
    named = NAME.findall(guide(package).partition("Reading order: ")[2])
    assert len(named) >= 4
    assert [
        name for name in named if not (ROOT / package / f"{name}.py").exists() and not is_folder(package, name)
    ] == []


def is_folder(package: str, name: str) -> bool:
    return (ROOT / package / name).is_dir()


def test_the_runtime_as_its_guide_drives_it() -> None:
    names: dict[str, Any] = {"Runtime": Runtime, "clock": ManualClock(), "store": MemoryStore()}
    names |= {"sealed": list[CommitGroup](), "key": FIRST, "operation": put("apples", 3), "ShardLoader": ShardLoader}
    made, driven = example("coordinator_runtime").split("\n", 1)
    run(made, names)
    names["kind"] = ledger_kind(names["runtime"])
    run(driven, names)
    assert names["reply"].result() == 3
    assert names["runtime"].shard(FIRST).durable() == {"apples": 3}


def test_a_core_as_its_guide_asks_it() -> None:
    driver = HandDriver(MemoryStore(), ManualClock())
    answers: list[Pending[Any]] = []
    names: dict[str, Any] = {"assemble": assemble, "runtime": driver.runtime, "store": driver.store}
    names |= {
        "config": CoreConfig(shard_count=1),
        "dependencies": Dependencies(worker=HeldWorker(), payload_worker=HeldWorker()),
    }
    names |= {"InitProducerId": InitProducerId, "context": INTERNAL, "answer": answers.append}
    assembled, asked = re.split(r"core\.load_shared\(\).*\ncore\.load_shards\(\).*\n", example("coordinator_core"))
    run(assembled, names)
    driver.load_core(names["core"])
    driver.settle()
    run(asked, names)
    assert answers == []
    driver.settle()
    assert answers[0].error is None


def test_a_transaction_as_its_guide_ends_it() -> None:
    world = World()
    world.create_topic("orders", 1)
    world.settle()
    pending = world.init("billing-0")
    world.settle()
    identity = pending.result()
    world.add("billing-0", identity, ["orders-0"])
    world.settle()
    names: dict[str, Any] = {"judge_end": judge_end, "EndVerdict": EndVerdict, "Ending": Ending, "EndTxn": EndTxn}
    names |= {"Outcome": Outcome, "turn": Turn(0), "Identity": lambda *_shown: identity}
    names |= {"shard": world.inside.runtime.shard(world.inside.transactions.shard_key("billing-0"))}
    run(example("txn_coordinator"), names)
    assert names["decision"].records
