"""Commands for which the rights of files count, although a test may run as root."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

UNPRIVILEGED: Final = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
"""Takes from root the capabilities that let it ignore the rights of files."""


def as_user(path: Path) -> Sequence[str]:
    """Return the words to put before a command so that rights count for it. `path` is one that no user may write."""
    if os.access(path, os.W_OK) and shutil.which(UNPRIVILEGED[0]) is None:
        pytest.skip("the rights of files do not count for this user, and setpriv is not installed")
    return UNPRIVILEGED if os.access(path, os.W_OK) else ()
