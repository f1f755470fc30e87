"""The garbage collector, around a load."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading_for_good() -> Iterator[None]:
    """While state is read that lives as long as the process, and after it.

    Reading makes hundreds of thousands of objects and hardly any garbage. The collector would look through all of them
    again and again, which takes a third of the time of a load, and later holds up the loop for a quarter of a second at
    once. So it rests during the load, and never looks at what is there at its end."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
