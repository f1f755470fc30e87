"""docs/clients.md and the client it points to: what it says is what this server does, tried in another language."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from coordinator_api.v1 import common_pb2, log_pb2
from coordinator_client import read
from coordinator_protocol.batch import BatchHeader, Encoding, batch_crc, encode_offsetless
from coordinator_protocol.checksum import crc32c
from coordinator_protocol.errors import ErrorClass
from coordinator_protocol.hashing import murmur2, partition_for
from tests.docs.fences import ROOT

PAGE = (ROOT / "docs" / "clients.md").read_text()
INSTALL_SECONDS_MAX = 300
"""For an installation that hangs: packages come over a network."""


def test_the_vectors_of_the_partitioner_are_right() -> None:
    vectors = re.findall(r"^\| `(.+)` \| (-?\d+) \|$", PAGE, re.MULTILINE)
    assert len(vectors) == 6
    assert vectors == [(key, str(murmur2(key.encode()))) for key, _ in vectors]


def test_every_class_of_error_has_its_line() -> None:
    named = re.findall(r"^\| ([A-Z_]+) \|", PAGE, re.MULTILINE)
    assert named == [one.name for one in ErrorClass if one is not ErrorClass.NONE]


RECORDS = log_pb2.Records(
    records=[
        log_pb2.Record(
            key=b"k", value=b"v1", timestamp_ms=1_700_000_000_000, headers=[log_pb2.Header(key="h", value=b"x")]
        ),
        log_pb2.Record(value=b"v2", timestamp_ms=1_700_000_000_005),
    ]
)
BATCH = BatchHeader(
    base_offset=0,
    record_count=2,
    base_timestamp_ms=1_700_000_000_000,
    max_timestamp_ms=1_700_000_000_005,
    encoding=Encoding.RECORDS_V1,
)
PRODUCERS_BATCH = replace(BATCH, producer_id=4000, producer_epoch=3, base_sequence=7, is_transactional=True)


def test_the_vectors_of_a_batch_are_right() -> None:
    vectors = dict[str, list[str]]()
    for name, said in re.findall(r"^(payload|covered|crc32c) +([0-9a-f]+)$", PAGE, re.MULTILINE):
        vectors.setdefault(name, []).append(said)
    payload = RECORDS.SerializeToString()
    assert vectors["payload"] == [payload.hex()]
    batches = PRODUCERS_BATCH, BATCH
    assert vectors["crc32c"] == [f"{batch_crc(batch, payload):08x}" for batch in batches]
    assert vectors["covered"] == [_covered(batch, payload) for batch in batches]
    assert f"123456789 has crc32c {crc32c(b'123456789'):08x}\n" in PAGE


def _covered(batch: BatchHeader, payload: bytes) -> str:
    """Return the bytes that the checksum covers before the payload, as they are stored."""
    header, _ = encode_offsetless(batch, payload)
    return header[-43:].hex()


def test_the_names_of_generated_code_are_those_of_the_protos() -> None:
    options = common_pb2.DESCRIPTOR.GetOptions()
    assert f"`{options.java_package}`" in PAGE
    assert f"`{options.go_package.rpartition(';')[2]}`" in PAGE


@pytest.fixture(scope="module")
def node_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with its packages, in a tree of its own that has the .proto files where it looks for them."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"the client in Node.js is not tried: there is no {program} here")
    tree = tmp_path_factory.mktemp("node")
    shutil.copytree(
        ROOT / "examples" / "node", tree / "examples" / "node", ignore=shutil.ignore_patterns("node_modules")
    )
    shutil.copytree(ROOT / "proto", tree / "proto", ignore=shutil.ignore_patterns("*.py", "*.pyi", "__pycache__"))
    folder = tree / "examples" / "node"
    install = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(install, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_client_in_another_language_has_the_vectors(node_client: Path) -> None:
    program = f"""
        import {{ batchChecksum }} from "./wire.mjs";
        const payload = Buffer.from("{RECORDS.SerializeToString().hex()}", "hex");
        const batch = {{ record_count: 2, encoding: 1,
          base_timestamp_ms: 1700000000000, max_timestamp_ms: 1700000000005,
          producer_id: "4000", producer_epoch: 3, base_sequence: 7, is_transactional: true, payload }};
        console.log(batchChecksum(batch).toString(16));
    """
    command = ["node", "--input-type=module", "--eval", program]
    done = subprocess.run(command, cwd=node_client, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"crc32c   {done.stdout.strip()}\n" in PAGE


@pytest.mark.slow
def test_a_client_in_another_language_commits_aborts_and_reads(node_client: Path, endpoint: str) -> None:
    command = ["node", "transfers.mjs", endpoint, "node-transfers"]
    done = subprocess.run(command, cwd=node_client, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seen = {(row.partition, row.offset, row.key, row.value) for row in read("node-transfers", endpoint)}
    # It printed what our own reader finds, so encodings, positions and hidden records agree; and each record is where
    # our partitioner looks for its key.
    assert set(done.stdout.splitlines()) == {f"{p} {o} {key.decode()} {value.decode()}" for p, o, key, value in seen}
    assert sorted((key, value) for _, _, key, value in seen) == [
        (b"alice", b"-30"),
        (b"alice", b"-5"),
        (b"bob", b"30"),
        (b"carol", b"5"),
    ]
    assert all(partition == partition_for(key, 2) for partition, _, key, _ in seen)


@pytest.fixture(scope="module")
def go_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example in Go with the code that is generated for it, in a tree of its own."""
    if shutil.which("go") is None:
        pytest.skip("the client in Go is not tried: there is no go here")
    protoc = ROOT / ".venv-generate/bin/python"
    if not protoc.exists():
        pytest.skip("the client in Go is not tried: there is no protoc here (make generate)")
    folder = tmp_path_factory.mktemp("go") / "go"
    shutil.copytree(ROOT / "examples/go", folder, ignore=shutil.ignore_patterns("pb"))
    (folder / "pb").mkdir()
    environment = os.environ | {"GOBIN": str(folder / "bin")}
    install = ["go", "install", f"google.golang.org/protobuf/cmd/protoc-gen-go@{go_version_of('protobuf')}"]
    generate = [protoc, "-m", "grpc_tools.protoc", "--proto_path", ROOT / "proto", "--go_out=paths=source_relative:pb"]
    generate += [f"--plugin={folder}/bin/protoc-gen-go", *sorted(ROOT.glob("proto/coordinator_api/v1/*.proto"))]
    for command in (install, generate, ["go", "build", "-o", "transfers", "."]):
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return folder


def go_version_of(module: str) -> str:
    (found,) = re.findall(rf"google\.golang\.org/{module} (\S+)", (ROOT / "examples/go/go.mod").read_text())
    return str(found)


def test_the_go_example_names_the_version_of_its_module() -> None:
    source = (ROOT / "examples/go/transfers.go").read_text()
    assert f"protoc-gen-go@{go_version_of('protobuf')}\n" in source


@pytest.mark.long
def test_a_client_in_go_commits_aborts_and_reads(go_client: Path, endpoint: str) -> None:
    done = subprocess.run(
        [go_client / "transfers", endpoint, "go-transfers"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    seen = {(row.partition, row.offset, row.key, row.value) for row in read("go-transfers", endpoint)}
    assert set(done.stdout.splitlines()) == {f"{p} {o} {key.decode()} {value.decode()}" for p, o, key, value in seen}
    assert sorted((key, value) for _, _, key, value in seen) == [
        (b"alice", b"-30"),
        (b"alice", b"-5"),
        (b"bob", b"30"),
        (b"carol", b"5"),
    ]
    assert all(partition == partition_for(key, 2) for partition, _, key, _ in seen)
