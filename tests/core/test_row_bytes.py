"""The bytes of rows that every transaction stages: the compiled functions make what those in Python make, whatever the
values are, and are used only where they know all of a value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from coordinator_api.storage.v1 import transaction_pb2 as storage
from coordinator_core.row_bytes import IN_PYTHON
from coordinator_protocol.marker import Outcome
from coordinator_server import compiled
from coordinator_server.compiled import STORED_FIELDS, fastest_row_bytes, knows_all_fields
from partition_log.codec import decode_producer, producer_key
from partition_log.state import BATCHES_CACHED_MAX, CachedBatch, LastMarker, OpenTransaction, ProducerEntry
from txn_coordinator.state import Identity, InitAnswer, Member, Transaction, TransactionState

COMPILED = fastest_row_bytes()
needs_it = pytest.mark.skipif(COMPILED is IN_PYTHON, reason="the compiled transport is not installed (make native)")
CRATE: Final = Path(__file__).resolve().parents[2] / "native_transport" / "src"


def numbers(least: int, most: int) -> st.SearchStrategy[int]:
    """All of a range, and above all those that are written in another way than their neighbours."""
    edges = {least, most, -1, 0, 1, 127, 128, *(sign << bits for bits in (6, 14, 31, 32, 62, 63) for sign in (1, -1))}
    return st.sampled_from(sorted(edge for edge in edges if least <= edge <= most)) | st.integers(least, most)


INT8, INT16, INT32, INT64 = (numbers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (8, 16, 32, 64))
UINT32, UINT64 = numbers(0, 2**32 - 1), numbers(0, 2**64 - 1)
BYTES = st.binary(max_size=20) | st.binary(min_size=120, max_size=140)
TEXTS = st.text(max_size=10) | st.sampled_from(["", "å" * 64, "\0", "\U0010ffff", "￿", "a" * 127, "a" * 128])
IDENTITIES = st.builds(Identity, INT64, INT32)


def values(made: type[Struct], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values of a class, of which each field is named: one that is new must be, too."""
    assert fields.keys() == set(made.__struct_fields__), f"name every field of {made.__name__}"
    return st.builds(made, **fields)


TRANSACTIONS = values(
    Transaction,
    transactional_id=TEXTS,
    producer_id=INT64,
    producer_epoch=INT32,
    last_producer_epoch=INT32,
    prev_producer_id=INT64,
    next_producer_id=INT64,
    next_producer_epoch=INT32,
    txn_timeout_ms=INT32,
    state=st.sampled_from(TransactionState),
    partitions=st.frozensets(UINT32, max_size=5) | st.sampled_from([frozenset(range(500)), frozenset()]),
    groups=st.frozensets(TEXTS, max_size=5),
    start_ms=INT64,
    last_update_ms=INT64,
    client_txn_version=UINT32,
    txn_epoch=INT32,
    csn=UINT64,
    init=st.none() | values(InitAnswer, request_id=BYTES, identity=IDENTITIES, ongoing=st.none() | IDENTITIES),
    cause=st.just(""),
    prepared_ms=st.none() | INT64,
    transact_id=BYTES,
    member=st.none() | values(Member, batch_id=INT64, attempt=TEXTS),
)
BATCHES = values(CachedBatch, base_sequence=INT32, last_sequence=INT32, base_offset=INT64)
ENTRIES = values(
    ProducerEntry,
    epoch=INT16,
    coordinator_epoch=INT32,
    last_append_ms=INT64,
    batches=st.lists(BATCHES, max_size=BATCHES_CACHED_MAX).map(tuple),
    open_transaction=st.none() | values(OpenTransaction, first_offset=INT64, started_ms=INT64),
    last_marker=st.none()
    | values(LastMarker, txn_epoch=INT16, outcome=st.sampled_from(Outcome), csn=UINT64, first_offset=INT64),
    is_sealed=st.booleans(),
    forgotten_csn=UINT64,
    coordinator_shard=numbers(-1, 2**16 - 1),
)
EMPTY: Final = Transaction(
    transactional_id="t", producer_id=0, txn_timeout_ms=0, last_update_ms=0, producer_epoch=0, client_txn_version=0
)


@needs_it
@settings(max_examples=1_000, deadline=None)
@given(transaction=TRANSACTIONS, cause=UINT32)
@example(EMPTY, 0)
@example(replace(EMPTY, prepared_ms=0, member=Member(0, ""), init=InitAnswer(b"", Identity(0, 0), Identity(0, 0))), 0)
def test_compiled_or_not_an_id_is_the_same_bytes(transaction: Transaction, cause: int) -> None:
    assert COMPILED.transaction_value(transaction, cause) == IN_PYTHON.transaction_value(transaction, cause)


@needs_it
@settings(max_examples=500, deadline=None)
@given(ordinal=UINT32, producers=st.lists(st.tuples(UINT64, ENTRIES), max_size=4), makes=st.sampled_from([list, tuple]))
def test_compiled_or_not_producers_are_the_same_rows(
    ordinal: int, producers: list[tuple[int, ProducerEntry]], makes: Callable[[Any], Any]
) -> None:
    found = COMPILED.producer_rows(ordinal, makes(producers))
    assert found == IN_PYTHON.producer_rows(ordinal, makes(producers))
    assert [type(row) for row in found] == [tuple] * len(producers)


