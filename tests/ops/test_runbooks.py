"""Every command of the runbooks and of ops/README.md is run here, against a server in the trouble that it is for; or
its block is marked as one that cannot be, and ops/checks.md says why."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pyarrow as pa
import pytest

from coordinator_client import Admin, Connection, Consumer, Producer
from coordinator_client.arrow_encoding import SCHEMA
from coordinator_client.producer.sink import SinkClient, SinkMember
from tests.docs.fences import PROGRAMS
from tests.harness.long_cases import one_in
from tests.harness.server_process import DEADLINE_SECONDS, ServerProcess
from tests.harness.tools import require_tool
from tests.ops.files import ALERT_RULES, OPS, RUNBOOKS, Block, blocks, documents
from tests.ops.prometheus_process import free_port, metrics_address
from tests.ops.test_alerts_fire import leave_one_hanging, server_of
from tests.server.producer_by_wire import ProducerByWire

RUNBOOK_BLOCKS = [block for path in sorted(RUNBOOKS.glob("*.md")) for block in blocks(f"runbooks/{path.name}")]
RUN_HERE = [block for block in RUNBOOK_BLOCKS if block.language == "sh"]
README_BLOCKS = [block for block in blocks("README.md") if block.language == "sh"]


LABELS = {"topic": "orders", "partition": "0", "group": "billing"}
"""Labels of an alert about the ordinary world, which the commands take as `$topic` and so on."""


def labels_of(alert: str) -> set[str]:
    """The labels that the words of the alert use."""
    rules = [rule for rule in ALERT_RULES.read_text().split("- alert: ") if rule.startswith(f"{alert}\n")]
    return {label for rule in rules for label in re.findall(r"\$labels\.(\w+)", rule)}


def test_names_in_commands_are_labels_of_the_alert() -> None:
    for block in RUNBOOK_BLOCKS:
        named = {name for command in block.commands for name in re.findall(r"\$(\w+)", command)}
        alert = Path(block.document).stem
        assert named <= labels_of(alert) & LABELS.keys(), f"{block} takes {named} from {labels_of(alert)}"
        text = (OPS / block.document).read_text()
        assert all(f"`${name}`" in text for name in named), f"{block} does not say where {named} come from"


def is_harmless(block: Block) -> bool:
    """Return whether the block only looks, and at nothing that is special."""
    return not block.world and not any(command.startswith("txnctl abort") for command in block.commands)


def test_every_block_is_run_here_or_names_why_not() -> None:
    listed = (OPS / "checks.md").read_text()
    for document in documents():
        for block in blocks(document):
            assert block.language in {"sh", "bash", "text"}, block
            for command in block.commands if block.language != "text" else ():
                program = command.removeprefix("sudo ").split()[0]
                if block.language == "bash" and not program.startswith("#"):
                    assert f"| `{program}` |" in listed, f"{block}: {program} is not in the list of ops/checks.md"
                if block.language == "sh":
                    assert program != "journalctl", f"{block}: there is no journal here, so the block is one of bash"
                    assert "://BUCKET" not in command, f"{block}: there is no bucket here, so the block is one of bash"


def test_every_runbook_has_the_same_parts() -> None:
    for path in RUNBOOKS.glob("*.md"):
        parts = [line for line in path.read_text().splitlines() if line.startswith("#")]
        assert parts[1:] == ["## Look", "## Do", "## Afterwards"], path.name


@contextmanager
def ordinary(directory: Path) -> Iterator[ServerProcess]:
    """A server with a topic, a group that has read some of it, and a transaction of shop-1 that is open."""
    with ExitStack() as stack:
        server = stack.enter_context(server_of(directory))
        with Admin(server.address) as admin:
            admin.create_topic("orders", 2)
        with Producer(server.address, transactional_id="till-1") as producer, producer.transaction() as transaction:
            transaction.send("orders", b"1 pear", partition=0)
        consumer = Consumer(server.address, group_id="billing", auto_offset_reset="earliest", enable_auto_commit=False)
        with consumer:
            consumer.subscribe(["orders"])
            assert consumer.poll(timeout_ms=int(DEADLINE_SECONDS * 1_000))
            consumer.commit()
        channel = stack.enter_context(grpc.insecure_channel(server.address))
        silent = ProducerByWire(channel, "shop-1")
        silent.init()
        silent.write("orders", 0, "held")
        yield server


@contextmanager
def hanging(directory: Path) -> Iterator[ServerProcess]:
    """A server with a hanging transaction in t-1."""
    leave_one_hanging(directory / "data")
    with server_of(directory, TXN_SHARD_COUNT="2") as server:
        yield server


@contextmanager
def prepared(directory: Path) -> Iterator[ServerProcess]:
    """A server where shop-2pc waits for an outside decision."""
    with server_of(directory, TXN_TRANSACTION_TWO_PHASE_COMMIT_ENABLE="true") as server:
        with Admin(server.address) as admin:
            admin.create_topic("orders", 1)
        with (
            Producer(server.address, transactional_id="shop-2pc", two_phase_commit=True) as producer,
            producer.transaction() as transaction,
        ):
            transaction.send("orders", b"paid elsewhere", partition=0)
            transaction.prepare()
        yield server


@contextmanager
def sealed(directory: Path) -> Iterator[ServerProcess]:
    """A server where a batch of the sink spark/orders is written and sealed, without a decision."""
    with server_of(directory) as server, Connection(server.address) as connection:
        with Admin(connection) as admin:
            admin.create_topic("orders", 1)
        member = SinkClient(connection, "spark/orders", run_id="run 1").join(
            0, attempt="a", transaction_timeout_ms=60_000
        )
        assert isinstance(member, SinkMember)
        rows = [{"key": None, "value": b"1 pear", "timestamp_ms": 7, "headers": None}]
        member.send_arrow([("orders", 0, pa.RecordBatch.from_pylist(rows, schema=SCHEMA))])
        member.seal()
        yield server


@contextmanager
def stopped(directory: Path) -> Iterator[ServerProcess]:
    """The directory of a server that has ended."""
    with ordinary(directory) as server:
        server.terminate()
        yield server


@contextmanager
def probed(directory: Path) -> Iterator[ServerProcess]:
    """A server where the probe has been."""
    with server_of(directory) as server:
        run("txnctl probe --count 1", server, directory)
        yield server


@contextmanager
def backed_up(directory: Path) -> Iterator[ServerProcess]:
    """A server with a backup."""
    with server_of(directory, TXN_BACKUP_DIRECTORY=str(directory / "backups")) as server:
        run("txnctl backup create", server, directory)
        yield server


WORLDS = {
    "": ordinary,
    "backups": backed_up,
    "probed": probed,
    "hanging": hanging,
    "prepared": prepared,
    "sealed": sealed,
    "stopped": stopped,
}


def run(command: str, server: ServerProcess, directory: Path, *, status: int = 0) -> None:
    """Run a command as an operator would: in a shell, with our program, and the addresses of this server."""
    if "curl" in command:
        require_tool("curl")
    done = subprocess.run(
        [
            "bash",
            "-o",
            "pipefail",
            "-c",
            command.replace("127.0.0.1:9464", metrics_address(server)).replace("127.0.0.1:7070", server.address),
        ],
        cwd=directory,
        env=environment() | LABELS | {"TXNCTL_SERVER": server.address},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    said = f"{command}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == status, said
    assert "Traceback" not in said


def environment() -> dict[str, str]:
    """With our program on the path, and without settings of the developer."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TXN_", "TXNCTL_"))}
    return kept | {"PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The ordinary world, shared by commands that only look."""
    with ordinary(tmp_path_factory.mktemp("calm")) as server:
        yield server


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("block", one_in(4, [(block,) for block in RUN_HERE if is_harmless(block)]), ids=str)
def test_the_commands_that_look_work(block: Block, calm: ServerProcess, tmp_path: Path) -> None:
    for command in block.commands:
        run(command, calm, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("block", one_in(10, [(block,) for block in RUN_HERE if not is_harmless(block)]), ids=str)
def test_the_commands_that_act_work_in_the_trouble_that_they_are_for(block: Block, tmp_path: Path) -> None:
    with WORLDS[block.world](tmp_path) as server:
        for command in block.commands:
            # Its status says that it found something.
            run(command, server, tmp_path, status=int(command == "txnctl hanging"))


@pytest.mark.slow
def test_the_first_steps_lead_to_a_server_that_prometheus_can_scrape(tmp_path: Path) -> None:
    steps = {block.world: block for block in README_BLOCKS if block.world}
    looks = [block for block in README_BLOCKS if not block.world]
    (serve,) = steps["server"].commands
    command = serve.removeprefix("txnctl serve ").replace("ops/", f"{OPS}/").split()
    server = ServerProcess(
        tmp_path / "data", *command, "--set", "metrics_listen=127.0.0.1:0", "--set", "log_format=json"
    )
    server.start()
    try:
        for block in looks:
            for each in block.commands:
                run(each, server, tmp_path)
        (watch,) = steps["prometheus"].commands
        with PrometheusByHand(watch, tmp_path) as prometheus:
            assert prometheus.is_ready()
    finally:
        server.kill()


class PrometheusByHand:
    """Prometheus as the README starts it, on a port that is free."""

    def __init__(self, command: str, directory: Path) -> None:
        require_tool("prometheus")
        line = command.replace("ops/", f"{OPS}/").replace(":9090", f":{free_port()}")
        self._process = subprocess.Popen(
            line.split(), cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def __enter__(self) -> PrometheusByHand:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def is_ready(self) -> bool:
        """Return once it says so; False if it ends instead."""
        assert self._process.stderr is not None
        return any("Server is ready to receive web requests" in line for line in self._process.stderr)
