"""Garbage that calls leave to Python's collector of cycles. There should be none.

A server looks for cycles seldom: after twenty thousand new objects, however large they are, and at those that happened
to live at such a moment again only the fiftieth time after it. So a cycle with an answer in it keeps the answer.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import AsyncGeneratorType, CodeType, CoroutineType, GeneratorType
from typing import Any

_PACKAGES = ("coordinator_", "txn_coordinator", "group_coordinator", "partition_log")


@contextmanager
def nothing_left_to_the_collector() -> Iterator[None]:
    """Fails where something of the product was left when the block ends that only the collector would find. What the
    block itself still has in variables is not left."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = Counter(name for each in gc.garbage if (name := _name(each)).startswith(_PACKAGES))
        assert not left, f"only the collector would find {dict(left)}"
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        if was_enabled:
            gc.enable()


def _name(found: object) -> str:
    """Return the name of a function, a coroutine or a generator, or else of the value's class."""
    if isinstance(found, CoroutineType | AsyncGeneratorType | GeneratorType):
        code = _code(found)
        return ".".join([*Path(code.co_filename).with_suffix("").parts[-2:], code.co_qualname])
    named = found if isinstance(getattr(found, "__qualname__", None), str) else type(found)
    return f"{named.__module__}.{named.__qualname__}"  # type: ignore[attr-defined]  # both kinds have them


def _code(
    found: CoroutineType[Any, Any, Any] | AsyncGeneratorType[Any, Any] | GeneratorType[Any, Any, Any],
) -> CodeType:
    if isinstance(found, CoroutineType):
        return found.cr_code
    return found.ag_code if isinstance(found, AsyncGeneratorType) else found.gi_code