def test_a_producers_row_is_found_again() -> None:
    entry = ProducerEntry(3, batches=(CachedBatch(0, 1, 5),))
    for made in (IN_PYTHON, COMPILED):
        [(key, value)] = made.producer_rows(7, [(9, entry)])
        assert (key, decode_producer(value)) == (producer_key(7, 9), entry)


def too_large(made: Struct) -> Iterator[Any]:
    """The value with each of its numbers one larger or smaller than could be stored, and with text that is none."""
    for field in made.__struct_fields__:
        value = getattr(made, field)
        if isinstance(value, int) and not isinstance(value, bool):
            yield from (replace(made, **{field: number}) for number in (2**64, -(2**63) - 1))
        elif isinstance(value, str):
            yield replace(made, **{field: "\ud800"})
        elif isinstance(value, Struct):
            yield from (replace(made, **{field: larger}) for larger in too_large(value))


@needs_it
def test_what_cannot_be_stored_is_refused_by_both() -> None:
    whole = replace(EMPTY, init=InitAnswer(b"", Identity(1, 1)), member=Member(1, "a"))
    wrong = [each for each in too_large(whole) if each.transactional_id == "t" and not each.cause]
    wrong += [replace(whole, partitions=frozenset({2**32})), replace(whole, partitions=frozenset({-1}))]
    wrong += [replace(whole, groups=frozenset({"\ud800"})), replace(whole, producer_epoch=2**31)]
    assert len(wrong) > 30
    for transaction in wrong:
        for made in (IN_PYTHON, COMPILED):
            with pytest.raises((ValueError, OverflowError, TypeError)):
                made.transaction_value(transaction, 0)
    entry = ProducerEntry(1, batches=(CachedBatch(1, 1, 1),), open_transaction=OpenTransaction(1, 1))
    entries = [*too_large(entry), *too_large(replace(entry, last_marker=LastMarker(1, Outcome.COMMIT, 1)))]
    entries = [each for each in entries if each.last_marker is None or each.forgotten_csn == 0]
    entries += [replace(entry, batches=entry.batches * (BATCHES_CACHED_MAX + 1)), replace(entry, coordinator_shard=-2)]
    entries += [replace(entry, coordinator_shard=2**16), replace(entry, epoch=2**15)]
    for each in entries:
        for made in (IN_PYTHON, COMPILED):
            with pytest.raises(Exception):  # noqa: B017  struct.error, IndexError, or what PyO3 says
                made.producer_rows(0, [(1, each)])


def known_to_rust() -> dict[str, set[str]]:
    """The fields that the sources of the crate declare to read, by class."""
    sources = "".join((CRATE / name).read_text() for name in ("transaction.rs", "producers.rs"))
    declared = re.findall(r"frozen! \{\s*(\w+)(?:<'py>)? \{(.*?)\}(?: besides \{(.*?)\})?\s*\n\}", sources, re.DOTALL)
    found = {name: set(re.findall(r"(\w+):", read) + re.findall(r"\w+", other)) for name, read, other in declared}
    return found | {"Identity": {"producer_id", "producer_epoch"}}


def test_the_crate_knows_every_field_of_what_is_stored() -> None:
    assert known_to_rust() == STORED_FIELDS, (
        "a stored field that is new, gone or renamed belongs into native_transport/src/transaction.rs or producers.rs, "
        "and is another INTERFACE and version of the crate"
    )


def test_the_crate_writes_every_field_of_the_message() -> None:
    kinds: Final = {
        "unsigned": {FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_UINT64},
        "plain": {FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64},
        "signed": {FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SINT64},
        "packed": {FieldDescriptor.TYPE_UINT32},
        "element": {FieldDescriptor.TYPE_STRING},
        "content": {FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES},
        "present": {FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_SINT32},
    }
    written = re.findall(r"message\.(\w+)\((\d+),", (CRATE / "transaction.rs").read_text())
    fields = storage.TransactionValue.DESCRIPTOR.fields_by_number
    assert sorted(int(number) for _kind, number in written) == sorted(fields), "each once"
    for kind, number in written:
        field = fields[int(number)]
        assert field.type in kinds[kind], field.name
        assert field.has_presence == (kind == "present"), field.name
        assert (field.default_value == []) == (kind in ("packed", "element")), field.name


@needs_it
def test_an_installed_crate_that_does_not_know_a_field_makes_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fastest_row_bytes() is not IN_PYTHON
    newer = {**STORED_FIELDS, "Transaction": STORED_FIELDS["Transaction"] | {"of_a_later_version"}}
    monkeypatch.setattr(compiled, "STORED_FIELDS", newer)
    assert fastest_row_bytes() is IN_PYTHON


def test_whoever_does_not_know_exactly_what_is_stored_is_found_out() -> None:
    known = {name: sorted(fields) for name, fields in STORED_FIELDS.items()}
    assert knows_all_fields(known)
    assert not knows_all_fields(known | {"Transaction": known["Transaction"][1:]})
    assert not knows_all_fields(known | {"Member": [*known["Member"], "more"]})
    assert not knows_all_fields({name: fields for name, fields in known.items() if name != "LastMarker"})
