"""How the process handles its memory: when garbage is looked for."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_YOUNG_OBJECTS_MAX: Final = 20_000
"""New objects after which the collector looks for cycles among them. A transaction makes dozens that live until the
next flush and are no garbage: at Python's 700 the collector took a tenth of the time of a busy server. At this number
it looks for about a millisecond at once."""
_MIDDLE_EVERY: Final = 50
_OLD_EVERY: Final = 100


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
        gc.set_threshold(_YOUNG_OBJECTS_MAX, _MIDDLE_EVERY, _OLD_EVERY)
        gc.enable()
