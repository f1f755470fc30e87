"""Conversion of fetched batches for readers that cannot decode the stored encoding.

A fetch reads batches as they are stored, counts them as such, and converts them last. Most answers have nothing to
convert. A batch that cannot be converted is refused like a damaged one: if others were read before it, the read ends
there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol, TypeAlias

from msgspec.structs import replace

from coordinator_protocol.batch import BatchHeader, Encoding
from coordinator_protocol.errors import Refused
from coordinator_protocol.wire import Buffer
from coordinator_runtime.pending import Pending, all_of, settled
from partition_log.leadership import epoch_at
from partition_log.requests import FetchResult

ReadBatch: TypeAlias = tuple[BatchHeader, Buffer]
"""Header and stored form of a batch."""


class Converter(Protocol):
    """Converts batches from one encoding to another."""

    def readable(self, accepted: frozenset[Encoding]) -> frozenset[Encoding]:
        """Return the stored encodings that a reader of these gets, as they are or converted."""

    def convert(self, batch: ReadBatch, accepted: frozenset[Encoding]) -> Pending[ReadBatch]:
        """Return a batch in an encoding that the reader takes: the same records at the same offsets, of the same
        producer.

        Large batches are converted off the loop. Errors: Refused if the payload cannot be read."""


def converted(
    results: list[FetchResult], accepted: frozenset[Encoding], converter: Converter
) -> Pending[list[FetchResult]]:
    """Return the results of a fetch with all batches in encodings that the reader takes."""
    if all(header.encoding in accepted for result in results for header, _stored in result.batches):
        return settled(results)
    return all_of([_converted(result, accepted, converter) for result in results])


def _converted(result: FetchResult, accepted: frozenset[Encoding], converter: Converter) -> Pending[FetchResult]:
    parts: list[Pending[ReadBatch | Refused]] = []
    for batch in result.batches:
        part: Pending[ReadBatch | Refused] = Pending()
        if batch[0].encoding in accepted:
            part.succeed(batch)
        else:
            converter.convert(batch, accepted).on_settled(partial(_settle, part))
        parts.append(part)
    return all_of(parts).map(partial(_joined, result))


def _settle(part: Pending[ReadBatch | Refused], found: Pending[ReadBatch]) -> None:
    if isinstance(found.error, Refused):
        part.succeed(found.error)
    elif found.error is not None:
        part.fail(found.error)
    else:
        part.succeed(found.result())


def _joined(result: FetchResult, parts: Sequence[ReadBatch | Refused]) -> FetchResult:
    """Return the result with the converted batches, up to the first that was refused."""
    kept: list[ReadBatch] = []
    for (header, _stored), part in zip(result.batches, parts, strict=True):
        if isinstance(part, Refused) and not kept:
            return FetchResult(result.name, header.last_offset + 1, result.head, error=part)
        if isinstance(part, Refused):
            head, before = result.head, header.base_offset
            epoch = result.last_read_epoch if head is None else epoch_at(head.leadership, before - 1)
            return replace(result, batches=tuple(kept), next_offset=before, last_read_epoch=epoch)
        kept.append(part)
    return replace(result, batches=tuple(kept))
