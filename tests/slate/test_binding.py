"""SlateDB's binding, and each of our repairs: a test notices when one is not needed any more."""

from __future__ import annotations

import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest

from coordinator_runtime.slate import binding

ROOT = Path(__file__).resolve().parent.parent.parent


def unrepaired(program: str) -> str:
    """Output of a program that uses the binding as it comes."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_calls_without_our_repair_need_an_event_loop() -> None:
    """If this fails, `_call_plainly` may be dropped."""
    program = """
import slatedb.uniffi as uniffi
builder = uniffi.DbBuilder("path", uniffi.ObjectStore.resolve("memory:///"))
try:
    builder.build().send(None)
except RuntimeError as error:
    print(error)
"""
    assert unrepaired(program) == "no running event loop"


def test_arguments_without_our_repair_are_copied_byte_by_byte() -> None:
    """If this fails, `_write_at_once` may be dropped."""
    program = """
import inspect
from slatedb.uniffi._slatedb_uniffi import slatedb
print(inspect.getsource(slatedb._UniffiRustBufferBuilder.write))
"""
    assert "for i, byte in enumerate(value)" in unrepaired(program)


def test_a_row_without_our_repair_takes_six_native_calls() -> None:
    """If this fails, `WriteBatch` may be dropped."""
    program = """
import slatedb.uniffi as uniffi
from slatedb.uniffi._slatedb_uniffi import slatedb
calls = []
call = slatedb._uniffi_rust_call_with_error
slatedb._uniffi_rust_call_with_error = lambda *arguments: calls.append(1) or call(*arguments)
batch = uniffi.WriteBatch()
calls.clear()
batch.put(b"key of a usual length", b"value of a usual length")
print(len(calls))
"""
    assert unrepaired(program) == "6"


def test_a_batch_that_refuses_a_row_says_why_and_takes_the_next() -> None:
    batch = binding.WriteBatch()
    for add in (lambda: batch.put(b"", b"value"), lambda: batch.delete(b"")):
        with pytest.raises(binding.SlateError, match="empty"):
            add()
    database = binding.result_of(binding.DbBuilder("path", binding.ObjectStore.resolve("memory:///")).build())
    batch.put(b"key", b"value")
    batch.put(b"gone", b"value")
    batch.delete(b"gone")
    binding.result_of(database.write_with_options(batch, binding.WRITE))
    found = [binding.result_of(database.get_with_options(key, binding.READ)) for key in (b"key", b"gone")]
    assert found == [b"value", None]
    binding.result_of(database.shutdown())


def test_the_release_is_pinned_exactly() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert f"slatedb=={binding.RELEASE}" in extras["objectstore"]


def test_another_release_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "RELEASE", "0.18.0")
    with pytest.raises(ImportError, match=r"slatedb 0\.17\.0 is installed, and this program needs exactly 0\.18\.0"):
        binding.repair()


def test_calls_work_on_any_thread_and_large_values_come_back_whole() -> None:
    values = [b"", b"\x00\xff", bytes(range(256)) * 4_096]
    found: list[bytes | None] = []

    def use() -> None:
        store = binding.ObjectStore.resolve("memory:///")
        database = binding.result_of(binding.DbBuilder("path", store).build())
        batch = binding.WriteBatch()
        for number, value in enumerate(values):
            batch.put(b"%d" % number, value)
        binding.result_of(database.write_with_options(batch, binding.WRITE))
        found.extend(binding.result_of(database.get_with_options(b"%d" % number, binding.READ)) for number in range(3))
        binding.result_of(database.shutdown())

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert found == values


def test_patience_with_a_store_that_never_answers_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(binding._Waiter, "call_soon_threadsafe", lambda *_answer: None)
    store = binding.ObjectStore.resolve("memory:///")
    with pytest.raises(binding.TooSlow, match="the object store did not answer within 0 s"):
        binding.result_of(binding.DbBuilder("path", store).build())
