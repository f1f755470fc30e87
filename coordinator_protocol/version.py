"""The version of everything in this distribution. The build reads it from here, so it is right in a checkout too."""

from __future__ import annotations

from typing import Final

VERSION: Final = "1.0.0"
